package peak

import (
	"sort"

	"github.com/stplan/stplan/internal/callstack"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// shortLived is the number of allocations that a buffer has to outlive to count as an
// activation if no stack tells: an operation allocates a handful, a layer dozens.
// docs/peak.md has what other values do.
const shortLived = 32

// alike are buffers that should have the same category: those that the same line
// allocates at the same size.
type alike struct {
	stack int32
	size  trace.Bytes
}

// judge gives every buffer of a device its category.
type judge struct {
	r      *Recording
	phases *phases
	// backward and recompute count the buffers before each index that were allocated
	// in that part, by Python stacks.
	backward, recompute []int32
	// parameters are the requested sizes of what rules about building found.
	parameters map[trace.Bytes]bool
	// renewed says that gradients come and go, so that none is kept.
	renewed bool
	// seen are the buffers of finished iterations.
	seen map[alike]*lives
}

func newJudge(r *Recording) *judge {
	n := len(r.Timeline.Buffers)
	j := &judge{r: r, phases: r.phases, backward: make([]int32, n+1), recompute: make([]int32, n+1),
		parameters: map[trace.Bytes]bool{}, seen: map[alike]*lives{}}
	for i := range r.Timeline.Buffers {
		b := &r.Timeline.Buffers[i]
		j.backward[i+1], j.recompute[i+1] = j.backward[i], j.recompute[i]
		if b.Initial {
			continue
		}
		switch j.phases.part(b.Start, r.stackOf(i)) {
		case callstack.PartBackward:
			j.backward[i+1]++
		case callstack.PartRecompute:
			j.recompute[i+1]++
		}
	}
	for i := range r.Timeline.Buffers {
		if v := j.lasting(i); v != nil && v.Category == Parameters {
			j.parameters[r.Timeline.Buffers[i].Requested] = true
		}
	}
	for i := range r.Timeline.Buffers {
		if c := j.of(i).Category; c == Gradients && !j.kept(i) && !j.open(i) && j.parameters[r.Timeline.Buffers[i].Requested] {
			j.renewed = true
			break
		}
	}
	for i := range r.Timeline.Buffers {
		if !j.open(i) {
			j.remember(i)
		}
	}
	for _, l := range j.seen {
		l.sort()
	}
	return j
}

func (j *judge) remember(i int) {
	b := &j.r.Timeline.Buffers[i]
	if b.Failed {
		return
	}
	key := alike{j.r.stackOf(i), b.Requested}
	if j.seen[key] == nil {
		j.seen[key] = &lives{}
	}
	j.seen[key].add(j.outlived(i), j.of(i).Category)
}

// open says that the recording ends in the iteration that allocated a buffer, so that
// nobody knows when it would have been freed.
func (j *judge) open(i int) bool {
	b := &j.r.Timeline.Buffers[i]
	if !j.r.CutOff(b) || b.Initial {
		return false
	}
	if s := j.phases.stepAt(b.Start); s != nil {
		return s.open
	}
	return j.phases.nextStep(b.Start) == nil && j.crossed(b) == 0 && j.phases.iteration(b.Start) > 0
}

// crossed is the number of iterations that end while the buffer lives.
func (j *judge) crossed(b *lifespan.Buffer) int { return j.phases.boundaries(b.Start, b.RequestedEnd) }

// kept says that a buffer lives through whole iterations, or from the start-up or from
// before the recording to its end.
func (j *judge) kept(i int) bool {
	b := &j.r.Timeline.Buffers[i]
	return j.crossed(b) >= 2 || j.r.CutOff(b) && (b.Initial || j.phases.iteration(b.Start) == 0)
}

// of is the category of buffer i.
func (j *judge) of(i int) Verdict {
	if v := j.lasting(i); v != nil {
		return *v
	}
	b := &j.r.Timeline.Buffers[i]
	switch next := j.phases.nextStep(b.Start); {
	case b.Failed:
		return ruleNothing.verdict()
	case j.open(i):
		return j.unfinished(i)
	case next != nil && b.RequestedEnd > next.from:
		return j.throughStep(i)
	case len(j.phases.steps) == 0 && j.crossed(b) > 0:
		return ruleHeld.verdict()
	case j.phases.byStack:
		return j.byStack(i)
	case j.outlived(i) > shortLived:
		return ruleLong.verdict()
	}
	return ruleShort.verdict()
}

// lasting judges what optimizers make, what is kept, and what the start-up made; nil
// if the buffer is none of these.
func (j *judge) lasting(i int) *Verdict {
	b := &j.r.Timeline.Buffers[i]
	roles := j.r.frames.View(j.r.stackOf(i)).Roles
	is := func(r Rule) *Verdict { v := r.verdict(); return &v }
	if step := j.phases.stepAt(b.Start); !b.Initial && (step != nil || roles&callstack.RoleStep != 0) {
		return is(j.inStep(b, step, roles))
	}
	startUp := !b.Initial && j.phases.iteration(b.Start) == 0
	switch kept := j.kept(i); {
	case kept && roles&callstack.RoleBuild != 0:
		return is(ruleBuilt)
	case kept && startUp:
		return is(ruleStartUp)
	case kept && b.Initial:
		return is(ruleBefore)
	case startUp && b.RequestedEnd <= j.phases.training:
		return is(ruleInStartUp)
	case kept && !j.phases.byStack && j.phases.training < 0 && j.phases.iteration(b.Start) == 1:
		return is(ruleFirstIteration)
	}
	return nil
}

func (j *judge) inStep(b *lifespan.Buffer, step *rangeOf, roles callstack.Role) Rule {
	switch {
	case roles&callstack.RoleState != 0:
		return ruleState
	case step != nil && step.open && j.r.CutOff(b):
		return ruleOpenStep
	case step != nil && b.RequestedEnd > step.to, step == nil && j.crossed(b) > 0:
		return ruleOutlivesStep
	}
	return ruleInStep
}

// throughStep judges a buffer that lives in the optimizer step after it.
func (j *judge) throughStep(i int) Verdict {
	b := &j.r.Timeline.Buffers[i]
	part := j.phases.of(i).Part
	backward := part == callstack.PartBackward || part == callstack.PartUnknown
	first := j.phases.iteration(b.Start) <= 1
	switch {
	case within(j.phases.zeros, b.RequestedEnd) != nil:
		return ruleZeroed.verdict()
	case j.kept(i) && first && backward && !j.renewed && j.parameters[b.Requested]:
		return ruleKeptBackward.verdict()
	case j.kept(i):
		return ruleKept.verdict()
	case part == callstack.PartBackward:
		return ruleBackwardToStep.verdict()
	case part == callstack.PartUnknown && !b.Initial:
		return ruleToStep.verdict()
	}
	return ruleHeld.verdict()
}

// byStack judges a buffer that was allocated and freed between two optimizer steps.
func (j *judge) byStack(i int) Verdict {
	switch j.phases.part(j.r.Timeline.Buffers[i].Start, j.r.stackOf(i)) {
	case callstack.PartBackward:
		return ruleInBackward.verdict()
	case callstack.PartRecompute:
		if j.meets(j.backward, i) {
			return ruleRecomputed.verdict()
		}
		return ruleInRecompute.verdict()
	}
	if j.meets(j.backward, i) || j.meets(j.recompute, i) {
		return ruleIntoBackward.verdict()
	}
	return ruleInForward.verdict()
}

// unfinished judges a buffer of the iteration that the recording ends in.
func (j *judge) unfinished(i int) Verdict {
	b := &j.r.Timeline.Buffers[i]
	stack := j.r.stackOf(i)
	if j.phases.byStack {
		part := j.phases.part(b.Start, stack)
		forward := part == callstack.PartForward || part == callstack.PartOther
		if forward && (j.meets(j.backward, i) || j.meets(j.recompute, i)) {
			return ruleIntoBackward.verdict()
		}
		if c := j.before(i); c != Unknown {
			return Verdict{Category: c, Rule: ruleAlike}
		}
		switch {
		case part != callstack.PartBackward:
			return ruleOpenForward.verdict()
		case j.parameters[b.Requested]:
			return ruleOpenGradient.verdict()
		}
		return ruleOpenBackward.verdict()
	}
	if c := j.before(i); c != Unknown {
		return Verdict{Category: c, Rule: ruleAlike}
	}
	return ruleNothing.verdict()
}

// before is the category that most buffers like buffer i had in finished iterations, of
// those that outlived as many allocations; Unknown if there are none.
func (j *judge) before(i int) Category {
	if l := j.seen[alike{j.r.stackOf(i), j.r.Timeline.Buffers[i].Requested}]; l != nil {
		return l.of(j.outlived(i))
	}
	return Unknown
}

// meets says that a buffer counted by counts was allocated while buffer i lived.
func (j *judge) meets(counts []int32, i int) bool {
	return counts[j.after(i)] > counts[i+1]
}

// outlived is the number of buffers that were allocated while buffer i lived.
func (j *judge) outlived(i int) int { return j.after(i) - i - 1 }

// after is the index of the first buffer that was allocated when buffer i was freed.
func (j *judge) after(i int) int {
	buffers := j.r.Timeline.Buffers
	end := buffers[i].RequestedEnd
	n := sort.Search(len(buffers), func(k int) bool { return buffers[k].Start >= end })
	return max(n, i+1)
}
