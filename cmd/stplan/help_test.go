package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHelpFits: no line of a help text is wider than a terminal of 80 columns. A usage line
// and a command to paste stay whole.
func TestHelpFits(t *testing.T) {
	const columns = 80
	a := app{outputs: &outputs{}}
	names := []string{""}
	for _, c := range a.rootCommand().Commands() {
		names = append(names, c.Name())
	}
	for _, name := range names {
		var out, errs bytes.Buffer
		if code := execute(strings.Fields(name+" --help"), nil, &out, &errs); code != exitOK {
			t.Fatalf("stplan %s --help: exit code %d: %s", name, code, errs.String())
		}
		if name == "completion" {
			continue // its text is the library's
		}
		for _, line := range strings.Split(out.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > columns && !strings.HasPrefix(line, "  stplan ") {
				t.Errorf("stplan %s --help: a line of %d columns, expected at most %d: %s", name, n, columns, line)
			}
		}
	}
}

// TestBarLayout: a bar fits into its terminal, and its label keeps its end.
func TestBarLayout(t *testing.T) {
	const label = "3 of 16: qwen3-moe-eager.pickle.gz: packing device 0"
	for _, c := range []struct {
		columns int
		label   string
		width   int
	}{
		{200, label, widestBar},
		{100, label, 100 - besideBar - len(label)},
		{40, "…vice 0", narrowestBar},
		{20, "", narrowestBar},
	} {
		got, width := barLayout(label, c.columns)
		if got != c.label || width != c.width {
			t.Errorf("in %d columns: %q and a bar of %d, expected %q and %d", c.columns, got, width, c.label, c.width)
		}
	}
}
