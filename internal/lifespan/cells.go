package lifespan

import (
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// fillEntering makes the entering slots: it follows the content of the cells into the
// pass that frees it.
func (c *classifier) fillEntering() {
	found := make([][]Slot, len(c.out.Bodies))
	for x := range found {
		found[x] = make([]Slot, len(c.out.Cells))
	}
	enter := func(j int, cell int32, b *Buffer) {
		if pass, _ := c.place(b.Until(c.end)); pass != j {
			return
		}
		s := &found[c.bodies[j]][cell]
		s.include(b)
		s.Cell = cell
		s.extend(c.timeIn(j, b.RequestedEnd), c.timeIn(j, b.CompletedEnd))
	}
	for _, s := range c.out.Prologue {
		if s.Cell >= 0 {
			enter(0, s.Cell, &c.tl.Buffers[s.Buffer])
		}
	}
	for j := range c.r.steps() - 1 {
		for b := c.r.first[j]; b < c.r.first[j+1]; b++ {
			if cell := c.cells[c.r.at(b)]; cell >= 0 {
				enter(j+1, cell, &c.tl.Buffers[b])
			}
		}
	}
	for x := range found {
		c.enterUnseen(x, found[x])
		c.out.Bodies[x].Entering = slices.DeleteFunc(found[x], func(s Slot) bool { return s.CompletedEnd == 0 })
	}
}

// enterUnseen adds an entering slot for each cell that no recorded pass of body x began
// with. Nothing shows when the body frees what another pass leaves there, so it is taken
// to live until the body fills the cell again. Its occurrences and requests are 0.
func (c *classifier) enterUnseen(x int, entering []Slot) {
	body := &c.out.Bodies[x]
	for i := range body.Slots {
		leaving := &body.Slots[i]
		if leaving.Cell < 0 || entering[leaving.Cell].Occurrences > 0 {
			continue
		}
		s := &entering[leaving.Cell]
		s.Cell, s.Stream = leaving.Cell, leaving.Stream
		s.extend(leaving.Start, leaving.Start)
	}
}

// fitCells gives all slots of a cell its size.
func (c *classifier) fitCells() {
	cells := c.out.Cells
	each := func(yield func(*Slot)) {
		for x := range c.out.Bodies {
			for _, slots := range [][]Slot{c.out.Bodies[x].Entering, c.out.Bodies[x].Slots} {
				for i := range slots {
					if slots[i].Cell >= 0 {
						yield(&slots[i])
					}
				}
			}
		}
	}
	each(func(s *Slot) { cells[s.Cell].Size = max(cells[s.Cell].Size, s.Size) })
	each(func(s *Slot) { s.Size = cells[s.Cell].Size })
}

// content is what the buffers in a cell have in common from pass to pass.
type content struct {
	stream uint64
	size   trace.Bytes
	freed  int32 // rank of the last allocation before the free
	filled int32 // rank of the cell's leaving slot, 0 in the content of a single buffer
}

// matchCells finds the cell of each buffer that crosses into the first pass, -1 if
// there is none. It tries, in this order: a cell freed at the same place with content
// of the same size, one freed at the same place, and one with content of the same size.
// Streams have to be equal, and the cell has to take the buffer.
func (c *classifier) matchCells(crossing []int32) []int32 {
	cells := c.contents()
	out := make([]int32, len(crossing))
	for i := range out {
		out[i] = -1
	}
	// Each function keeps the fields that have to be equal.
	for _, general := range []func(content) content{
		func(x content) content { return content{stream: x.stream, size: x.size, freed: x.freed} },
		func(x content) content { return content{stream: x.stream, freed: x.freed} },
		func(x content) content { return content{stream: x.stream, size: x.size} },
	} {
		free := map[content][]int32{}
		for cell, x := range cells {
			if x.size > 0 {
				free[general(x)] = append(free[general(x)], int32(cell))
			}
		}
		for i, b := range crossing {
			x := c.content(b)
			queue := free[general(x)]
			if out[i] >= 0 || len(queue) == 0 || !cells[queue[0]].takes(x) {
				continue
			}
			out[i], free[general(x)] = queue[0], queue[1:]
			cells[queue[0]].size = 0 // taken
		}
	}
	return out
}

// takes says whether a cell with content x can hold y as well: the sizes are within a
// factor of 2, so that the cell grows little, and y is freed before the cell is filled
// again.
func (x content) takes(y content) bool {
	return y.freed < x.filled && x.size <= 2*y.size && y.size <= 2*x.size
}

// content is the content of a cell that holds the buffer.
func (c *classifier) content(buffer int32) content {
	b := &c.tl.Buffers[buffer]
	_, rank := c.place(b.Until(c.end))
	return content{stream: b.Stream, size: b.Size, freed: rank}
}

// contents has the first known content of each cell. Its size is 0 if none is known.
func (c *classifier) contents() []content {
	out := make([]content, len(c.out.Cells))
	for j := range c.r.steps() - 1 {
		for b := c.r.first[j]; b < c.r.first[j+1]; b++ {
			cell := c.cells[c.r.at(b)]
			if pass, _ := c.place(c.tl.Buffers[b].Until(c.end)); cell >= 0 && pass == j+1 && out[cell].size == 0 {
				out[cell] = c.content(b)
				out[cell].filled = c.r.at(b)
			}
		}
	}
	return out
}
