// Package lifespan turns the events of one device into buffers with live
// ranges, and finds the iterations of the program that made them. It is a pure
// function of the events: no files, no clocks.
//
// Time is the event's index. Live ranges are half-open, and every buffer has
// two ends, of which a caller picks one:
//
//   - It starts at its alloc.
//   - Its requested end is its free_requested: the program let go of it. Where
//     no request was recorded it is the free_completed.
//   - Its completed end is its free_completed: the allocator could hand the
//     memory out again. Where the device's recording has no free_completed at
//     all, that kind of event was not recorded, and it is the requested end.
//     Where only this buffer lacks it, the free was still pending when the
//     recording ended, and it is the number of events.
//   - A buffer that is never freed ends at the number of events, and is
//     Resident.
//   - A block that lived before recording began starts at 0 and is Initial. It
//     lived before the first event, so an end of 0 becomes 1: no live range is
//     empty. One whose free was already pending has the requested end 1.
//
// At one address there is at most one buffer at a time, to its completed end.
package lifespan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// maxSize bounds one buffer, and maxLoad all that live at once, in bytes. They
// are far above any machine and keep every sum below an overflow.
const (
	maxSize trace.Bytes = 1 << 48
	maxLoad trace.Bytes = 1 << 62
)

// Buffer is one allocation: a size and a live range. Start is the index of its
// alloc event, so it identifies a buffer that is not Initial.
type Buffer struct {
	Start        trace.Time
	RequestedEnd trace.Time
	CompletedEnd trace.Time // never before RequestedEnd
	Requested    trace.Bytes
	Size         trace.Bytes // aligned: trace.RoundUp(Requested)
	Stream       uint64
	Addr         uint64 // where the recording had it
	Initial      bool   // lived before recording began
	Resident     bool   // never freed in the recording
}

// Timeline is what one device did, as buffers.
type Timeline struct {
	Device int
	Events trace.Time // how many; every end is at most this, or 1
	// Buffers are by Start; those that lived before come first, by address.
	Buffers       []Buffer
	PeakAllocated Peak // with buffers living until their requested end
	PeakActive    Peak // with buffers living until their completed end
}

// Build finds the buffers of a device. Its errors are *trace.InputError
// without a file name: an alloc where a buffer lives, a free where none does,
// a size or a sum of sizes that no machine has.
func Build(d *trace.Device) (*Timeline, error) {
	b := newBuilder(d)
	if err := b.initial(d.Initial); err != nil {
		return nil, err
	}
	for i := range d.Events {
		if err := b.event(trace.Time(i), &d.Events[i]); err != nil {
			return nil, err
		}
	}
	return b.finish(), nil
}

// builder holds the state of one pass over the events.
type builder struct {
	device       int
	events       trace.Time
	hasCompleted bool // the recording has free_completed at all
	buffers      []Buffer
	// live maps an address to the buffer that holds it. A buffer leaves at its
	// last recorded end.
	live map[uint64]int
	held trace.Bytes // bytes in live
}

// unknown is an end that has not been seen.
const unknown trace.Time = -1

func newBuilder(d *trace.Device) *builder {
	b := &builder{device: d.Ordinal, events: trace.Time(len(d.Events)), live: map[uint64]int{}}
	count := 0
	for i := range d.Initial {
		count += len(d.Initial[i].Blocks)
	}
	for i := range d.Events {
		switch d.Events[i].Action {
		case trace.ActionAlloc:
			count++
		case trace.ActionFreeCompleted:
			b.hasCompleted = true
		}
	}
	b.buffers = make([]Buffer, 0, count)
	return b
}

// initial opens what lived before recording began, by address.
func (b *builder) initial(segments []trace.Segment) error {
	var found []Buffer
	for i := range segments {
		for _, block := range segments[i].Blocks {
			if block.State == trace.BlockInactive {
				continue
			}
			buf := Buffer{Addr: block.Address, Requested: block.Requested, Stream: segments[i].Stream, Initial: true, RequestedEnd: unknown}
			if block.State == trace.BlockPendingFree {
				buf.RequestedEnd = 1
			}
			found = append(found, buf)
		}
	}
	slices.SortStableFunc(found, func(x, y Buffer) int { return cmp.Compare(x.Addr, y.Addr) })
	for _, buf := range found {
		if err := b.open("initial state", buf); err != nil {
			return err
		}
		if buf.RequestedEnd != unknown && !b.hasCompleted {
			b.release(len(b.buffers) - 1)
		}
	}
	return nil
}

// open starts a buffer, whose size it checks and aligns.
func (b *builder) open(where string, buf Buffer) error {
	if i, ok := b.live[buf.Addr]; ok {
		return b.fault(where, "buffer at 0x%x, where one lives since %s", buf.Addr, b.since(i))
	}
	if buf.Requested < 0 || buf.Requested > maxSize {
		return b.fault(where, "size %d, expected 0 to %d", buf.Requested, maxSize)
	}
	buf.Size = trace.RoundUp(buf.Requested)
	if buf.Size > maxLoad-b.held {
		return b.fault(where, "more than %d bytes live at once", maxLoad)
	}
	b.held += buf.Size
	buf.CompletedEnd = unknown
	b.live[buf.Addr] = len(b.buffers)
	b.buffers = append(b.buffers, buf)
	return nil
}

// release gives up the address of buffer i.
func (b *builder) release(i int) {
	delete(b.live, b.buffers[i].Addr)
	b.held -= b.buffers[i].Size
}

func (b *builder) event(at trace.Time, e *trace.Event) error {
	switch e.Action {
	case trace.ActionAlloc:
		return b.open(entry(at), Buffer{Start: at, Addr: e.Addr, Requested: e.Size, Stream: e.Stream, RequestedEnd: unknown})
	case trace.ActionFreeRequested, trace.ActionFreeCompleted:
		return b.free(at, e)
	}
	return nil
}

func (b *builder) free(at trace.Time, e *trace.Event) error {
	i, ok := b.live[e.Addr]
	if !ok {
		return b.fault(entry(at), "%s of 0x%x, where no buffer lives", e.Action, e.Addr)
	}
	buf := &b.buffers[i]
	if e.Action == trace.ActionFreeRequested {
		if buf.RequestedEnd != unknown {
			return b.fault(entry(at), "second free_requested of 0x%x, which lives since %s", e.Addr, b.since(i))
		}
		buf.RequestedEnd = max(1, at)
		if b.hasCompleted {
			return nil // the address is taken until the free completes
		}
	} else {
		buf.CompletedEnd = max(1, at)
	}
	b.release(i)
	return nil
}

// since says when buffer i began, for messages.
func (b *builder) since(i int) string {
	if b.buffers[i].Initial {
		return "before recording began"
	}
	return entry(b.buffers[i].Start)
}

func entry(at trace.Time) string { return fmt.Sprintf("entry %d", at) }

func (b *builder) fault(where, format string, args ...any) error {
	return &trace.InputError{
		Where:   fmt.Sprintf("device %d: %s", b.device, where),
		Problem: fmt.Sprintf(format, args...),
	}
}

// finish gives every buffer both its ends.
func (b *builder) finish() *Timeline {
	for i := range b.buffers {
		b.close(&b.buffers[i])
	}
	tl := &Timeline{Device: b.device, Events: b.events, Buffers: b.buffers}
	tl.PeakAllocated = tl.Load(EndRequested).Peak()
	tl.PeakActive = tl.Load(EndCompleted).Peak()
	return tl
}

func (b *builder) close(buf *Buffer) {
	last := max(1, b.events)
	switch {
	case buf.RequestedEnd == unknown && buf.CompletedEnd == unknown:
		buf.RequestedEnd, buf.CompletedEnd, buf.Resident = last, last, true
	case buf.RequestedEnd == unknown:
		buf.RequestedEnd = buf.CompletedEnd
	case buf.CompletedEnd == unknown && b.hasCompleted:
		buf.CompletedEnd = last
	case buf.CompletedEnd == unknown:
		buf.CompletedEnd = buf.RequestedEnd
	}
}
