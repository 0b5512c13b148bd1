package lifespan

import (
	"regexp"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/callstack"
	"github.com/stplan/stplan/internal/trace"
)

// Iterations are the repetitions of a program's outermost loop: in training,
// optimizer steps.
type Iterations struct {
	// Starts holds Count+1 times: iteration i is [Starts[i], Starts[i+1]). Starts[0]
	// is 0, so the first iteration includes what came before the loop. The tail, from
	// Starts[Count] on, belongs to no iteration: it is what followed the last one, or
	// one that the recording cuts off. Starts is empty if Count is 0.
	Starts []trace.Time
	// Count is the number of whole iterations, 0 if none were found.
	Count int
	// SteadyStart is the time at which the first steady iteration begins: from it on
	// iterations look alike and none leaves memory behind. SteadyCount is the number
	// of iterations from there on. Both are 0 if Count is 0 or if the iterations
	// never become alike.
	SteadyStart trace.Time
	SteadyCount int
	// Enough, if set, is asked before iterations that have been aligned are aligned in one more way, and says whether there is no
	// time for that. It may be asked by several goroutines, one at a time.
	Enough func() bool
	// Source says how they were found: "annotation NAME", with several names
	// joined by " + "; "marker REGEXP"; "periodicity"; or "none".
	Source string
}

// SourcePeriodicity is the source of iterations that were found by repetition alone.
const SourcePeriodicity = "periodicity"

// FindIterations looks for iterations in three places and takes the first that has
// any: the annotations that marker matches, the annotations that torch.optim leaves,
// and the sequence of allocations itself. tl is the timeline of d, and stacks are those of
// its events.
//
// If marker is not nil, every annotation with a name that it matches begins an
// iteration. If it matches none, that is an error, which lists the names in the
// recording. Without a marker it is no error if nothing is found.
func FindIterations(stacks *trace.Stacks, d *trace.Device, tl *Timeline, marker *regexp.Regexp) (Iterations, error) {
	s := newSequence(tl)
	it, err := findIterations(stacks, d, tl, s, marker)
	if err != nil || it.Count == 0 {
		return Iterations{Source: "none"}, err
	}
	first := firstSteady(tl, s, it.Starts)
	if first < it.Count {
		it.SteadyStart, it.SteadyCount = it.Starts[first], it.Count-first
	}
	return it, nil
}

func findIterations(stacks *trace.Stacks, d *trace.Device, tl *Timeline, s *sequence, marker *regexp.Regexp) (Iterations, error) {
	if marker != nil {
		return fromMarker(d, tl.Events, marker)
	}
	if it := fromOptimizer(d, tl); it.Count > 0 {
		return it, nil
	}
	it := fromPeriod(tl, s)
	if it.Count > 0 && areLayers(callstack.Read(stacks), d, tl, it) {
		return Iterations{}, nil
	}
	return it, nil
}

// areLayers says whether repetitions are the layers of a model and not its iterations: a recording
// that has forward and backward, but most of whose repetitions have only one of the two. So it is
// if a recording ends in its first iteration, as by an out-of-memory: then nothing repeats but
// layers. An evaluation between iterations has no backward, and an inference has none at all. A
// recording without Python stacks does not tell.
func areLayers(stacks *callstack.Reader, d *trace.Device, tl *Timeline, it Iterations) bool {
	if !stacks.Python {
		return false
	}
	forward, backward := make([]bool, it.Count+1), make([]bool, it.Count+1) // the last is the tail
	at := 0
	for _, b := range tl.Buffers[tl.initial():] {
		for at < it.Count && b.Start >= it.Starts[at+1] {
			at++
		}
		switch stacks.Part(d.Events[b.Start].Stack) {
		case callstack.PartForward:
			forward[at] = true
		case callstack.PartBackward, callstack.PartRecompute:
			backward[at] = true
		}
	}
	whole := 0
	for i := range it.Count {
		if forward[i] && backward[i] {
			whole++
		}
	}
	return slices.Contains(forward, true) && slices.Contains(backward, true) && 2*whole < it.Count
}

// newIterations makes Iterations of their ends, cuts, which are in order. Iterations
// without events are dropped.
func newIterations(cuts []trace.Time, source string) Iterations {
	starts := slices.Compact(append([]trace.Time{0}, cuts...))
	return Iterations{Starts: starts, Count: len(starts) - 1, Source: source}
}

// bufferAt is the index of the first buffer that starts at t or later, or the number of
// buffers if there is none.
func (tl *Timeline) bufferAt(t trace.Time) int {
	return sort.Search(len(tl.Buffers), func(i int) bool { return tl.Buffers[i].Start >= t })
}
