package baseline_test

import (
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/trace"
)

// perfect is an allocator that reserves exactly what is in use, up to the size
// of the card. It is written outside the package, as an allocator that needs the
// C runtime would be.
type perfect struct {
	card  trace.Bytes
	sizes map[int32]trace.Bytes
	stats baseline.Stats
}

func perfectAllocator(card trace.Bytes) baseline.Allocator {
	return baseline.Allocator{Key: "perfect", Title: "perfect", New: func(*baseline.Program) (baseline.Model, error) {
		return &perfect{card: card, sizes: make(map[int32]trace.Bytes)}, nil
	}}
}

func (a *perfect) Alloc(buffer int32, r baseline.Request) bool {
	size := (max(r.Size, 1) + 511) / 512 * 512
	if a.stats.Reserved+size > a.card {
		return false
	}
	a.sizes[buffer] = size
	a.stats.Reserve(size)
	a.stats.Allocated += size
	a.stats.Active += size
	return true
}

func (a *perfect) Free(buffer int32) { a.stats.Allocated -= a.sizes[buffer] }

func (a *perfect) Complete(buffer int32) {
	a.stats.Active -= a.sizes[buffer]
	a.stats.Reserve(-a.sizes[buffer])
	delete(a.sizes, buffer)
}

func (a *perfect) Refuse(int32, baseline.Request) {}
func (a *perfect) EmptyCache([]trace.PoolID)      {}
func (a *perfect) Stats() baseline.Stats          { return a.stats }

// TestThirdAllocator adds an allocator to the list that diff works through. It
// reserves the recording's peak active bytes, and no allocator can reserve less.
func TestThirdAllocator(t *testing.T) {
	for _, path := range []string{"default.pickle.gz", "expandable.pickle.gz", "corners/mid.pickle.gz", "corners/oom.pickle.gz"} {
		tr, err := trace.ReadFile(filepath.Join("testdata", path), trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &tr.Devices[0]
		recorded, err := baseline.RecordedConfig(tr.Settings)
		if err != nil {
			t.Fatal(err)
		}
		p, err := baseline.ReadProgram(d, recorded)
		if err != nil {
			t.Fatal(err)
		}
		least := baseline.FromRecording(d).PeakActive
		for _, a := range append(baseline.Allocators(recorded), perfectAllocator(1<<40)) {
			got, err := baseline.Simulate(p, a, nil)
			if err != nil || got.OOM != nil || got.PeakReserved < least || a.Key == "perfect" && got.PeakReserved != least {
				t.Errorf("%s: %s: %+v, %v, expected %d B", path, a.Title, got, err, least)
			}
		}
		got, err := baseline.Simulate(p, perfectAllocator(least-1), nil)
		if err != nil || got.OOM == nil {
			t.Errorf("%s: a card of one byte less than the peak was large enough: %+v, %v", path, got, err)
		}
	}
}
