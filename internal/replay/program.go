// Package replay drives an allocator with the requests of a recording and judges
// what it hands out. It knows the allocator as an interface only: the judge
// shares nothing with what it judges.
package replay

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// Request is one buffer that the program allocates and, unless it is resident,
// frees.
type Request struct {
	Event     trace.Time // of the allocation in the recording; -1 of an initial or an injected one
	Requested trace.Bytes
	Stream    uint64
	// Pending is set where the recorded allocator held the buffer after the
	// program had freed it, because another stream still used it. The recording
	// does not say which.
	Pending  bool
	Original bool // in the recording, not injected
}

// kind is what a step does. Frees come before allocations at the same instant.
type kind uint8

const (
	stepFree     kind = iota // the program lets go
	stepComplete             // what delayed the free is done
	stepAlloc
)

// step is one act of the program on a request.
type step struct {
	at      instant
	kind    kind
	request int32
}

// instant orders steps: an event, and a place among what is injected there.
type instant struct {
	event trace.Time
	sub   int32
}

// Program is what a device's program asked of its allocator, in order.
type Program struct {
	Requests []Request
	steps    []step
}

// span is when a request lives: to the program, and to the streams it is used
// on. Equal ends mean that nothing delays its free.
type span struct{ start, end, completed instant }

// never is after the last event.
const never = trace.Time(1) << 62

// NewProgram is the program of a recorded device.
func NewProgram(tl *lifespan.Timeline) *Program {
	requests := make([]Request, len(tl.Buffers))
	spans := make([]span, len(tl.Buffers))
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		requests[i] = Request{Event: b.Start, Requested: max(1, b.Requested), Stream: b.Stream, Original: true}
		spans[i] = span{instant{b.Start, 0}, instant{b.RequestedEnd, 0}, instant{b.CompletedEnd, 0}}
		if b.Initial {
			requests[i].Event = -1
			spans[i].start = instant{-1, int32(i)}
		}
		if b.Resident {
			spans[i].end, spans[i].completed = instant{never, 0}, instant{never, 0}
		}
	}
	markPending(requests, spans)
	return order(requests, spans)
}

// markPending finds the delayed frees: something is allocated between the end
// that the program asked for and the completed one. Where nothing is, nobody
// can tell the two apart.
func markPending(requests []Request, spans []span) {
	starts := make([]trace.Time, len(spans))
	for i := range spans {
		starts[i] = spans[i].start.event
	}
	slices.Sort(starts)
	for i := range spans {
		s := &spans[i]
		next, _ := slices.BinarySearch(starts, s.end.event)
		requests[i].Pending = next < len(starts) && starts[next] < s.completed.event
		if !requests[i].Pending {
			s.completed = s.end
		}
	}
}

// order makes the program of these requests.
func order(requests []Request, spans []span) *Program {
	p := &Program{Requests: requests}
	for i, s := range spans {
		p.steps = append(p.steps, step{s.start, stepAlloc, int32(i)})
		if s.end.event != never {
			p.steps = append(p.steps, step{s.end, stepFree, int32(i)})
		}
		if requests[i].Pending && s.completed.event != never {
			p.steps = append(p.steps, step{s.completed, stepComplete, int32(i)})
		}
	}
	slices.SortStableFunc(p.steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.at.event, b.at.event), cmp.Compare(a.at.sub, b.at.sub), cmp.Compare(a.kind, b.kind))
	})
	return p
}
