package main

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
)

// circle is a periodic plan as a packing problem: the phases one after the
// other on one line, in plan time. Residents live to the end of the line. A
// cell is one buffer, live from where a phase fills it to the end of that phase
// and from the beginning of every body to where the body empties it; in between
// it has gaps. So the max load of the line is that of the circle.
type circle struct {
	end     lifespan.End
	base    []packing.Time // where each phase begins, and where the last ends
	problem *packing.Problem
	uses    []packing.Use // of each buffer
	streams streamTable   // in the plan's order
	// The buffer of the problem that each slot is: of the prologue first, then
	// of the allocation slots of each body. -1 for a stray.
	slots [][]int32
	cells []int32
}

func newCircle(tl *lifespan.Timeline, per *lifespan.Periodic, end lifespan.End) *circle {
	c := &circle{end: end, problem: &packing.Problem{Alignment: planAlignment}, base: []packing.Time{0, packing.Time(per.Cut)}}
	for i := range per.Bodies {
		c.base = append(c.base, c.base[i+1]+packing.Time(per.Bodies[i].Length))
	}
	c.prologue(tl, per)
	for i := range per.Bodies {
		c.body(i+1, &per.Bodies[i])
	}
	c.addCells(tl, per)
	return c
}

// last is the end of the line.
func (c *circle) last() packing.Time { return c.base[len(c.base)-1] }

func (c *circle) add(b packing.Buffer, u packing.Use) int32 {
	c.problem.Buffers, c.uses = append(c.problem.Buffers, b), append(c.uses, u)
	return int32(len(c.problem.Buffers) - 1)
}

func (c *circle) prologue(tl *lifespan.Timeline, per *lifespan.Periodic) {
	of := make([]int32, len(per.Prologue))
	for i, s := range per.Prologue {
		b := &tl.Buffers[s.Buffer]
		end, stream := packing.Time(s.Until(c.end, per.Cut)), c.streams.of(b.Stream)
		switch {
		case s.Cell >= 0:
			of[i] = -1 // see addCells
			continue
		case s.Resident:
			end = c.last()
		}
		of[i] = c.add(packing.Buffer{Start: packing.Time(b.Start), End: end, Size: packing.Bytes(b.Size)},
			packing.Use{Stream: stream, Settled: packing.Time(s.CompletedEnd)})
	}
	c.slots = append(c.slots, of)
}

func (c *circle) body(phase int, body *lifespan.Body) {
	of := make([]int32, len(body.Slots))
	at := func(t int) packing.Time { return c.base[phase] + packing.Time(t) }
	for _, s := range body.Entering {
		c.streams.of(s.Stream)
	}
	for i := range body.Slots {
		s := &body.Slots[i]
		stream := c.streams.of(s.Stream)
		of[i] = -1
		if !s.Stray && s.Cell < 0 {
			of[i] = c.add(packing.Buffer{Start: at(s.Start), End: at(s.Until(c.end, body.Length)), Size: packing.Bytes(s.Size)},
				packing.Use{Stream: stream, Settled: at(s.CompletedEnd)})
		}
	}
	c.slots = append(c.slots, of)
}

// stretch is a piece of plan time in which a cell is full.
type stretch struct{ from, to packing.Time }

// addCells adds one buffer for each cell. Its stream is that of what fills it.
func (c *circle) addCells(tl *lifespan.Timeline, per *lifespan.Periodic) {
	full, streams := make([][]stretch, len(per.Cells)), make([]int32, len(per.Cells))
	for _, s := range per.Prologue {
		if s.Cell >= 0 {
			full[s.Cell] = append(full[s.Cell], stretch{packing.Time(tl.Buffers[s.Buffer].Start), c.base[1]})
		}
	}
	for i := range per.Bodies {
		from, to := c.base[i+1], c.base[i+2]
		if per.Bodies[i].Interlude {
			for cell := range full {
				full[cell] = append(full[cell], stretch{from, to})
			}
		}
		for _, s := range per.Bodies[i].Entering {
			full[s.Cell] = append(full[s.Cell], stretch{from, from + packing.Time(s.Until(c.end, per.Bodies[i].Length))})
		}
		for _, s := range per.Bodies[i].Slots {
			if s.Cell >= 0 {
				full[s.Cell] = append(full[s.Cell], stretch{from + packing.Time(s.Start), to})
				streams[s.Cell] = c.streams.of(s.Stream)
			}
		}
	}
	for cell, parts := range full {
		c.cells = append(c.cells, c.cell(parts, packing.Bytes(per.Cells[cell].Size), streams[cell]))
	}
	for i, s := range per.Prologue {
		if s.Cell >= 0 {
			c.slots[0][i] = c.cells[s.Cell]
		}
	}
	for i := range per.Bodies {
		for k, s := range per.Bodies[i].Slots {
			if s.Cell >= 0 {
				c.slots[i+1][k] = c.cells[s.Cell]
			}
		}
	}
}

// cell adds the buffer of a cell that is full in the given stretches, with gaps
// where it is in none of them.
func (c *circle) cell(parts []stretch, size packing.Bytes, stream int32) int32 {
	slices.SortFunc(parts, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	b, end := len(c.problem.Buffers), parts[0].to
	for _, s := range parts[1:] {
		if s.from > end {
			c.problem.Gaps = append(c.problem.Gaps, packing.Gap{Buffer: b, From: end, To: s.from})
		}
		end = max(end, s.to)
	}
	return c.add(packing.Buffer{Start: parts[0].from, End: end, Size: size}, packing.Use{Stream: stream, Settled: end})
}
