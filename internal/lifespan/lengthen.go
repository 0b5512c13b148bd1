package lifespan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// Lengthen makes up the recording of a program that goes on: its iterations but for
// the last, and then n more, each a copy of a steady one that the seed draws.
//
// The last iteration is left out because what becomes of its buffers is not recorded.
// What a copy leaves for later iterations to free is freed as many iterations on, at
// the same event, or as far into a copy of other length; what the recording never
// frees, after as many iterations as the recording has left. Addresses are new, none
// of them given out twice, and there are no segments, annotations or stacks: the
// result says what a program asks for, not what an allocator did. What lived before
// recording began is allocated first.
//
// It is an error if fewer than two iterations are steady.
func Lengthen(tl *Timeline, it Iterations, n int, seed uint64) (*trace.Device, error) {
	if it.SteadyCount < 2 {
		return nil, fmt.Errorf("device %d: %d steady iterations, expected two or more", tl.Device, it.SteadyCount)
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
	return &trace.Device{Ordinal: tl.Device, Events: l.events()}, nil
}

// lengthener collects the events of a longer recording.
type lengthener struct {
	tl     *Timeline
	starts []trace.Time // of the recorded iterations, and of the tail
	first  int          // the first steady one
	base   int          // how many iterations are as recorded
	copies []int        // which recorded one each further iteration is
	acts   []lengthenedAct
	next   uint64 // the next new address
}

// lengthenedAct is an event and where it belongs: an iteration of the result, and an
// event of it, as the recorded one counts.
type lengthenedAct struct {
	iteration int
	at        trace.Time
	event     trace.Event
}

// iterationOf is the recorded iteration of an event; the tail is the last.
func (l *lengthener) iterationOf(t trace.Time) int {
	i := sort.Search(len(l.starts), func(i int) bool { return l.starts[i] > t }) - 1
	return min(i, len(l.starts)-2)
}

// recorded is the recorded iteration that iteration i of the result is.
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

// address is a new one, for so many bytes. No address is 0.
func (l *lengthener) address(size trace.Bytes) uint64 {
	l.next += uint64(size)
	return l.next
}

// end adds an end that was recorded at t.
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

// events are the acts in order: at one instant, what is freed before what is
// allocated.
func (l *lengthener) events() []trace.Event {
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
	events := make([]trace.Event, len(l.acts))
	for i := range l.acts {
		events[i] = l.acts[i].event
	}
	return events
}
