package verify

import (
	"maps"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// cells checks the seam: what is live when any phase ends, residents apart, lies
// in the same cells, each at one offset and of one size. Every body fills them,
// but for interludes, which leave them filled. So every body may follow every phase. (That nothing else is live then is for timesIn; that the
// cells do not overlap, for reuses.)
func (j *judge) cells() {
	first := map[uint32]int{} // the first slot of each cell
	for p := range j.stages {
		st := &j.stages[p]
		st.left, st.entered = map[uint32]int{}, map[uint32]int{}
		for i := st.first; i < st.end; i++ {
			s := &j.d.Slots[i]
			if s.Flags&(planfile.SlotEntering|planfile.SlotLeaving) == 0 {
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
				j.violated(RuleCell, first[cell], none, "%s ends with cell %d empty, which slot %d is in", st.name, cell, first[cell])
			}
		}
	}
}

// keptCells are the cells, each as the slot of the first body that fills it: what is
// live throughout an interlude beside its own slots and residents.
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

// needs is what every slot takes in the account: what its request does, in a
// cell what the largest request of its slots does, 0 of a stray.
func (j *judge) needs() []uint64 {
	all, cells := make([]uint64, len(j.d.Slots)), map[uint32]uint64{}
	for i := range all {
		s := &j.d.Slots[i]
		switch {
		case s.Flags&planfile.SlotStray != 0:
		case s.Cell != planfile.NoCell:
			cells[s.Cell] = max(cells[s.Cell], needed(s.Requested))
		default:
			all[i] = needed(s.Requested)
		}
	}
	for i := range all {
		if c := j.d.Slots[i].Cell; c != planfile.NoCell {
			all[i] = cells[c]
		}
	}
	return all
}
