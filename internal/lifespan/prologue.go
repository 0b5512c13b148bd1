package lifespan

import "github.com/stplan/stplan/internal/trace"

// fillPrologue says what becomes of the buffers that begin before the cut.
// What the first pass frees is the content of a cell, if one can be found for
// it, and what lives longer stays for good.
func (c *classifier) fillPrologue() {
	p := c.out
	p.Prologue = make([]PrologueSlot, c.r.first[0])
	var crossing []int32
	for i := range p.Prologue {
		b := &c.tl.Buffers[i]
		s := &p.Prologue[i]
		*s = PrologueSlot{Buffer: int32(i), Cell: -1, RequestedEnd: min(b.RequestedEnd, p.Cut), CompletedEnd: c.prologueEnd(b.CompletedEnd)}
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

// prologueEnd is a time in the prologue, which the first body's continues.
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
