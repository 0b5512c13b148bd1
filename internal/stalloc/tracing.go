package stalloc

import (
	"bufio"
	"fmt"
	"io"
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

// Write writes the trace in STAlloc's form. Each buffer has an address of its own, and each
// run of requests with a hook is one layer of experts.
func (t *Trace) Write(to io.Writer) error {
	w := bufio.NewWriter(to)
	next, layer := 0, false
	for _, l := range t.lines() {
		for ; next < len(t.loops) && l.at >= t.loops[next]; next++ {
			if next == len(t.loops)-1 {
				fmt.Fprintln(w, "Iteration Index : end")
			} else {
				fmt.Fprintf(w, "Iteration Index : %d\n", next)
			}
		}
		if hooked := t.Hooked(l.buffer); !l.free && hooked != layer {
			layer = hooked
			fmt.Fprintf(w, "layers.0.mlp->MoELayer Layer : F-%s\n", map[bool]string{true: "start", false: "end"}[layer])
		}
		kind := 1
		if l.free {
			kind = 0
		}
		b := &t.tl.Buffers[l.buffer]
		fmt.Fprintf(w, "%d %#x %d %d\n", kind, 512*(l.buffer+1), requested(b), b.Stream)
	}
	return w.Flush()
}

// requested is what a request asks for: an empty one gets a byte.
func requested(b *lifespan.Buffer) trace.Bytes { return max(b.Requested, 1) }

// alike is how many requests in a row have to have the sizes of those of another iteration,
// to be taken for the same part of the loop.
const alike = 32

// loops is when STAlloc's iterations begin, and the end of the last that is traced. Its hook
// is on the training step as a whole. Recorded iterations begin there too if optimizer steps
// are marked, but the first of them with what comes before the loop: it ends where the first
// requests of the second one are. Iterations that were found by repetition may begin
// anywhere, such as at the optimizer, and those loops begin with the first requests of the
// second that the first one has too.
func loops(tl *lifespan.Timeline, it lifespan.Iterations, iterations int) []trace.Time {
	planned := make([][]*lifespan.Buffer, it.Count+1) // by recorded iteration
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
	sizes := func(all []*lifespan.Buffer) (s []trace.Bytes) {
		for _, b := range all {
			s = append(s, b.Requested)
		}
		return s
	}
	first, second := sizes(planned[0]), sizes(planned[1])
	last := len(second) - alike
	if it.Source != lifespan.SourcePeriodicity {
		last = min(last, 0)
	}
	for shift := 0; shift <= last; shift++ {
		for i := 0; i+alike <= len(first); i++ {
			if slices.Equal(first[i:i+alike], second[shift:shift+alike]) {
				all := []trace.Time{planned[0][i].Start}
				for k := 1; k <= iterations; k++ {
					at := it.Starts[k]
					if shift < len(planned[k]) {
						at = planned[k][shift].Start
					}
					all = append(all, at)
				}
				return all
			}
		}
	}
	// Sizes vary. The first has as many requests of the loop as the second, at most.
	begin := it.Starts[0]
	if n := len(first) - len(second); n > 0 {
		begin = planned[0][n].Start
	}
	return append([]trace.Time{begin}, it.Starts[1:iterations+1]...)
}
