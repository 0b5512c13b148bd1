package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// TestPlansThatAreOffered: how their programs were called lies beside them, unless a plan does not pay or nobody could
// be called alike.
func TestPlansThatAreOffered(t *testing.T) {
	a := newApp(t)
	folder := t.TempDir()
	digest := strings.Repeat("0f", 8)
	long := make([]string, mostCall/len(digest))
	for i := range long {
		long[i] = digest
	}
	for _, c := range []struct {
		name   string
		advice planfile.Advice
		call   []string
		want   string // "" for no file
		fails  bool
	}{
		{"pays", planfile.AdviceNone, []string{digest, digest}, "stplan-call 1\n" + digest + "\n" + digest + "\n", false},
		{"does not pay", planfile.AdvicePool, []string{digest, digest}, "", false},
		{"of no script", planfile.AdviceNone, nil, "", false},
		{"of very many arguments", planfile.AdviceNone, long, "", false},
		{"of what is no digest", planfile.AdviceNone, []string{digest, "../" + digest[3:]}, "", true},
		{"of two in one", planfile.AdviceNone, []string{digest + "\n" + digest}, "", true},
	} {
		plan := filepath.Join(folder, strings.ReplaceAll(c.name, " ", "-")+".bin")
		writeSmallPlan(t, plan, "test", c.advice)
		if !c.fails { // what was said of the plan before
			if err := os.WriteFile(callOf(plan), []byte("before"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.offerPlan(plan, c.call); (err != nil) != c.fails {
			t.Errorf("a plan that %s: %v", c.name, err)
		}
		got, err := os.ReadFile(callOf(plan))
		if string(got) != c.want || (err != nil) != (c.want == "") || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a plan that %s: found %.80q (%v), expected %q", c.name, got, err, c.want)
		}
	}
	if err := a.offerPlan(filepath.Join(folder, "none.bin"), []string{digest, digest}); err == nil {
		t.Error("no plan: expected an error")
	}
}
