package verify

import (
	"maps"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// crosses has the flags of the slots that lie in a cell.
const crosses = planfile.SlotEntering | planfile.SlotLeaving

// cells checks the seam: every cell has one offset and one size, and every body fills
// every cell, except interludes, which leave them filled. So what is live at the end of
// every phase, besides residents, lies in the same cells, and any body may follow any
// phase. timesIn checks that nothing else is live then, and reuses that cells do not
// overlap.
func (j *judge) cells() {
	first := map[uint32]int{} // the first slot of each cell
	for p := range j.stages {
		st := &j.stages[p]
		st.left, st.entered = map[uint32]int{}, map[uint32]int{}
		for i := st.first; i < st.end; i++ {
			s := &j.d.Slots[i]
			if s.Flags&crosses == 0 {
				continue
			}
			if k, ok := first[s.Cell]; !ok {
				first[s.Cell] = i
			} else if f := &j.d.Slots[k]; f.Offset != s.Offset || f.Size != s.Size {
				j.violated(RuleCell, k, i, "cell %d is %d B at offset %d in slot %d, and %d B at offset %d in slot %d of %s", s.Cell, f.Size, f.Offset, k, s.Size, s.Offset, i, st.name)
			}
			if s.Flags&planfile.SlotEntering != 0 {
				st.entered[s.Cell] = i
				continue
			}
			if k, ok := st.left[s.Cell]; ok {
				j.violated(RuleCell, k, i, "slots %d and %d both leave %s in cell %d", k, i, st.name, s.Cell)
			}
			st.left[s.Cell] = i
		}
	}
	for _, cell := range slices.Sorted(maps.Keys(first)) {
		for p := range j.stages {
			st := &j.stages[p]
			if _, fills := st.left[cell]; st.body && !st.interlude && !fills {
				j.violated(RuleCell, first[cell], none, "%s does not fill cell %d, which slot %d is in", st.name, cell, first[cell])
			}
		}
	}
}

// keptCells has a slot for each cell: the one of the first body that fills it. Their
// bytes are live throughout an interlude.
func (j *judge) keptCells() (slots []int) {
	if len(j.stages) < 2 {
		return nil // mode recorded
	}
	left := j.stages[1].left
	for _, cell := range slices.Sorted(maps.Keys(left)) {
		slots = append(slots, left[cell])
	}
	return slots
}

// needs is the number of bytes that each slot counts with: its request rounded up, in a
// cell the largest of the cell's slots, for a holder the whole place, and 0 for a stray and
// for a slot that shares its place.
func (j *judge) needs() []uint64 {
	all, cells := make([]uint64, len(j.d.Slots)), map[uint32]uint64{}
	for i := range all {
		s := &j.d.Slots[i]
		switch {
		case s.Flags&planfile.SlotStray != 0:
		case s.Flags&planfile.SlotShares != 0:
			all[s.Cell] = s.Size // that of its holder, which is before it
		case s.Flags&crosses != 0:
			cells[s.Cell] = max(cells[s.Cell], needed(s.Requested))
		default:
			all[i] = needed(s.Requested)
		}
	}
	for i := range all {
		if s := &j.d.Slots[i]; s.Flags&crosses != 0 {
			all[i] = cells[s.Cell]
		}
	}
	return all
}
