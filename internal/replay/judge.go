package replay

import (
	"fmt"

	"github.com/stplan/stplan/internal/trace"
)

// judge decides whether each request is given memory that nothing uses any more. It keeps
// the last owner of every byte, and takes it along if the memory is carried to other addresses. A request may have bytes if their last owner has been freed
// by the program, and
//
//   - ran on the same stream. If its free was delayed by another stream, either the
//     recording has to say that the delay is over, or the request's stream has to have
//     waited for that stream, by an event recorded at that free or later.
//   - or ran on another stream, and the request's stream has waited for the whole device,
//     by an event recorded at that free or later. Nobody knows which streams still read
//     what a program has freed.
//
// If the host has waited for the device since the free, or has seen such an event done, the
// bytes are free without that. Owners before the last one need no check: the last one waited
// for them, or ran on their stream. In the second case what other streams may still do to
// the bytes was given to the device before the last free, which counts.
type judge struct {
	side     uint64                    // the stream that delays frees
	owners   []owner                   // in the order of their allocations
	index    map[int]int               // by request: its owner
	bytes    *ranges                   // each byte's last owner
	recorded map[uint64]mark           // by event: what it covers
	waited   map[uint64]map[uint64]int // by stream and other stream: the step up to which it has waited
	whole    map[uint64]int            // by stream: the step up to which it has waited for the whole device
	settled  int                       // step up to which the host has waited for the device, -1 before
	overlaps int                       // number of requests that were given memory in use
	first    string                    // describes the first of them
	waits    int                       // number of stream-ordered waits
}

// owner is a request as the judge sees it.
type owner struct {
	request   int
	stream    uint64
	low, high uint64 // its bytes are [low, high)
	freed     int    // step of its free, -1 before
	pending   bool   // its free is delayed, or will be
}

// mark is what an event covers: the work of a stream, or of all, up to a step.
type mark struct {
	whole  bool
	stream uint64
	step   int
}

func newJudge(side uint64) *judge {
	return &judge{
		side: side, index: map[int]int{}, bytes: newRanges(),
		recorded: map[uint64]mark{}, waited: map[uint64]map[uint64]int{}, whole: map[uint64]int{}, settled: -1,
	}
}

// operation records what the allocator asked of the device during a step.
func (j *judge) operation(step int, o Operation) {
	switch o.Kind {
	case Settled:
		j.settled = step
	case Record, RecordWhole:
		j.recorded[o.Event] = mark{o.Kind == RecordWhole, o.Stream, step}
	case Wait:
		j.waits++
		j.wait(o)
	case Done:
		if m, ok := j.recorded[o.Event]; ok && m.whole {
			j.settled = max(j.settled, m.step)
		}
	case Carried:
		j.carry(o)
	}
}

// carry has the owners of some bytes be those of others. What is live cannot be carried, and nothing can
// go to where something is live.
func (j *judge) carry(o Operation) {
	for _, at := range []uint64{o.From, o.To} {
		for p := range j.bytes.within(at, at+o.Bytes) {
			if p.owner != nobody && j.owners[p.owner].freed < 0 {
				j.fault(fmt.Sprintf("memory was carried from %#x to %#x, %d B, in part of request %d, which is live", o.From, o.To, o.Bytes, j.owners[p.owner].request))
				return
			}
		}
	}
	j.bytes.copy(o.From, o.To, o.Bytes)
}

// fault counts a request that was given memory in use, or whose memory was.
func (j *judge) fault(what string) {
	j.overlaps++
	if j.first == "" {
		j.first = what
	}
}

// wait makes a stream wait for an event. One that was never recorded waits for nothing.
func (j *judge) wait(o Operation) {
	m, ok := j.recorded[o.Event]
	if !ok {
		return
	}
	if m.whole {
		j.whole[o.Stream] = max(j.whole[o.Stream], m.step)
		return
	}
	if j.waited[o.Stream] == nil {
		j.waited[o.Stream] = map[uint64]int{}
	}
	j.waited[o.Stream][m.stream] = max(j.waited[o.Stream][m.stream], m.step)
}

// alloc makes a request the owner of the bytes that it was given, and judges that.
func (j *judge) alloc(request int, q *Request, address uint64) {
	o := owner{request: request, stream: q.Stream, low: address, high: address + uint64(trace.RoundUp(q.Requested)), freed: -1, pending: q.Pending}
	k := len(j.owners)
	j.owners = append(j.owners, o)
	j.index[request] = k
	bad := -1
	j.bytes.own(o.low, o.high, k, func(last int) {
		if !j.allows(&j.owners[last], &o) {
			bad = last
		}
	})
	if bad >= 0 {
		j.fault(j.explain(&o, &j.owners[bad]))
	}
}

// allows says whether next may have bytes of their last owner.
func (j *judge) allows(last, next *owner) bool {
	if last.freed < 0 {
		return false
	}
	if last.freed <= j.settled {
		return true
	}
	if to, ok := j.whole[next.stream]; ok && to >= last.freed {
		return true
	}
	return last.stream == next.stream && (!last.pending || j.hasWaited(next.stream, j.side, last.freed))
}

// hasWaited says whether a stream has waited for the work of another up to a step.
func (j *judge) hasWaited(stream, on uint64, step int) bool {
	to, ok := j.waited[stream][on]
	return ok && to >= step
}

// free records that the program has freed a request.
func (j *judge) free(step, request int) { j.owners[j.index[request]].freed = step }

// complete ends the delay of a request's free.
func (j *judge) complete(request int) { j.owners[j.index[request]].pending = false }

// explain describes an overlap.
func (j *judge) explain(o, last *owner) string {
	why := "which is live"
	if last.freed >= 0 {
		why = "which other streams may still use"
	}
	return fmt.Sprintf("request %d was given [%#x, %#x), in part of request %d at [%#x, %#x), %s",
		o.request, o.low, o.high, last.request, last.low, last.high, why)
}
