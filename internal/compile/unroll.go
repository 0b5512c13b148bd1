package compile

import (
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
)

// unrolled is a prologue and some passes of one body on one timeline, to count
// waits on: the body's n-th pass begins where the one before ends, and what lies
// in a cell is one buffer, from the phase that fills it to the one that frees it.
type unrolled struct {
	problem packing.Problem
	uses    []packing.Use
	offsets []packing.Bytes
	slots   []int32 // of each buffer: an index into draft.slots
	pass    []int   // of each buffer: 0 for the prologue, then the passes from 1
}

// unroll plays the prologue and then body x the given number of times, every
// slot present. Strays have no place and are left out.
func unroll(d *draft, x, passes int) *unrolled {
	u := &unrolled{problem: packing.Problem{Alignment: alignment}}
	enters, interlude := enteringEnds(d, x), d.phases[x].kind == planfile.PhaseInterlude
	base, end := packing.Time(0), d.phases[0].length+packing.Time(passes)*d.phases[x].length
	for pass := range passes + 1 {
		p := &d.phases[min(pass, 1)*x]
		next := base + p.length
		for i := p.first; i < p.first+p.count; i++ {
			s := &d.slots[i]
			if s.is(planfile.SlotEntering | planfile.SlotStray | planfile.SlotShares) {
				continue
			}
			until := base + d.until(s)
			switch {
			case s.is(planfile.SlotResident), s.is(planfile.SlotLeaving) && interlude:
				until = end
			case s.is(planfile.SlotLeaving):
				until = min(end, next+enters[s.cell])
			}
			u.add(d, int32(i), pass, base+s.start, until, base+s.settled())
		}
		base = next
		if pass == 0 && interlude {
			u.addCells(d, base, end)
		}
	}
	return u
}

// enteringEnds is when body x frees what it finds in each cell: 0, which is before
// its first allocation, for a cell that it has no entering slot for.
func enteringEnds(d *draft, x int) map[int32]packing.Time {
	ends := map[int32]packing.Time{}
	for i := range d.of(x) {
		if s := &d.of(x)[i]; s.is(planfile.SlotEntering) {
			ends[s.cell] = d.until(s)
		}
	}
	return ends
}

// addCells adds the cells that the prologue left empty: before an interlude some
// body has filled them.
func (u *unrolled) addCells(d *draft, start, end packing.Time) {
	filled := map[int32]bool{}
	for _, s := range d.of(0) {
		filled[s.cell] = true
	}
	first := &d.phases[1]
	for i := first.first; i < first.first+first.count; i++ {
		if s := &d.slots[i]; s.is(planfile.SlotLeaving) && !filled[s.cell] {
			u.add(d, int32(i), 0, start, end, end)
		}
	}
}

func (u *unrolled) add(d *draft, slot int32, pass int, start, end, settled packing.Time) {
	s := &d.slots[slot]
	if d.end == lifespan.EndCompleted {
		settled = end // nobody takes the bytes before
	}
	u.problem.Buffers = append(u.problem.Buffers, packing.Buffer{Start: start, End: end, Size: s.size})
	u.uses = append(u.uses, packing.Use{Stream: s.stream, Settled: settled})
	u.offsets = append(u.offsets, s.offset)
	u.slots = append(u.slots, slot)
	u.pass = append(u.pass, pass)
}

func (u *unrolled) placement() packing.Placement {
	pl := packing.Placement{Offsets: u.offsets}
	for i, b := range u.problem.Buffers {
		pl.Makespan = max(pl.Makespan, u.offsets[i]+b.Size)
	}
	return pl
}
