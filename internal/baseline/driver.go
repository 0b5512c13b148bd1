package baseline

import "github.com/stplan/stplan/internal/trace"

// driver stands for the CUDA driver: it gives addresses, and memory unless it
// refuses.
type driver interface {
	// segment is cudaMalloc.
	segment(size trace.Bytes) (addr uint64, ok bool)
	// reserve takes address space for an expandable segment.
	reserve(size trace.Bytes) (addr uint64, ok bool)
	// commit maps memory into reserved address space.
	commit(size trace.Bytes) (ok bool)
	// refuse(true) begins a request that ran out of memory in the recording: until
	// refuse(false) the driver has no memory.
	refuse(bool)
}

// card is the driver of Simulate. The address of a segment matters: it decides
// between free blocks of the same size, which are common because layers are alike.
// The n-th segment of a size lies where the recording's n-th of that size lay, so
// that a run like the recorded one gives the recorded addresses. A segment that
// the recording lacks lies below all others, at a whole chunk: recordings show
// that CUDA lays out segments like this on Linux.
type card struct {
	recorded map[trace.Bytes][]uint64 // addresses yet to be used, by segment size
	lowest   uint64                   // address of all segments
	spaces   uint64                   // address of all reserved address space
	full     bool                     // no memory at present
}

const (
	// chunk is the unit, in bytes, of the address space that CUDA takes from Linux.
	chunk = 32 * mib
	// highest is the address below which address space is given if the recording
	// has no segment to go by. It is far above what CUDA gives.
	highest = 1 << 63
)

func newCard(d *trace.Device) *card {
	c := &card{recorded: make(map[trace.Bytes][]uint64), lowest: highest, spaces: highest}
	for i := range d.Events {
		if e := &d.Events[i]; e.Action == trace.ActionSegmentAlloc {
			c.recorded[e.Size] = append(c.recorded[e.Size], e.Addr)
			c.lowest = min(c.lowest, e.Addr)
		}
	}
	return c
}

func (c *card) segment(size trace.Bytes) (uint64, bool) {
	if c.full {
		return 0, false
	}
	if r := c.recorded[size]; len(r) > 0 {
		c.recorded[size] = r[1:]
		return r[0], true
	}
	if below(&c.lowest, size) {
		return c.lowest, true
	}
	return c.reserve(size)
}

func (c *card) reserve(size trace.Bytes) (uint64, bool) {
	ok := below(&c.spaces, size)
	return c.spaces, ok
}

// below lowers an address by size, rounded up to whole chunks, if there is room.
func below(addr *uint64, size trace.Bytes) bool {
	size = align(size, chunk)
	if uint64(size) >= *addr {
		return false
	}
	*addr -= uint64(size)
	return true
}

func (c *card) commit(trace.Bytes) bool { return !c.full }

func (c *card) refuse(on bool) { c.full = on }
