package stalloc

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// Trace is what STAlloc's tracing library writes down of a recording: its first iterations,
// as if the job had ended then.
type Trace struct {
	tl *lifespan.Timeline
	// loops are when the traced iterations begin, and when the last of them ends. What comes
	// before the first is the head, in STAlloc's words, and what comes after the last the tail.
	loops []trace.Time
	hooks *hooks // nil without hooks
}

// NewTrace is the trace, without hooks, of the first iterations of a recording. The recording
// needs to have as many whole ones; why says that it has not.
func NewTrace(tl *lifespan.Timeline, it lifespan.Iterations, iterations int) (t *Trace, why string) {
	if it.Count < iterations {
		return nil, fmt.Sprintf("%d iterations, expected at least %d", it.Count, iterations)
	}
	return &Trace{tl: tl, loops: loops(tl, it, iterations)}, ""
}

// NewHookedTrace is a trace with hooks. Its second iteration, which is the one that STAlloc
// repeats, is the first whose requests are known: what is before it counts as the first.
func NewHookedTrace(tl *lifespan.Timeline, it lifespan.Iterations, iterations int) (t *Trace, why string) {
	h, why := findHooks(tl, it)
	if h == nil {
		return nil, why
	}
	if t, why = NewTrace(tl, it, it.Count); why != "" {
		return nil, why
	}
	second := 1
	for second < it.Count && t.loops[second] < h.first {
		second++
	}
	if known := it.Count - second + 1; known < iterations {
		return nil, fmt.Sprintf("%d iterations whose requests are known, expected at least %d", known, iterations)
	}
	t.loops = append(t.loops[:1], t.loops[second:second+iterations]...)
	t.hooks = h
	return t, ""
}

// Hooked says of a buffer of the timeline that it is asked for within a module with a hook.
func (t *Trace) Hooked(buffer int) bool {
	return t.hooks != nil && t.hooks.roles[buffer] != roleStatic
}

// Iterations of a Trace that have no number.
const (
	head = -1
	tail = math.MaxInt
)

// iteration is the one that a time is in.
func (t *Trace) iteration(at trace.Time) int {
	switch n, begins := slices.BinarySearch(t.loops, at); {
	case at >= t.loops[len(t.loops)-1]:
		return tail
	case begins:
		return n
	default:
		return n - 1
	}
}

// logged is one line of a Trace: an allocation or a free.
type logged struct {
	at     trace.Time
	buffer int
	free   bool
}

// lines are the allocations and frees in order. What lives at the end is freed then, as when
// a process ends.
func (t *Trace) lines() (all []logged) {
	end := t.loops[len(t.loops)-1]
	for i := range t.tl.Buffers {
		b := &t.tl.Buffers[i]
		if b.Start >= end {
			break
		}
		all = append(all, logged{b.Start, i, false})
		if freed := b.RequestedEnd; !b.Resident && freed < end {
			all = append(all, logged{freed, i, true})
		} else {
			all = append(all, logged{end, i, true})
		}
	}
	slices.SortStableFunc(all, func(a, b logged) int { return int(a.at - b.at) })
	return all
}

// requested is what a request asks for: an empty one gets a byte.
func requested(b *lifespan.Buffer) trace.Bytes { return max(b.Requested, 1) }

// alike is how many requests in a row have to have the sizes of those of another iteration,
// to be taken for the same part of the loop.
const alike = 32

// loops is when STAlloc's iterations begin, and the end of the last that is traced. Its hook
// is on the training step as a whole. If optimizer steps are marked, a training step begins
// with the first request behind the mark, since zero_grad frees the gradients between the
// two. Iterations that were found by repetition may begin anywhere, such as at the
// optimizer. Those loops begin with the first requests of the second recorded iteration that
// the first one has too.
func loops(tl *lifespan.Timeline, it lifespan.Iterations, iterations int) []trace.Time {
	planned := make([][]*lifespan.Buffer, it.Count+1) // by recorded iteration, and the tail
	k := 0
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		for k < it.Count && b.Start >= it.Starts[k+1] {
			k++
		}
		if !b.Initial && b.Size > slab {
			planned[k] = append(planned[k], b)
		}
	}
	end := it.Starts[1]
	if len(planned[1]) > 0 {
		end = planned[1][0].Start
	}
	from, shift := firstLoop(planned[0], end), 0
	if it.Source == lifespan.SourcePeriodicity {
		if i, n, ok := common(planned[0], planned[1]); ok {
			from, shift = i, n
		}
	}
	all := []trace.Time{it.Starts[0]}
	if from < len(planned[0]) {
		all[0] = planned[0][from].Start
	}
	for k := 1; k <= iterations; k++ {
		at := tl.Events // nothing is asked for behind the last step, but gradients are freed
		switch {
		case shift < len(planned[k]):
			at = planned[k][shift].Start
		case k < it.Count:
			at = it.Starts[k]
		}
		all = append(all, at)
	}
	return all
}

// begins says that the requests of a from i on have the sizes of those of b from j on, for
// alike requests.
func begins(a, b []*lifespan.Buffer, i, j int) bool {
	if i+alike > len(a) || j+alike > len(b) {
		return false
	}
	return slices.EqualFunc(a[i:i+alike], b[j:j+alike], func(x, y *lifespan.Buffer) bool { return x.Requested == y.Requested })
}

// common is where the requests of second from shift on, for the least such shift, are first
// in first.
func common(first, second []*lifespan.Buffer) (i, shift int, ok bool) {
	for shift = range second {
		for i = range first {
			if begins(first, second, i, shift) {
				return i, shift, true
			}
		}
	}
	return 0, 0, false
}

// firstLoop is the request of the first recorded iteration with which its training step
// begins. What the model's set-up asked for a while is gone then, and the step has nothing
// yet. So it is the last of the requests at which the least is live of all that is freed
// again before end, up to where half of the most is live, and from where half of the bytes
// that stay until then are there (the weights).
func firstLoop(first []*lifespan.Buffer, end trace.Time) int {
	var ends []*lifespan.Buffer // of those that are freed
	for _, b := range first {
		if !b.Resident && b.RequestedEnd < end {
			ends = append(ends, b)
		}
	}
	slices.SortFunc(ends, func(a, b *lifespan.Buffer) int { return cmp.Compare(a.RequestedEnd, b.RequestedEnd) })
	live := make([]trace.Bytes, len(first)) // before each request
	stays := make([]trace.Bytes, len(first))
	now, staying, most := trace.Bytes(0), trace.Bytes(0), trace.Bytes(0)
	for i, b := range first {
		for len(ends) > 0 && ends[0].RequestedEnd <= b.Start {
			now -= ends[0].Size
			ends = ends[1:]
		}
		live[i], stays[i] = now, staying
		most = max(most, now)
		switch {
		case b.Resident:
			staying += b.Size
		case b.RequestedEnd < end:
			now += b.Size
		}
	}
	last := slices.IndexFunc(live, func(n trace.Bytes) bool { return 2*n >= most })
	best := -1
	for i := range first {
		if i <= last && 2*stays[i] >= stays[last] && (best < 0 || live[i] <= live[best]) {
			best = i
		}
	}
	return max(best, 0)
}
