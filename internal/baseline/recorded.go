package baseline

import (
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// Recorded are the peaks of a recording's own memory, in bytes. Allocated and active
// count each buffer's requested size rounded up to 512 B: allocated until the
// program frees it, active until the free completes. If the recording has only one
// of the two kinds of entry, that one ends both.
//
// Buffers that were there when the recording began count as well. They lived before
// the first entry: one whose free was already pending is allocated until the second
// entry, and active until its free completes.
type Recorded struct {
	PeakReserved, PeakAllocated, PeakActive trace.Bytes
}

// FromRecording finds the peaks of a recording without simulating anything. If the
// recording contradicts itself, which ReadProgram refuses, they mean nothing.
func FromRecording(d *trace.Device) Recorded {
	a := account{
		live:      make(map[uint64]counted),
		completes: completes(d),
		reserved:  newPeak(initiallyReserved(d)),
	}
	for i := range d.Initial {
		a.start(&d.Initial[i])
	}
	a.allocated, a.active = newPeak(a.allocated.now), newPeak(a.active.now)
	for i := range d.Events {
		if i == 1 {
			a.begun()
		}
		a.see(&d.Events[i])
	}
	return Recorded{a.reserved.most, a.allocated.most, a.active.most}
}

// completes says that the recording has entries of completed frees. If it has none,
// they were not recorded, and each free stands for its completion too.
func completes(d *trace.Device) bool {
	return slices.ContainsFunc(d.Events, func(e trace.Event) bool { return e.Action == trace.ActionFreeCompleted })
}

func initiallyReserved(d *trace.Device) trace.Bytes {
	sum := trace.Bytes(0)
	for i := range d.Initial {
		sum += d.Initial[i].Size
	}
	return sum
}

// peak is a running sum and its largest value so far.
type peak struct {
	now, most trace.Bytes
}

func newPeak(now trace.Bytes) peak { return peak{now, now} }

func (p *peak) add(n trace.Bytes) {
	p.now += n
	p.most = max(p.most, p.now)
}

// counted is a live buffer. Its size counts as allocated and active, and once it is
// freed as active only.
type counted struct {
	size  trace.Bytes
	freed bool
}

type account struct {
	live                        map[uint64]counted
	completes                   bool
	pending                     trace.Bytes // in blocks whose free was pending at the start
	reserved, allocated, active peak
}

func (a *account) start(s *trace.Segment) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.State == trace.BlockInactive {
			continue
		}
		c := counted{trace.RoundUp(b.Requested), b.State == trace.BlockPendingFree}
		a.allocated.now += c.size
		a.active.now += c.size
		if c.freed {
			a.pending += c.size
		}
		if !c.freed || a.completes {
			a.live[b.Address] = c
		}
	}
}

// begun frees the blocks whose free was pending at the start. It is called after the
// first entry.
func (a *account) begun() {
	a.allocated.add(-a.pending)
	if !a.completes {
		a.active.add(-a.pending)
	}
}

func (a *account) see(e *trace.Event) {
	switch e.Action {
	case trace.ActionAlloc:
		c := counted{size: trace.RoundUp(e.Size)}
		a.live[e.Addr] = c
		a.allocated.add(c.size)
		a.active.add(c.size)
	case trace.ActionFreeRequested:
		a.free(e.Addr)
		if !a.completes {
			a.complete(e.Addr)
		}
	case trace.ActionFreeCompleted:
		a.free(e.Addr)
		a.complete(e.Addr)
	default:
		a.reserved.add(segmentDelta(e))
	}
}

func (a *account) free(addr uint64) {
	if c, ok := a.live[addr]; ok && !c.freed {
		c.freed = true
		a.live[addr] = c
		a.allocated.add(-c.size)
	}
}

func (a *account) complete(addr uint64) {
	a.active.add(-a.live[addr].size)
	delete(a.live, addr)
}
