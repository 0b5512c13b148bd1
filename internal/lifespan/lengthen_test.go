package lifespan

import (
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// lengthened lengthens a job's recording by n iterations.
func lengthened(t *testing.T, j job, n int, seed uint64) (before, after *Timeline, it Iterations, d *trace.Device) {
	t.Helper()
	recorded := j.record(1).d
	before = build(t, recorded)
	it, err := FindIterations(&trace.Stacks{}, recorded, before, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err = Lengthen(before, it, n, seed)
	if err != nil {
		t.Fatal(err)
	}
	return before, build(t, d), it, d
}

// sizes are the requested sizes of buffers, in order.
func sizes(buffers []Buffer) []trace.Bytes {
	var out []trace.Bytes
	for i := range buffers {
		out = append(out, buffers[i].Requested)
	}
	return out
}

// TestLengthenRepeatsWhatIsPeriodic lengthens a job with equal steps: every further
// step is that step, and the peak stays the same.
func TestLengthenRepeatsWhatIsPeriodic(t *testing.T) {
	const n = 7
	for _, j := range []job{{layers: 4, micro: 2, steps: 6}, {layers: 3, micro: 1, steps: 7, late: 5}, {layers: 3, micro: 1, steps: 7, prefetched: 2}} {
		before, after, it, _ := lengthened(t, j, n, 3)
		from := before.bufferAt(it.Starts[it.Count-1])
		step := sizes(before.Buffers[from:before.bufferAt(it.Starts[it.Count])])
		if !slices.Equal(sizes(after.Buffers[:from]), sizes(before.Buffers[:from])) {
			t.Errorf("%+v: what was recorded changed", j)
		}
		got := sizes(after.Buffers[from:])
		if len(got) != n*len(step) {
			t.Fatalf("%+v: %d allocations in %d steps, expected %d in each", j, len(got), n, len(step))
		}
		for i := range n {
			if s := got[i*len(step) : (i+1)*len(step)]; !slices.Equal(s, step) {
				t.Errorf("%+v: step %d allocates %d, expected %d", j, i, s, step)
			}
		}
		if after.PeakAllocated.Bytes != before.PeakAllocated.Bytes {
			t.Errorf("%+v: peak of %d B, expected %d", j, after.PeakAllocated.Bytes, before.PeakAllocated.Bytes)
		}
	}
}

// TestLengthenDrawsFromSteadyIterations lengthens a job with steps of many sizes: each
// further step is a recorded one, another seed draws others, and no memory piles up.
func TestLengthenDrawsFromSteadyIterations(t *testing.T) {
	const n = 30
	j := job{layers: 3, micro: 2, steps: 8, variableSizes: true}
	before, after, it, d := lengthened(t, j, n, 1)
	_, _, _, again := lengthened(t, j, n, 1)
	_, _, _, other := lengthened(t, j, n, 2)
	if !slices.Equal(d.Events, again.Events) {
		t.Error("the same seed gives other events")
	}
	if slices.Equal(d.Events, other.Events) {
		t.Error("another seed gives the same events")
	}
	if after.PeakAllocated.Bytes > before.PeakAllocated.Bytes*5/4 {
		t.Errorf("peak of %d B, recorded %d", after.PeakAllocated.Bytes, before.PeakAllocated.Bytes)
	}
	rest := sizes(after.Buffers[before.bufferAt(it.Starts[it.Count-1]):])
	found := map[int]bool{}
	for range n {
		which := -1
		for i := slices.Index(it.Starts, it.SteadyStart); i < it.Count-1 && which < 0; i++ {
			s := sizes(before.Buffers[before.bufferAt(it.Starts[i]):before.bufferAt(it.Starts[i+1])])
			if len(rest) >= len(s) && slices.Equal(rest[:len(s)], s) {
				which, rest = i, rest[len(s):]
			}
		}
		if which < 0 {
			t.Fatal("a step that was not recorded")
		}
		found[which] = true
	}
	if len(rest) > 0 || len(found) < 2 {
		t.Errorf("%d allocations too many, %d kinds of step", len(rest), len(found))
	}
}

func TestLengthenNeedsSteadyIterations(t *testing.T) {
	d := job{layers: 2, micro: 1, steps: 2}.record(1).d
	_, _, err := Lengthen(build(t, d), Iterations{Starts: []trace.Time{0, 9}, Count: 1, SteadyStart: 0, SteadyCount: 1}, 3, 1)
	if err == nil || err.Error() != "device 0: 1 steady iterations, expected two or more" {
		t.Errorf("error %v", err)
	}
}
