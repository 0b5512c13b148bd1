package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	consoleOpen  = "```console\n"
	consoleClose = "```\n"
)

// TestExamples runs the commands in the console block of the README of every example that
// has a recording, and of the project's, and compares what they print. The example for
// clusters has none; "make fleet-test" runs it.
func TestExamples(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	recordings, err := filepath.Glob(filepath.Join(examples, "*", "*.pickle.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if len(recordings) == 0 {
		t.Fatal("no examples found")
	}
	if testing.Short() {
		recordings = recordings[:1] // under the race detector each takes half a minute
	}
	for _, recording := range recordings { // one each
		dir := filepath.Dir(recording)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			testExample(t, filepath.Join(dir, "README.md"), copyOf(t, dir, "."))
		})
	}
	t.Run("stplan", func(t *testing.T) {
		testExample(t, filepath.Join(filepath.Dir(examples), "README.md"), copyOf(t, examples, "examples"))
	})
}

// copyOf is a new folder with a copy of another under the given name.
func copyOf(t *testing.T, from, name string) string {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testExample runs the console block of the document at path, in dir.
func testExample(t *testing.T, path, dir string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), consoleOpen)
	block, after, closed := strings.Cut(rest, consoleClose)
	if !ok || !closed {
		t.Fatalf("%s has no console block", path)
	}
	t.Chdir(dir)
	var got strings.Builder
	for _, line := range strings.Split(block, "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			got.WriteString(line + "\n" + runExample(t, command))
		}
	}
	if got.String() == block {
		return
	}
	if !*update {
		t.Fatalf("the output differs (-update rewrites it); got:\n%s", got.String())
	}
	if err := os.WriteFile(path, []byte(before+consoleOpen+got.String()+consoleClose+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func runExample(t *testing.T, command string) string {
	words := strings.Fields(command)
	if len(words) == 0 || words[0] != "stplan" {
		t.Fatalf("not a stplan command: %q", command)
	}
	var stdout, stderr bytes.Buffer
	if code := execute(words[1:], strings.NewReader(""), &stdout, &stderr); code != exitOK {
		t.Fatalf("%s: exit code %d: %s", command, code, stderr.String())
	}
	return stdout.String()
}
