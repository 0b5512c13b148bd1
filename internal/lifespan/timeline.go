// Package lifespan turns the events of one device into buffers with live
// ranges, and finds the iterations of the program that made them. It is a pure
// function of the events: no files, no clocks.
//
// Time is the event's index. Live ranges are half-open, and every buffer has
// two ends, of which a caller picks one:
//
//   - A buffer starts at its alloc.
//   - Its requested end is its free_requested: the program let go of it. If no
//     request was recorded, the requested end is the free_completed.
//   - Its completed end is its free_completed: the allocator could hand the memory
//     out again. If the device's recording has no free_completed at all, that kind of
//     event was not recorded, and the completed end is the requested end. If only
//     this buffer lacks it, the free was still pending when the recording ended, and
//     the completed end is the number of events.
//   - If the recording tells of exchanges, the completed end of a buffer whose free was delayed is
//     the time from which its stream can wait for that free (trace.Passes), be it earlier or later than
//     the recorded one. A free that no exchange is in the way of needs no completion, since streams
//     wait on the device.
//   - A buffer that is never freed ends at the number of events and is Resident.
//   - A block that was live before recording began starts at 0 and is Initial. An end
//     of 0 becomes 1, so that no live range is empty. If its free was already pending,
//     its requested end is 1.
//   - If the recording ends in an out-of-memory (trace.Failures), the request that failed
//     is a buffer too: it lives for the one event at which it failed, beside everything
//     that was live then. docs/peak.md says why.
//
// An address has at most one buffer at a time, until the buffer's recorded completed end.
package lifespan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

const (
	// maxSize is the largest buffer that Build accepts, in bytes. No machine has as
	// much memory, and rounding a size up cannot overflow.
	maxSize trace.Bytes = 1 << 48
	// maxLoad is the largest number of bytes live at once that Build accepts. It keeps
	// every sum of sizes below an overflow of 64 bits.
	maxLoad trace.Bytes = 1 << 62
)

// Buffer is one allocation: a size and a live range. Sizes are bytes. Start is the
// index of its alloc event, or of the oom event of the one that failed, so it identifies
// a buffer that is not Initial.
type Buffer struct {
	Start        trace.Time
	RequestedEnd trace.Time
	CompletedEnd trace.Time // never before RequestedEnd
	Requested    trace.Bytes
	Size         trace.Bytes // aligned: trace.RoundUp(Requested)
	Stream       uint64
	Addr         uint64 // its address in the recording
	Initial      bool   // live before recording began
	Resident     bool   // never freed in the recording
	Failed       bool   // the request that ran out of memory; it has no address
}

// Timeline is the recording of one device as buffers.
type Timeline struct {
	Device int        // the device's ordinal
	Events trace.Time // number of events; every end is at most this, or 1
	// Exchanges are those that the recording tells of.
	Exchanges []trace.Exchange
	// Buffers are by Start. Initial ones come first, by address.
	Buffers       []Buffer
	PeakAllocated Peak // with buffers living until their requested end
	PeakActive    Peak // with buffers living until their completed end
}

// Failed is the request that ran out of memory and ended the recording, nil if there is
// none. It begins at the last allocation, so it is the last buffer.
func (tl *Timeline) Failed() *Buffer {
	if n := len(tl.Buffers); n > 0 && tl.Buffers[n-1].Failed {
		return &tl.Buffers[n-1]
	}
	return nil
}

// Build finds the buffers of a device. Its errors are *trace.InputError without a file
// name: an alloc at an address that a live buffer has, a free of an address that none
// has, a second free_requested of a buffer, a size above 2^48 B, or more than 2^62 B
// live at once.
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
	hasCompleted bool // the recording has a free_completed
	buffers      []Buffer
	// live maps an address to the index of the buffer that holds it. A buffer is
	// removed at its last recorded end.
	live map[uint64]int
	held trace.Bytes // sum of the sizes of the buffers in live
	// fatal is the time of the out-of-memory that the recording ends in, or unknown.
	fatal     trace.Time
	exchanges []trace.Exchange
	passes    trace.Passes
}

// unknown is an end that no event has given yet.
const unknown trace.Time = -1

func newBuilder(d *trace.Device) *builder {
	failures := d.Failures()
	b := &builder{device: d.Ordinal, events: trace.Time(len(d.Events)), live: map[uint64]int{}, fatal: failures.FatalAt(), exchanges: d.Exchanges()}
	b.passes = trace.NewPasses(b.exchanges)
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
	if b.fatal != unknown {
		count++
	}
	b.buffers = make([]Buffer, 0, count)
	return b
}

// initial opens the buffers that were live before recording began, by address.
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

// open starts a buffer. It checks the size and rounds it up.
func (b *builder) open(where string, buf Buffer) error {
	if i, ok := b.live[buf.Addr]; ok && !buf.Failed {
		return b.fault(where, "buffer at 0x%x, but one is live there since %s", buf.Addr, b.since(i))
	}
	if buf.Requested < 0 || buf.Requested > maxSize {
		return b.fault(where, "size %d, expected 0 to %d", buf.Requested, maxSize)
	}
	buf.Size = trace.RoundUp(buf.Requested)
	if buf.Size > maxLoad-b.held {
		return b.fault(where, "more than %d bytes live at once", maxLoad)
	}
	if buf.Failed {
		buf.RequestedEnd, buf.CompletedEnd = buf.Start+1, buf.Start+1
		b.buffers = append(b.buffers, buf)
		return nil
	}
	b.held += buf.Size
	buf.CompletedEnd = unknown
	b.live[buf.Addr] = len(b.buffers)
	b.buffers = append(b.buffers, buf)
	return nil
}

// release frees the address of buffer i for others.
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
	case trace.ActionOOM:
		if at == b.fatal {
			return b.open(entry(at), Buffer{Start: at, Requested: e.Size, Stream: e.Stream, Failed: true})
		}
	}
	return nil
}

func (b *builder) free(at trace.Time, e *trace.Event) error {
	i, ok := b.live[e.Addr]
	if !ok {
		return b.fault(entry(at), "%s of 0x%x, but no buffer is live there", e.Action, e.Addr)
	}
	buf := &b.buffers[i]
	if e.Action == trace.ActionFreeRequested {
		if buf.RequestedEnd != unknown {
			return b.fault(entry(at), "second free_requested of 0x%x, live since %s", e.Addr, b.since(i))
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
	tl := &Timeline{Device: b.device, Events: b.events, Buffers: b.buffers, Exchanges: b.exchanges}
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
	if len(b.exchanges) > 0 && buf.CompletedEnd > buf.RequestedEnd+1 {
		buf.CompletedEnd = b.passes.From(buf.RequestedEnd, buf.Stream)
	}
}
