package lifespan

import "github.com/stplan/stplan/internal/trace"

// fillSlots makes the slots of the bodies: each is as large as its largest buffer in the
// passes, and lives to the latest ends.
func (c *classifier) fillSlots() {
	for x := range c.out.Bodies {
		body := &c.out.Bodies[x]
		body.Slots = make([]Slot, body.Length)
		for i := range body.Slots {
			body.Slots[i] = Slot{Start: i, Cell: -1, Holder: i}
		}
	}
	for j, x := range c.bodies {
		body := &c.out.Bodies[x]
		var strays trace.Bytes
		for i := c.r.first[j]; i < c.r.first[j+1]; i++ {
			b, k := &c.tl.Buffers[i], c.r.at(i)
			s := &body.Slots[c.below[x][k]]
			s.include(b)
			s.extend(min(body.Length, c.timeIn(j, b.RequestedEnd)), c.timeIn(j, b.CompletedEnd))
			s.Cell, s.Stray = c.cells[k], c.kinds[k] == stray
			if c.kinds[k] == leaving {
				s.extend(body.Length, body.Length)
			}
			if s.Stray {
				strays += b.Size
			}
		}
		c.out.StrayBytes = max(c.out.StrayBytes, strays)
	}
}

// include makes the slot large enough for one more buffer.
func (s *Slot) include(b *Buffer) {
	if s.Occurrences == 0 || b.Requested < s.Least {
		s.Least = b.Requested
	}
	s.Requested = max(s.Requested, b.Requested)
	s.Size = max(s.Size, b.Size)
	s.Stream = b.Stream
	s.Occurrences++
}

// extend makes the slot live to the given ends at least.
func (s *Slot) extend(requested, completed int) {
	s.RequestedEnd = max(s.RequestedEnd, requested)
	s.CompletedEnd = max(s.CompletedEnd, completed)
}
