package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
)

// TestAKeptPlanIsNotReplaced: if the plan that was there before is kept, its file stays as it is.
func TestAKeptPlanIsNotReplaced(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.bin")
	writeSmallPlan(t, plan, "before", planfile.AdviceNone)
	before, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	made, err := planfile.Decode(before)
	if err != nil {
		t.Fatal(err)
	}
	made.Producer = "after"
	for _, kept := range []bool{true, false} {
		a := app{outputs: &outputs{}, stderr: io.Discard}
		sum, err := a.writePlan(plan, compile.Options{}, func(compile.Options) (*planfile.Plan, report.Compiled, error) {
			return made, report.Compiled{Kept: kept}, nil
		})
		if err != nil || sum.Plan != plan {
			t.Fatalf("kept %v: plan %q, %v", kept, sum.Plan, err)
		}
		after, err := os.ReadFile(plan)
		if err != nil {
			t.Fatal(err)
		}
		if same := string(after) == string(before); same != kept {
			t.Errorf("kept %v: the file is the same: %v", kept, same)
		}
	}
}
