package lifespan

import "github.com/stplan/stplan/internal/trace"

// fillPrologue fills in the slots of the buffers that begin before the cut. A buffer that
// the first pass frees is the content of a cell, if one can be found for it. One that
// lives longer, or has no cell, is resident.
func (c *classifier) fillPrologue() {
	p := c.out
	p.Prologue = make([]PrologueSlot, c.r.first[0])
	var crossing []int32
	for i := range p.Prologue {
		b := &c.tl.Buffers[i]
		s := &p.Prologue[i]
		*s = PrologueSlot{Buffer: int32(i), Size: b.Size, Holder: int32(i), Like: -1, Cell: -1, RequestedEnd: min(b.RequestedEnd, p.Cut), CompletedEnd: c.prologueEnd(b.CompletedEnd)}
		switch pass, _ := c.place(b.Until(c.end)); {
		case pass == 0:
			crossing = append(crossing, int32(i))
		case pass > 0:
			s.Resident = true
		}
	}
	cells := c.matchCells(crossing)
	for i, at := range crossing {
		s := &p.Prologue[at]
		s.Cell, s.Resident = cells[i], cells[i] < 0
		s.RequestedEnd = p.Cut
	}
	for i := range p.Prologue {
		if s := &p.Prologue[i]; s.Resident {
			s.RequestedEnd, s.CompletedEnd = p.Cut, p.Cut
		}
	}
}

// prologueEnd translates a time of the recording into the time of the prologue, which the
// time of the first body continues.
func (c *classifier) prologueEnd(t trace.Time) trace.Time {
	x := c.bodies[0]
	switch pass, rank := c.place(t); {
	case pass < 0:
		return t
	case pass == 0:
		return c.out.Cut + trace.Time(c.below[x][rank+1])
	}
	return c.out.Cut + trace.Time(c.out.Bodies[x].Length)
}
