package compile

import (
	"math/bits"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// joinedDevice is a device of several recordings that were joined.
type joinedDevice struct {
	lifespan.Joined
	names    []string    // of the recordings
	reserved trace.Bytes // the most that any of them held
}

// leastShared is the share of the allocations of a recording's steady iterations that have
// to be in slots that another recording has as well. Runs of one program share nearly all,
// and four fifths if data decides what experts allocate. With less the plan would be two
// plans in one, each in the way of the other.
const leastShared = 1. / 2

// until is the device up to an event, without the iteration that lies there.
func (j *joinedDevice) until(end trace.Time) *joinedDevice {
	if j == nil {
		return nil
	}
	out := *j
	it := &out.Iterations
	for it.Count > 0 && it.Starts[it.Count] > end {
		it.Starts = it.Starts[:it.Count]
		it.Count, it.SteadyCount = it.Count-1, it.SteadyCount-1
	}
	return &out
}

// sharedSlots is, for each recording, the share of the allocations of its passes that are in
// slots that a pass of another recording has. begins are where their passes begin.
func sharedSlots(per *lifespan.Periodic, begins []trace.Time) []float64 {
	of := func(pass *lifespan.Pass) int {
		k := 0
		for k+1 < len(begins) && begins[k+1] <= pass.First {
			k++
		}
		return k
	}
	has := map[int]map[int][]uint64{} // by recording and body: the slots that its passes have
	for i := range per.Passes {
		pass := &per.Passes[i]
		k := of(pass)
		if has[k] == nil {
			has[k] = map[int][]uint64{}
		}
		if has[k][pass.Body] == nil {
			has[k][pass.Body] = make([]uint64, len(pass.Present))
		}
		for w, bits := range pass.Present {
			has[k][pass.Body][w] |= bits
		}
	}
	all, shared := make([]int, len(begins)), make([]int, len(begins))
	for i := range per.Passes {
		pass := &per.Passes[i]
		k := of(pass)
		for w, word := range pass.Present {
			var others uint64
			for r, bodies := range has {
				if r != k && bodies[pass.Body] != nil {
					others |= bodies[pass.Body][w]
				}
			}
			all[k] += bits.OnesCount64(word)
			shared[k] += bits.OnesCount64(word & others)
		}
	}
	out := make([]float64, len(begins))
	for k := range out {
		if out[k] = 1; all[k] > 0 {
			out[k] = float64(shared[k]) / float64(all[k])
		}
	}
	return out
}
