package peak

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/stplan/stplan/internal/callstack"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// Phase is a stretch of a program: what came before its first iteration, or an
// iteration, and the part of it.
type Phase struct {
	// Iteration is counted from 1. 0 is the start-up, and Before what lived before
	// recording began.
	Iteration int
	Part      callstack.Part
}

// Before is the iteration of what lived before recording began.
const Before = -1

// rangeOf is a stretch of time, [from, to).
type rangeOf struct {
	from, to trace.Time
	open     bool // the recording ends in it
}

func (r rangeOf) has(t trace.Time) bool { return t >= r.from && t < r.to }

// phases knows what a device's program did at every event.
type phases struct {
	r      *Recording
	starts []trace.Time // of iterations; the last is where the last whole one ends
	steps  []rangeOf    // optimizer steps, by annotation, in order
	zeros  []rangeOf    // zero_grad, by annotation, in order
	// training is the first event of the first iteration proper: what came before
	// built the model. It is -1 if nothing tells.
	training trace.Time
	// byStack says that parts are read from Python stacks.
	byStack bool
}

const (
	stepPrefix = "Optimizer.step#"
	zeroPrefix = "Optimizer.zero_grad#"
)

func newPhases(r *Recording) *phases {
	p := &phases{r: r, starts: r.Iterations.Starts, byStack: r.frames.Python}
	p.steps = p.ranges(stepPrefix)
	p.zeros = p.ranges(zeroPrefix)
	p.training = p.begin()
	return p
}

// ranges are the outermost ranges of annotations whose names begin with prefix.
func (p *phases) ranges(prefix string) []rangeOf {
	var out []rangeOf
	depth := 0
	var from trace.Time
	for _, a := range p.r.Device.Annotations {
		if !strings.HasPrefix(a.Name, prefix) {
			continue
		}
		switch {
		case !a.End:
			if depth == 0 {
				from = a.At
			}
			depth++
		case depth > 0:
			if depth--; depth == 0 {
				out = append(out, rangeOf{from: from, to: a.At, open: p.r.after(a.At)})
			}
		default: // it began before the recording
			out = append(out, rangeOf{to: a.At})
		}
	}
	if depth > 0 {
		out = append(out, rangeOf{from: from, to: p.r.Timeline.Events, open: true})
	}
	return out
}

// begin is where the first iteration proper begins: at the first allocation in a
// module's forward, if stacks tell; else so far before the first optimizer step that the
// sizes from there on are those of the second iteration, or that as many follow.
func (p *phases) begin() trace.Time {
	buffers := p.r.Timeline.Buffers
	if p.byStack {
		for i := range buffers {
			v := p.r.frames.View(p.r.stackOf(i))
			if v.Called && v.Roles&callstack.RoleBuild == 0 && !buffers[i].Initial {
				return buffers[i].Start
			}
		}
		return -1
	}
	if len(p.starts) < 3 {
		return -1
	}
	first, second := p.passing(p.starts[0], p.starts[1]), p.passing(p.starts[1], p.starts[2])
	n := commonEnd(buffers, first, second)
	if n < len(second)/leastCommon {
		n = len(second) // sizes vary
	}
	if n == 0 || n > len(first) {
		return -1
	}
	return buffers[first[len(first)-n]].Start
}

// leastCommon is the divisor of an iteration's allocations that have to have the sizes
// of those of the first iteration, counted from its end, to show where it begins. With
// batches of varying length only a few have.
const leastCommon = 8

// commonEnd is the number of buffers at the ends of two lists that have the same sizes.
func commonEnd(buffers []lifespan.Buffer, a, b []int) int {
	n := 0
	for n < min(len(a), len(b)) && buffers[a[len(a)-1-n]].Requested == buffers[b[len(b)-1-n]].Requested {
		n++
	}
	return n
}

// passing are the buffers allocated in [from, to) before its last optimizer step, none
// of a step's own and none that lives on through the next iterations, as parameters do.
func (p *phases) passing(from, to trace.Time) []int {
	buffers := p.r.Timeline.Buffers
	if i := sort.Search(len(p.steps), func(i int) bool { return p.steps[i].from >= to }); i > 0 && p.steps[i-1].from > from {
		to = p.steps[i-1].from
	}
	var out []int
	for i := sort.Search(len(buffers), func(i int) bool { return buffers[i].Start >= from }); i < len(buffers) && buffers[i].Start < to; i++ {
		b := &buffers[i]
		if !b.Initial && !p.r.CutOff(b) && p.boundaries(b.Start, b.RequestedEnd) < 2 && p.stepAt(b.Start) == nil {
			out = append(out, i)
		}
	}
	return out
}

// stepAt is the optimizer step that t is in, nil if it is in none.
func (p *phases) stepAt(t trace.Time) *rangeOf { return within(p.steps, t) }

func within(ranges []rangeOf, t trace.Time) *rangeOf {
	i := sort.Search(len(ranges), func(i int) bool { return ranges[i].to > t })
	if i < len(ranges) && ranges[i].has(t) {
		return &ranges[i]
	}
	return nil
}

// nextStep is the first optimizer step that begins at t or later, nil if none does.
func (p *phases) nextStep(t trace.Time) *rangeOf {
	i := sort.Search(len(p.steps), func(i int) bool { return p.steps[i].from >= t })
	if i == len(p.steps) {
		return nil
	}
	return &p.steps[i]
}

// iteration is the number of the iteration at t, from 1; 0 is the start-up. What
// follows the last whole iteration is one more.
func (p *phases) iteration(t trace.Time) int {
	if p.training >= 0 && t < p.training {
		return 0
	}
	if len(p.starts) == 0 {
		return 1
	}
	i, found := slices.BinarySearch(p.starts, t)
	if found {
		i++
	}
	return i
}

// boundaries is the number of iterations that ended in (from, to].
func (p *phases) boundaries(from, to trace.Time) int {
	if len(p.starts) == 0 {
		return 0
	}
	ends := p.starts[1:]
	past := func(t trace.Time) int {
		return sort.Search(len(ends), func(i int) bool { return ends[i] > t })
	}
	return past(to) - past(from)
}

// of is the phase in which buffer i was allocated.
func (p *phases) of(i int) Phase {
	b := &p.r.Timeline.Buffers[i]
	if b.Initial {
		return Phase{Iteration: Before}
	}
	ph := Phase{Iteration: p.iteration(b.Start), Part: p.part(b.Start, p.r.Device.Events[b.Start].Stack)}
	if ph.Iteration == 0 {
		ph.Part = callstack.PartUnknown // forward and backward begin with the first iteration
	}
	return ph
}

// part is the part of an iteration in which an event with this stack lies.
func (p *phases) part(t trace.Time, stack int32) callstack.Part {
	if p.stepAt(t) != nil {
		return callstack.PartStep
	}
	return p.r.frames.Part(stack)
}

// at is the phase at an instant, and the stack: those of the latest request up to it.
func (p *phases) at(t trace.Time) (Phase, int32) {
	ph := Phase{Iteration: p.iteration(t)}
	for i := t; i >= 0; i-- {
		e := &p.r.Device.Events[i]
		if e.Action == trace.ActionAlloc || e.Action == trace.ActionOOM {
			ph.Part = p.part(i, e.Stack)
			return ph, e.Stack
		}
	}
	return ph, trace.None
}

// PhaseAt is what the program did at an event.
func (r *Recording) PhaseAt(t trace.Time) Phase {
	ph, _ := r.phases.at(t)
	return ph
}

// Title names a phase for people. whole is the number of whole iterations.
func (ph Phase) Title(whole int) string {
	var s string
	switch {
	case ph.Iteration == Before:
		return "before recording began"
	case ph.Iteration == 0:
		return "start-up"
	case ph.Iteration > whole:
		s = fmt.Sprintf("iteration %d (unfinished)", ph.Iteration)
	default:
		s = fmt.Sprintf("iteration %d", ph.Iteration)
	}
	if ph.Part != callstack.PartUnknown {
		s += ", " + ph.Part.String()
	}
	return s
}
