package baseline_test

import (
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/trace"
)

// TestWithin limits the memory of recorded programs step by step. With what an allocator
// takes it fits and gives nothing back, and with less than the program needs none fits. In
// between a model that knows a limit does what it does on a card of that size, and one that
// does not stops at the request that takes it beyond.
func TestWithin(t *testing.T) {
	for _, path := range []string{"default.pickle.gz", "expandable.pickle.gz"} {
		tr, err := trace.ReadFile(filepath.Join("testdata", path), trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := baseline.RecordedConfig(tr.Settings)
		if err != nil {
			t.Fatal(err)
		}
		p, err := baseline.ReadProgram(&tr.Devices[0], recorded)
		if err != nil {
			t.Fatal(err)
		}
		least := baseline.FromRecording(&tr.Devices[0]).PeakActive
		for _, a := range append(baseline.Allocators(recorded), perfectAllocator(1<<40)) {
			whole, err := baseline.Simulate(p, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, usable := range []trace.Bytes{0, least - 1, least, (least + whole.PeakReserved) / 2, whole.PeakReserved - 1, whole.PeakReserved} {
				w, err := baseline.SimulateWithin(p, a, usable, 1<<40, nil)
				if err != nil || w.PeakReserved != whole.PeakReserved {
					t.Fatalf("%s: %s: %+v, %v, expected %d B without a limit", path, a.Title, w, err, whole.PeakReserved)
				}
				switch {
				case w.Fits() && (usable < least || w.Limited.PeakReserved > usable):
					t.Errorf("%s: %s: fits into %d B: %+v", path, a.Title, usable, w.Limited)
				case !w.Fits() && usable >= whole.PeakReserved:
					t.Errorf("%s: %s: does not fit into the %d B that it takes", path, a.Title, usable)
				case a.Within == nil && w.Fits() != (usable >= whole.PeakReserved):
					t.Errorf("%s: %s: knows a limit of %d B: %+v", path, a.Title, usable, w.Limited)
				}
			}
		}
	}
}
