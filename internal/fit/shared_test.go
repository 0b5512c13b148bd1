package fit_test

import (
	"os"
	"testing"

	"github.com/stplan/stplan/internal/fit"
)

// sharedJob is the job of a recording in ../shared/traces, beside the clone. Without it the
// test is skipped.
func sharedJob(t *testing.T, name string) *fit.Job {
	t.Helper()
	path := "../../../shared/traces/" + name + ".pickle.gz"
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared recordings: %v", err)
	}
	return readJob(t, path)
}
