package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadReports(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("b.json", `{"state": "written", "pid": 2, "trace": "b.pickle.gz"}`)
	write("a.json", `{"state": "recording", "pid": 1, "trace": "a.pickle.gz"}`)
	write("c.json", "")        // claimed, and then killed
	write("d.json.tmp", `{"s`) // killed while it wrote
	all, err := readReports[recordReport](dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].PID != 1 || all[1].PID != 2 {
		t.Errorf("found %+v, want the reports of process 1 and 2", all)
	}
	write("e.json", `{"s`)
	if _, err := readReports[recordReport](dir); err == nil || !strings.Contains(err.Error(), "e.json") {
		t.Errorf("error %v, want one that names e.json", err)
	}
}

// A name that a shell would take apart comes back whole from a shell.
func TestShellQuote(t *testing.T) {
	for _, word := range []string{"", "plain/path-1.gz", "two words", "it's", "$HOME", "a;b", "~", "*", "\\", "ü"} {
		out, err := exec.Command("sh", "-c", "printf %s "+shellQuote(word)).Output()
		if err != nil {
			t.Skipf("no shell: %v", err)
		}
		if string(out) != word {
			t.Errorf("%q quoted as %s comes back as %q", word, shellQuote(word), out)
		}
	}
}
