package trace

import (
	"fmt"
	"slices"
	"sort"
)

// baseCheck compares the state of a base snapshot with the recording that should begin
// in it. What the recording frees without an alloc must be in the state. What is in the
// state must not be allocated again, nor be missing at the end, unless the recording
// frees or releases it. What is there at the end must be in the state or in an entry.
type baseCheck struct {
	d       *Device
	p       *past
	initial []Segment

	live     []Block  // of the state, in use or pending
	blocks   standing // the ranges of live
	segments standing // the ranges of initial
	released Action   // the kind of free after which memory can be used again
	grows    bool     // the recording has entries that take memory from the driver
}

func newBaseCheck(d *Device, p *past, initial []Segment) *baseCheck {
	c := &baseCheck{d: d, p: p, initial: initial, released: ActionFreeRequested}
	for i := range d.Events {
		switch d.Events[i].Action {
		case ActionFreeCompleted:
			c.released = ActionFreeCompleted
		case ActionSegmentAlloc, ActionSegmentMap:
			c.grows = true
		}
	}
	for i := range initial {
		s := &initial[i]
		c.segments.add(s.Address, s.Size)
		for _, b := range s.Blocks {
			if b.State != BlockInactive {
				c.live = append(c.live, b)
				c.blocks.add(b.Address, b.Size)
			}
		}
	}
	return c
}

// run returns the first contradiction and its place in the recording, or "".
func (c *baseCheck) run() (where, problem string) {
	for _, i := range c.p.frees {
		if problem = c.orphan(&c.d.Events[i]); problem != "" {
			return entryName(c.d.Ordinal, i), problem
		}
	}
	c.dropPending()
	for i := range c.d.Events {
		if problem = c.event(&c.d.Events[i]); problem != "" {
			return entryName(c.d.Ordinal, i), problem
		}
	}
	if len(c.d.Final) == 0 {
		return "", "" // the recording does not have its state at the end
	}
	return deviceName(c.d.Ordinal), c.end()
}

// orphan checks a free of a block that no entry allocates.
func (c *baseCheck) orphan(e *Event) string {
	k := c.blocks.at(e.Addr)
	switch {
	case k < 0:
		return fmt.Sprintf("%s of %#x, which no entry allocated and the base does not hold", e.Action, e.Addr)
	case e.Size > c.live[k].Size:
		return fmt.Sprintf("%s of %d B at %#x, but the base has a block of %d B there", e.Action, e.Size, e.Addr, c.live[k].Size)
	}
	return ""
}

// dropPending removes the blocks that were waiting for their free to complete, if the
// recording has no entries for that.
func (c *baseCheck) dropPending() {
	for k, b := range c.live {
		if b.State == BlockPendingFree && c.released == ActionFreeRequested {
			c.blocks.remove(k)
		}
	}
}

// event checks an entry against the state, and removes from the state what it frees or
// releases.
func (c *baseCheck) event(e *Event) string {
	switch end := e.Addr + uint64(max(e.Size, 1)); e.Action {
	case ActionAlloc:
		if k := c.blocks.first(e.Addr, end); k >= 0 {
			b := &c.live[k]
			return fmt.Sprintf("alloc of %d B at %#x overlaps the base's block of %d B at %#x, which was not freed", e.Size, e.Addr, b.Size, b.Address)
		}
	case c.released:
		if k := c.blocks.at(e.Addr); k >= 0 {
			c.blocks.remove(k)
		}
	case ActionSegmentAlloc, ActionSegmentMap:
		if k := c.segments.first(e.Addr, end); k >= 0 {
			s := &c.initial[k]
			return fmt.Sprintf("%s of %d B at %#x overlaps the base's segment of %d B at %#x, which was not released", e.Action, e.Size, e.Addr, s.Size, s.Address)
		}
	case ActionSegmentFree, ActionSegmentUnmap:
		for k := c.segments.first(e.Addr, end); k >= 0; k = c.segments.first(e.Addr, end) {
			c.segments.remove(k)
		}
	}
	return ""
}

// end compares what is left of the state with what is there at the end.
func (c *baseCheck) end() string {
	final := map[uint64]Bytes{} // sizes of live blocks
	for i := range c.d.Final {
		for _, b := range c.d.Final[i].Blocks {
			if b.State != BlockInactive {
				final[b.Address] = b.Size
			}
		}
	}
	for k := c.blocks.next(0); k < len(c.live); k = c.blocks.next(k + 1) {
		if b := &c.live[k]; final[b.Address] != b.Size {
			return fmt.Sprintf("the base has a block of %d B at %#x that no entry frees and the end of the recording does not hold", b.Size, b.Address)
		}
	}
	for k := c.segments.next(0); k < len(c.initial); k = c.segments.next(k + 1) {
		if s := &c.initial[k]; !c.holds(s) {
			return fmt.Sprintf("the base has a segment of %d B at %#x that no entry releases and the end of the recording does not hold", s.Size, s.Address)
		}
	}
	return c.unexplained()
}

// holds reports whether Final has a segment of the state. An expandable segment may
// have grown on either side.
func (c *baseCheck) holds(s *Segment) bool {
	i := sort.Search(len(c.d.Final), func(i int) bool { return c.d.Final[i].Address > s.Address }) - 1
	if i < 0 {
		return false
	}
	f := &c.d.Final[i]
	if !s.Expandable {
		return f.Address == s.Address && f.Size == s.Size
	}
	return f.Expandable && s.Size <= f.Size && s.Address-f.Address <= uint64(f.Size-s.Size)
}

// unexplained looks for memory that is there at the end, but neither in an entry nor in
// the base.
func (c *baseCheck) unexplained() string {
	memory := newPastMemory(c.d)
	for _, s := range c.d.Final {
		if c.grows && memory.untouched(s.Address) && !c.segments.held(s.Address) {
			return fmt.Sprintf("the recording ends with a segment of %d B at %#x that no entry takes and the base does not hold", s.Size, s.Address)
		}
		for _, b := range s.Blocks {
			past := b.State != BlockInactive && !c.p.names(b.Address) && !memory.newBefore(b.Address, len(c.d.Events))
			if past && !c.blocks.held(b.Address) {
				return fmt.Sprintf("the recording ends with a block of %d B at %#x that no entry allocates and the base does not hold", b.Size, b.Address)
			}
		}
	}
	return ""
}

// standing is a list of ranges, by address and without overlaps. A range that was
// removed no longer stands. The zero value is an empty list.
type standing struct {
	from, to []uint64
	skip     []int // by range: itself if it stands, else a later one; none between stands
}

// add appends a range of at least 1 B.
func (s *standing) add(address uint64, size Bytes) {
	s.skip = append(s.skip, len(s.from))
	s.from = append(s.from, address)
	s.to = append(s.to, address+uint64(size))
}

func (s *standing) remove(k int) { s.skip[k] = k + 1 }

// next returns the first standing range from k on, or the number of ranges if there is
// none. It shortens the paths of skip as union-find does.
func (s *standing) next(k int) int {
	for k < len(s.skip) && s.skip[k] != k {
		if n := s.skip[k]; n < len(s.skip) {
			s.skip[k] = s.skip[n]
		}
		k = s.skip[k]
	}
	return k
}

// first returns the first standing range that overlaps [from, to), or -1.
func (s *standing) first(from, to uint64) int {
	k := s.next(sort.Search(len(s.to), func(k int) bool { return s.to[k] > from }))
	if k == len(s.from) || s.from[k] >= to {
		return -1
	}
	return k
}

// at returns the standing range that begins at an address, or -1.
func (s *standing) at(address uint64) int {
	k, ok := slices.BinarySearch(s.from, address)
	if !ok || s.skip[k] != k {
		return -1
	}
	return k
}

// held reports whether any range, standing or removed, has the address.
func (s *standing) held(address uint64) bool {
	k := sort.Search(len(s.to), func(k int) bool { return s.to[k] > address })
	return k < len(s.from) && s.from[k] <= address
}
