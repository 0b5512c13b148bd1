package lifespan

import (
	"regexp"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// Iterations are the repetitions of a program's outermost loop: in training,
// optimizer steps.
type Iterations struct {
	// Starts holds Count+1 times: iteration i is [Starts[i], Starts[i+1]).
	// Starts[0] is 0, so the first iteration has what came before the loop
	// too. From Starts[Count] on is the tail, which belongs to none: what
	// followed the last iteration, or one that the recording cuts off.
	// Empty where Count is 0.
	Starts []trace.Time
	// Count is the number of whole iterations; 0 where none were found.
	Count int
	// SteadyStart is where the first steady iteration begins: from it on
	// iterations look alike and none leaves memory behind. SteadyCount is how
	// many there are from there on. Both are 0 where Count is, or where the
	// iterations never become alike.
	SteadyStart trace.Time
	SteadyCount int
	// Source says how they were found: "annotation NAME", with several names
	// joined by " + "; "marker REGEXP"; "periodicity"; or "none".
	Source string
}

// FindIterations looks for iterations in the first place that has them: what
// marker matches; the annotations that torch.optim leaves; the sequence of
// allocations itself. tl is the timeline of d.
//
// With a marker, an annotation whose name it matches begins an iteration, and
// one that matches nothing is an error that lists the names there are. Without
// annotations, finding nothing is no error.
func FindIterations(d *trace.Device, tl *Timeline, marker *regexp.Regexp) (Iterations, error) {
	s := newSequence(tl)
	it, err := findIterations(d, tl, s, marker)
	if err != nil || it.Count == 0 {
		return Iterations{Source: "none"}, err
	}
	first := firstSteady(tl, s, it.Starts)
	if first < it.Count {
		it.SteadyStart, it.SteadyCount = it.Starts[first], it.Count-first
	}
	return it, nil
}

func findIterations(d *trace.Device, tl *Timeline, s *sequence, marker *regexp.Regexp) (Iterations, error) {
	if marker != nil {
		return fromMarker(d, tl.Events, marker)
	}
	if it := fromOptimizer(d, tl); it.Count > 0 {
		return it, nil
	}
	return fromPeriod(tl, s), nil
}

// newIterations drops iterations without events. cuts are the ends of the
// iterations, in order.
func newIterations(cuts []trace.Time, source string) Iterations {
	starts := slices.Compact(append([]trace.Time{0}, cuts...))
	return Iterations{Starts: starts, Count: len(starts) - 1, Source: source}
}

// bufferAt is the index of the first buffer that starts at t or later.
func (tl *Timeline) bufferAt(t trace.Time) int {
	return sort.Search(len(tl.Buffers), func(i int) bool { return tl.Buffers[i].Start >= t })
}
