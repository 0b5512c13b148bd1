package lifespan

import "github.com/stplan/stplan/internal/trace"

// fillSlots takes the envelope of each slot over the passes.
func (c *classifier) fillSlots() {
	for x := range c.out.Bodies {
		body := &c.out.Bodies[x]
		body.Slots = make([]Slot, body.Length)
		for i := range body.Slots {
			body.Slots[i] = Slot{Start: i, Cell: -1}
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

// include takes one more buffer into the envelope.
func (s *Slot) include(b *Buffer) {
	if s.Occurrences == 0 || b.Requested < s.Least {
		s.Least = b.Requested
	}
	s.Requested = max(s.Requested, b.Requested)
	s.Size = max(s.Size, b.Size)
	s.Stream = b.Stream
	s.Occurrences++
}

func (s *Slot) extend(requested, completed int) {
	s.RequestedEnd = max(s.RequestedEnd, requested)
	s.CompletedEnd = max(s.CompletedEnd, completed)
}
