package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// TestForgedPlan: a plan that is a whole file but no proof, every buffer at
// offset 0, is caught by verify and gets no comparison from diff.
func TestForgedPlan(t *testing.T) {
	dir := t.TempDir()
	recording := filepath.Join("..", "..", "examples", "resnet50", "resnet50.pickle.gz")
	path := filepath.Join(dir, "plan.bin")
	stplan := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := execute(append([]string{"--quiet"}, args...), strings.NewReader(""), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	if code, _, stderr := stplan("compile", recording, "-o", path, "--mode", "recorded"); code != exitOK {
		t.Fatalf("compile: exit code %d: %s", code, stderr)
	}
	forge(t, path)
	for _, args := range [][]string{
		{"verify", path},
		{"diff", path, "--trace", recording, "--fail-under", "90"},
	} {
		code, stdout, stderr := stplan(args...)
		if code != exitNo || stdout != "" || !strings.Contains(stderr, "does not verify: ") {
			t.Errorf("%s: exit code %d, want %d; stdout %q, stderr %q", args[0], code, exitNo, stdout, stderr)
		}
	}
}

func forge(t *testing.T, path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := planfile.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	d := &p.Devices[0]
	d.ArenaBytes, d.Waits = 0, nil
	for i := range d.Slots {
		d.Slots[i].Offset = 0
		d.ArenaBytes = max(d.ArenaBytes, d.Slots[i].Size)
	}
	d.Certificate.LowerBound, d.Certificate.Gap = d.ArenaBytes, 0
	if data, err = planfile.Encode(p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}
