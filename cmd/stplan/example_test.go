package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/examples"
)

// TestExampleIsTheReadmes: stplan example runs three commands that do what they do when a user
// gives them, and they end as the README says.
func TestExampleIsTheReadmes(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, diff, _ := strings.Cut(string(readme), "$ stplan diff plan.bin --trace examples/llama7b-pp4-VR/llama7b-pp4-VR.pickle.gz\n")
	diff, _, found := strings.Cut(diff, consoleClose)
	if !found {
		t.Fatal("README.md: expected what diff prints of the example")
	}
	t.Chdir(t.TempDir())
	run := func(arguments ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := execute(arguments, nil, &out, &errs); code != exitOK {
			t.Fatalf("stplan %s: exit code %d: %s", strings.Join(arguments, " "), code, errs.String())
		}
		return out.String()
	}
	got := run("example")
	var want strings.Builder
	for _, line := range strings.Split(got, "\n") {
		if command, ok := strings.CutPrefix(line, "$ stplan "); ok {
			want.WriteString(line + "\n" + run(strings.Fields(command)...))
		}
	}
	if got != want.String() || strings.Count(got, "$ stplan ") != 3 {
		t.Errorf("example printed\n%s\nand its commands\n%s", got, want.String())
	}
	if !strings.HasSuffix(got, diff) {
		t.Errorf("example ended with\n%s\nand the README with\n%s", got, diff)
	}
	written, err := filepath.Glob("*")
	if err != nil || strings.Join(written, " ") != examplePlan+" "+examples.Name {
		t.Errorf("example wrote %v (%v), expected %s and %s", written, err, examplePlan, examples.Name)
	}
	if recording, err := os.ReadFile(examples.Name); err != nil || !bytes.Equal(recording, examples.Recording) {
		t.Errorf("the recording: %v, %d bytes, expected the %d of the example", err, len(recording), len(examples.Recording))
	}
}
