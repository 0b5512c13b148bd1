package report

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"unicode"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"run.pickle.gz":        "run.pickle.gz",
		`C:\run "1"`:           `C:\run "1"`,
		"größe 2 → ü 漢字":       "größe 2 → ü 漢字",
		"a\x1b[2Jb":            `a\x1b[2Jb`,
		"a\nstplan: fine":      `a\nstplan: fine`,
		"a\rb\tc\x00\x7f":      `a\rb\tc\x00\x7f`,
		"\u009b31m\u202egpj.a": `\u009b31m\u202egpj.a`,
		"a\xffb\u2028":         `a\xffb\u2028`,
		"\uFFFD":               "\uFFFD",
		"":                     "",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q is %q, expected %q", in, got, want)
		}
	}
	if got := PrintableLines("a\x1b\n\tb\tc\n"); got != "a\\x1b\n\tb\\tc\n" {
		t.Errorf("%q", got)
	}
}

// TestNamesArePrintable prints every report with names that would harm a terminal.
func TestNamesArePrintable(t *testing.T) {
	const evil = "a\x1b]0;b\a\nstplan: fine\u202e\x9b"
	var out bytes.Buffer
	name := evil
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "stplan: fine") {
				t.Errorf("%s has a line of its own from a name", what)
			}
		}
		if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) || r == '\uFFFD' }); i >= 0 {
			t.Errorf("%s prints %q", what, out.String())
		}
		if !strings.Contains(out.String(), `\x1b`) {
			t.Errorf("%s has no name: %q", what, out.String())
		}
		out.Reset()
	}
	check("compile", (&Compiled{Trace: evil, Plan: evil}).Write(&out))
	check("compile's marker", (&Compiled{Devices: []CompiledDevice{{Iterations: 3, IterationSource: evil}}}).Write(&out))
	check("inspect", (&Inspected{Plan: evil, Producer: evil}).Write(&out))
	check("replay", (&Replayed{Trace: "a", Plan: &name}).Write(&out))
	check("replay's trace", (&Replayed{Trace: evil}).Write(&out))
	check("run", (&Served{Processes: []ServedProcess{{Name: evil, Devices: []ServedDevice{{Allocations: 1}}}}}).Write(&out))
	check("a failure", WriteFailures(&out, evil, []DeviceFailure{{Failure: &Failure{Event: 1}}}))
	peaked := PeakedDevice{PeakedPhase: PeakedPhase{Phase: evil}, HasStacks: true, Line: evil, Lines: []PeakedLine{{Line: evil}}}
	check("peak", (&Peaked{Trace: evil, Devices: []PeakedDevice{peaked}}).Write(&out))
	var table Table
	table.Row(evil, "1")
	check("a table", table.Write(&out))
	w := bufio.NewWriter(&out)
	writeLines(w, []tableLine{{label: evil, figures: []string{evil}}, {label: "x", text: evil}, {label: strings.Repeat("y", 100) + evil}})
	check("lines", w.Flush())
}
