package lifespan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// Lengthen makes up the recording of a longer run of the same program: its iterations
// without the last one, and then n more, each a copy of a steady iteration drawn with the
// seed.
//
// The last iteration is left out because the recording does not show when its buffers are
// freed. A buffer of a copy that a later iteration frees is freed the same number of
// iterations later and at the same event. If that iteration is a copy of another length,
// it is freed at the proportional event. A buffer that the recording never frees is freed
// after as many iterations as the recording has left; what was built before the steady
// iterations is never freed. Addresses are new and never used twice. The result has no
// segments, annotations or stacks: it has the requests of the program, not what an
// allocator did. Initial buffers are allocated first. It comes with the times at which its
// iterations end.
//
// It is an error if fewer than two iterations are steady.
func Lengthen(tl *Timeline, it Iterations, n int, seed uint64) (*trace.Device, []trace.Time, error) {
	if it.SteadyCount < 2 {
		return nil, nil, fmt.Errorf("device %d: %d steady iterations, expected two or more", tl.Device, it.SteadyCount)
	}
	first, last := slices.Index(it.Starts, it.SteadyStart), it.Count-2
	l := lengthener{tl: tl, starts: append(slices.Clone(it.Starts), tl.Events), first: first, base: last + 1}
	random := rand.New(rand.NewPCG(seed, 0))
	for range n {
		l.copies = append(l.copies, first+random.IntN(last-first+1))
	}
	for i := range tl.Buffers[:tl.bufferAt(l.starts[l.base])] {
		l.add(&tl.Buffers[i], l.iterationOf(tl.Buffers[i].Start), 0)
	}
	for at, from := range l.copies {
		for i := tl.bufferAt(l.starts[from]); i < tl.bufferAt(l.starts[from+1]); i++ {
			l.add(&tl.Buffers[i], from, l.base+at-from)
		}
	}
	events, ends := l.events()
	return &trace.Device{Ordinal: tl.Device, Events: events}, ends, nil
}

// lengthener collects the events of a longer recording.
type lengthener struct {
	tl     *Timeline
	starts []trace.Time // of the recorded iterations, and of the tail
	first  int          // the first steady iteration
	base   int          // the number of iterations that are as recorded
	copies []int        // by further iteration: the recorded one that it is a copy of
	acts   []lengthenedAct
	next   uint64 // the next new address
}

// lengthenedAct is an event and its time: an iteration of the result, and an event
// counted from the beginning of the recorded iteration that it is a copy of.
type lengthenedAct struct {
	iteration int
	at        trace.Time
	event     trace.Event
}

// iterationOf is the recorded iteration of an event. The tail counts as the last one.
func (l *lengthener) iterationOf(t trace.Time) int {
	i := sort.Search(len(l.starts), func(i int) bool { return l.starts[i] > t }) - 1
	return min(i, len(l.starts)-2)
}

// recorded is the recorded iteration that iteration i of the result is a copy of.
func (l *lengthener) recorded(i int) int {
	if i < l.base {
		return i
	}
	return l.copies[i-l.base]
}

// add adds a buffer of the recorded iteration `from`, `shift` iterations later.
func (l *lengthener) add(b *Buffer, from, shift int) {
	e := trace.Event{
		Action: trace.ActionAlloc, Addr: l.address(b.Size), Size: b.Requested, Stream: b.Stream,
		Stack: trace.None, UserMetadata: trace.None, CompileContext: trace.None, Pool: -1,
	}
	l.acts = append(l.acts, lengthenedAct{from + shift, b.Start - l.starts[from], e})
	if b.Resident && from < l.first {
		return // what is built before the loop stays
	}
	e.Action = trace.ActionFreeRequested
	l.end(e, b.RequestedEnd, shift)
	e.Action = trace.ActionFreeCompleted
	l.end(e, b.CompletedEnd, shift)
}

// address is a new address of size bytes. No address is 0.
func (l *lengthener) address(size trace.Bytes) uint64 {
	l.next += uint64(size)
	return l.next
}

// end adds event e, which frees a buffer and was recorded at t, shift iterations later.
func (l *lengthener) end(e trace.Event, t trace.Time, shift int) {
	of := l.iterationOf(t)
	i, at := of+shift, t-l.starts[of]
	if i >= l.base+len(l.copies) {
		return // the result ends before
	}
	if is := l.recorded(i); is != of {
		long, here := l.starts[of+1]-l.starts[of], l.starts[is+1]-l.starts[is]
		at = at * here / max(1, long)
	}
	l.acts = append(l.acts, lengthenedAct{i, at, e})
}

// events are the events of the acts in order, and the times at which the iterations end. At
// equal times frees come first.
func (l *lengthener) events() (events []trace.Event, ends []trace.Time) {
	slices.SortStableFunc(l.acts, func(a, b lengthenedAct) int {
		order := cmp.Or(cmp.Compare(a.iteration, b.iteration), cmp.Compare(a.at, b.at))
		switch a, b := a.event.Action == trace.ActionAlloc, b.event.Action == trace.ActionAlloc; {
		case order != 0 || a == b:
			return order
		case b:
			return -1
		}
		return 1
	})
	for i := range l.acts {
		if i > 0 && l.acts[i].iteration != l.acts[i-1].iteration {
			ends = append(ends, trace.Time(i))
		}
		events = append(events, l.acts[i].event)
	}
	return events, append(ends, trace.Time(len(l.acts)))
}
