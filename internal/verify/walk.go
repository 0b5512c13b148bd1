package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// buffer is one allocation of a recording, or a block that was live before it.
type buffer struct {
	start, requestedEnd, completedEnd int64 // unseen until the walk reaches the event
	requested                         trace.Bytes
	stream, addr                      uint64
	initial, resident                 bool
}

const (
	unseen     int64 = -1 // an end that the walk has not reached
	keyInitial int64 = -1 // the key of a buffer that was live before the recording
)

// key is the event that allocated the buffer, keyInitial if none did.
func (b *buffer) key() int64 {
	if b.initial {
		return keyInitial
	}
	return b.start
}

// name describes the buffer in messages.
func (b *buffer) name() string {
	if b.initial {
		return fmt.Sprintf("the block at %#x, live before the recording", b.addr)
	}
	return fmt.Sprintf("the allocation at event %d", b.start)
}

// walk goes through a recording once and finds its buffers:
//
//   - A buffer starts at its alloc. What was live before the recording starts at 0, by
//     address. An end of 0 becomes 1.
//   - Its requested end is its free_requested, or its free_completed if no request was
//     recorded.
//   - Its completed end is its free_completed. If the recording has no such event at all,
//     it is the requested end. If the recording has some, but not for this buffer, it is
//     the number of events.
//   - If the recording tells of exchanges, the completed end of a buffer whose free was delayed is
//     the time from which its stream can wait for that free.
//   - What is never freed ends at the number of events.
//
// The rules are those of lifespan.Build, written a second time on purpose.
type walk struct {
	d         *trace.Device
	completes bool // the recording has free_completed
	buffers   []buffer
	held      map[uint64]int // by address: the buffer that still has it
	exchanges bool           // the recording tells of exchanges
	passes    trace.Passes
}

func newWalk(d *trace.Device) *walk {
	exchanges := d.Exchanges()
	return &walk{
		d: d, held: map[uint64]int{}, exchanges: len(exchanges) > 0, passes: trace.NewPasses(exchanges),
		completes: slices.ContainsFunc(d.Events, func(e trace.Event) bool { return e.Action == trace.ActionFreeCompleted }),
	}
}

// all walks the whole recording. problem says what makes no sense in it.
func (w *walk) all() (problem string) {
	w.before()
	for i := range w.d.Events {
		e := &w.d.Events[i]
		switch e.Action {
		case trace.ActionAlloc:
			problem = w.alloc(int64(i), e)
		case trace.ActionFreeRequested, trace.ActionFreeCompleted:
			problem = w.free(int64(i), e)
		case trace.ActionOOM:
			w.refused(int64(i), e)
		}
		if problem != "" {
			return problem
		}
	}
	w.end()
	return ""
}

// before opens what was live before the recording began.
func (w *walk) before() {
	for i := range w.d.Initial {
		s := &w.d.Initial[i]
		for _, block := range s.Blocks {
			if block.State == trace.BlockInactive {
				continue
			}
			b := buffer{requestedEnd: unseen, completedEnd: unseen, requested: block.Requested,
				stream: s.Stream, addr: block.Address, initial: true}
			if block.State == trace.BlockPendingFree {
				b.requestedEnd = 1
			}
			w.buffers = append(w.buffers, b)
		}
	}
	slices.SortStableFunc(w.buffers, func(a, b buffer) int { return cmp.Compare(a.addr, b.addr) })
	for i := range w.buffers {
		if b := &w.buffers[i]; b.requestedEnd == unseen || w.completes {
			w.held[b.addr] = i
		}
	}
}

func (w *walk) alloc(at int64, e *trace.Event) (problem string) {
	if i, ok := w.held[e.Addr]; ok {
		return fmt.Sprintf("event %d: alloc at %#x, still held by %s", at, e.Addr, w.buffers[i].name())
	}
	w.held[e.Addr] = len(w.buffers)
	w.buffers = append(w.buffers, buffer{start: at, requestedEnd: unseen, completedEnd: unseen,
		requested: e.Size, stream: e.Stream, addr: e.Addr})
	return ""
}

// refused adds the request that ran out of memory if nothing was allocated after it: the
// plan has to hold it beside what was live then, at that one event.
func (w *walk) refused(at int64, e *trace.Event) {
	later := func(e trace.Event) bool { return e.Action == trace.ActionAlloc || e.Action == trace.ActionOOM }
	if slices.ContainsFunc(w.d.Events[at+1:], later) {
		return
	}
	w.buffers = append(w.buffers, buffer{start: at, requestedEnd: at + 1, completedEnd: at + 1, requested: e.Size, stream: e.Stream})
}

func (w *walk) free(at int64, e *trace.Event) (problem string) {
	i, ok := w.held[e.Addr]
	if !ok {
		return fmt.Sprintf("event %d: %s of %#x, but nothing is live there", at, e.Action, e.Addr)
	}
	b := &w.buffers[i]
	if e.Action == trace.ActionFreeCompleted {
		b.completedEnd = max(1, at)
		delete(w.held, e.Addr)
		return ""
	}
	if b.requestedEnd != unseen {
		return fmt.Sprintf("event %d: second free_requested of %#x, held by %s", at, e.Addr, b.name())
	}
	b.requestedEnd = max(1, at)
	if !w.completes {
		delete(w.held, e.Addr)
	}
	return ""
}

// end fills in the ends that no event gave.
func (w *walk) end() {
	last := int64(max(1, len(w.d.Events)))
	for i := range w.buffers {
		b := &w.buffers[i]
		b.resident = b.requestedEnd == unseen && b.completedEnd == unseen
		switch {
		case b.completedEnd != unseen:
		case b.resident || w.completes:
			b.completedEnd = last
		default:
			b.completedEnd = b.requestedEnd
		}
		if b.requestedEnd == unseen {
			b.requestedEnd = b.completedEnd
		}
		if w.exchanges && b.completedEnd > b.requestedEnd+1 {
			b.completedEnd = int64(w.passes.From(trace.Time(b.requestedEnd), b.stream))
		}
	}
}
