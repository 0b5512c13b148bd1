// Package replay drives an allocator with the requests of a recording and judges the
// memory that it hands out. It knows the allocator only as an interface: the judge shares
// nothing with what it judges.
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
	Event     trace.Time  // of the allocation in the recording; -1 of an initial or an injected one
	Requested trace.Bytes // at least 1
	Stream    uint64
	// Pending is set if the recorded allocator held the buffer after the program had
	// freed it, because another stream still used it. The recording does not say which.
	Pending  bool
	Original bool // from the recording, not injected
}

// kind is what a step does. At the same instant, steps are in the order of their kinds.
type kind uint8

const (
	stepBegin    kind = iota // an exchange begins
	stepAwait                // a stream is made to wait for one
	stepFree                 // the program frees the request
	stepComplete             // the other stream is done with it
	stepAlloc
)

// step is one act at an instant: on a request, or on an exchange, which a stream then waits for.
type step struct {
	at      instant
	kind    kind
	request int32 // or exchange
	stream  uint64
}

// instant orders steps: by event, and by sub for what is injected at an event.
type instant struct {
	event trace.Time
	sub   int32
}

// Program is the requests of a device's program and their steps in order.
type Program struct {
	Requests []Request
	// Ends are the times at which iterations end, in order, for an allocator that is an
	// Iterated. They are set by the caller.
	Ends      []trace.Time
	exchanges []trace.Exchange
	steps     []step
}

// span is when a request lives: end is the program's free, completed the time from which
// no stream uses it. The two are equal if nothing delays the free.
type span struct{ start, end, completed instant }

// never is after the last event.
const never = trace.Time(1) << 62

// NewProgram is the program of a recorded device, with a request for each buffer in
// order.
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
	return order(requests, spans, tl.Exchanges)
}

// markPending finds the delayed frees: those with an allocation between the requested and
// the completed end. Without one nothing depends on the difference.
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

// order makes the program of requests that live in the given spans, with exchanges under way.
func order(requests []Request, spans []span, exchanges []trace.Exchange) *Program {
	p := &Program{Requests: requests, exchanges: exchanges}
	for i, e := range exchanges {
		p.steps = append(p.steps, step{at: instant{e.Begins, 0}, kind: stepBegin, request: int32(i)})
		for _, w := range e.Awaits {
			p.steps = append(p.steps, step{instant{w.At, 0}, stepAwait, int32(i), w.Stream})
		}
	}
	for i, s := range spans {
		p.steps = append(p.steps, step{at: s.start, kind: stepAlloc, request: int32(i)})
		if s.end.event != never {
			p.steps = append(p.steps, step{at: s.end, kind: stepFree, request: int32(i)})
		}
		if requests[i].Pending && s.completed.event != never {
			p.steps = append(p.steps, step{at: s.completed, kind: stepComplete, request: int32(i)})
		}
	}
	// Most steps are at different events. A request has each kind once, so no two are equal; nor are the
	// waits of an exchange, but for its streams.
	slices.SortFunc(p.steps, func(a, b step) int {
		if a.at.event != b.at.event {
			return cmp.Compare(a.at.event, b.at.event)
		}
		return cmp.Or(cmp.Compare(a.at.sub, b.at.sub), cmp.Compare(a.kind, b.kind), cmp.Compare(a.request, b.request), cmp.Compare(a.stream, b.stream))
	})
	return p
}
