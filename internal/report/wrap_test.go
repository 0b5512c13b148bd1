package report

import (
	"strings"
	"testing"
)

// TestWrapped: no line is wider than a terminal unless one word is, lines after the
// first are indented, and the words stay as they are.
func TestWrapped(t *testing.T) {
	for _, c := range []struct{ lead, text, want string }{
		{"  ", "", "  \n"},
		{"a: ", "short", "a: short\n"},
		{"  waits: ", strings.Repeat("seven77 ", 10), "  waits: " + strings.TrimSpace(strings.Repeat("seven77 ", 9)) + "\n" + strings.Repeat(" ", 9) + "seven77\n"}, // 80 columns,
		{"x ", strings.Repeat("w", 100) + " y", "x " + strings.Repeat("w", 100) + "\n  y\n"},
	} {
		var out strings.Builder
		if err := writeWrapped(&out, c.lead, c.text); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%q: expected %q, found %q", c.text, c.want, out.String())
		}
	}
}
