package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDiffWidth expects every line that diff prints, in the READMEs and in the
// scripts' golden files, to fit a terminal of 80 columns.
func TestDiffWidth(t *testing.T) {
	outputs := diffOutputs(t)
	if len(outputs) < 8 {
		t.Fatalf("found only %d outputs of diff", len(outputs))
	}
	for where, output := range outputs {
		if !strings.Contains(output, "efficiency") && !strings.HasPrefix(output, "before: ") {
			t.Errorf("%s is no output of diff:\n%s", where, output)
		}
		for line := range strings.Lines(output) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", where, n, line)
			}
		}
	}
}

// diffOutputs finds what diff prints: in a console block, up to the next command
// or the end of the block; in a script, the file that the output is compared
// with.
func diffOutputs(t *testing.T) map[string]string {
	outputs := make(map[string]string)
	read := func(pattern string, find func(path, text string)) {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			find(path, string(text))
		}
	}
	console := func(path, text string) {
		for _, part := range strings.Split(text, "\n$ ") {
			if command, output, ok := strings.Cut(part, "\n"); ok && strings.HasPrefix(command, "stplan diff ") {
				outputs[path+": "+command], _, _ = strings.Cut(output, "```")
			}
		}
	}
	read("../../README.md", console)
	read("../../examples/*/README.md", console)
	read("testdata/script/*.txt", func(path, text string) {
		commands, files, _ := strings.Cut(text, "\n-- ")
		for _, part := range strings.Split(commands, "\nexits ")[1:] {
			command, after, _ := strings.Cut(part, "\n")
			golden, compared := strings.CutPrefix(after, "cmp stdout ")
			if !strings.HasPrefix(command, "0 stplan diff ") || !compared {
				continue
			}
			golden, _, _ = strings.Cut(golden, "\n")
			_, output, _ := strings.Cut("\n-- "+files, "\n-- "+golden+" --\n")
			outputs[path+": "+golden], _, _ = strings.Cut(output, "\n-- ")
		}
	})
	return outputs
}
