package baseline

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// TestResized: a program with the sizes that it has stays as it is, with its calls of
// empty_cache, if its recording has lost all segments. With others they are what is
// reserved for, and the program that it was made of stays as it was.
func TestResized(t *testing.T) {
	for _, path := range []string{"default.pickle.gz", "expandable.pickle.gz"} {
		tr, err := trace.ReadFile(filepath.Join("testdata", path), trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := tr.Devices[0]
		c, err := RecordedConfig(tr.Settings)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ReadProgram(&d, c)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(p.ops, func(o op) bool { return o.kind == opEmptyCache }) {
			t.Fatalf("%s: the recording has no empty_cache, so the test shows nothing", path)
		}
		want, err := Simulate(p, Caching("", "", Native(c)), nil)
		if err != nil {
			t.Fatal(err)
		}
		bare := d
		bare.Events = slices.Clone(d.Events)
		for i := range bare.Events {
			if e := &bare.Events[i]; segmentDelta(e) != 0 {
				*e = trace.Event{Action: trace.ActionOther}
			}
		}
		for range 2 {
			if got, err := Simulate(p.Resized(&bare), Caching("", "", Native(c)), nil); err != nil || got.PeakActive != want.PeakActive || max(got.PeakReserved-want.PeakReserved, want.PeakReserved-got.PeakReserved) > want.PeakReserved/1000 {
				t.Errorf("%s: %+v, %v, expected %+v, or 0.1 %% more or less reserved, since segments lie elsewhere", path, got, err, want)
			}
			large := bare
			large.Events = slices.Clone(bare.Events)
			for i := range large.Events {
				large.Events[i].Size *= 2
			}
			if got, err := Simulate(p.Resized(&large), Caching("", "", Native(c)), nil); err != nil || got.PeakAllocated < 2*want.PeakAllocated*9/10 {
				t.Errorf("%s: twice the sizes: %+v, %v, expected about twice %+v", path, got, err, want)
			}
		}
	}
}
