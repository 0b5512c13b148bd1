package baseline

import "github.com/stplan/stplan/internal/trace"

// driver stands for CUDA's: it hands out address space and may refuse memory.
type driver interface {
	// segment is cudaMalloc.
	segment(size trace.Bytes) (addr uint64, ok bool)
	// reserve takes address space for an expandable segment.
	reserve(size trace.Bytes) (addr uint64, ok bool)
	// commit maps memory into reserved address space.
	commit(size trace.Bytes) (ok bool)
	// refuse says whether a request is being served that ran out of memory in
	// the recording: the driver then has no memory.
	refuse(bool)
}

// card is a driver for programs that run otherwise than recorded. Where it puts
// a segment decides ties between free blocks of one size, which are common:
// layers are alike. The n-th segment of a size lies where the recording's n-th
// of that size lay, so that a run like the recorded one is the recorded one.
// What the recording lacks goes below what was there, each in a chunk of its
// own: the way CUDA lays out segments on Linux, seen in recordings.
type card struct {
	recorded map[trace.Bytes][]uint64 // addresses yet to be used, by segment size
	lowest   uint64                   // of all segments
	spaces   uint64                   // of all reserved address space
	full     bool                     // no memory at present
}

const (
	// chunk is the unit of address space that CUDA takes from Linux.
	chunk = 32 * mib
	// highest is where address space begins that nothing recorded says more of.
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

// below lowers an address by whole chunks, if there is room.
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
