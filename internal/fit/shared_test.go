package fit_test

import (
	"os"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/trace"
)

// sharedJob is the job of a recording in ../shared/traces, beside the clone. Without it the
// test is skipped.
func sharedJob(t *testing.T, name string) *fit.Job {
	t.Helper()
	path := "../../../shared/traces/" + name + ".pickle.gz"
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared recordings: %v", err)
	}
	tr, err := trace.ReadFile(path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := baseline.RecordedConfig(tr.Settings)
	if err != nil {
		t.Fatal(err)
	}
	j, err := fit.NewJob(tr, &tr.Devices[0], recorded)
	if err != nil {
		t.Fatal(err)
	}
	return j
}
