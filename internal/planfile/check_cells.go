package planfile

// cells checks that every cell has one place, that every body except interludes fills it
// exactly once and the prologue at most once, and that cells are numbered in the order in
// which the first body fills them.
func (c *checker) cells() fault {
	d := c.d
	if d.Mode == ModeRecorded {
		return fault{}
	}
	n, body := 0, &d.Phases[1]
	for _, s := range d.Slots[body.FirstSlot : body.FirstSlot+body.SlotCount] {
		if s.Flags&SlotLeaving != 0 {
			n++
		}
	}
	first := make([]int, n)  // first[k]-1 is the first slot of cell k
	filled := make([]int, n) // filled[k]-1 is the last phase that fills cell k
	for p := range d.Phases {
		if f := c.cellsOf(p, first, filled); f.is() {
			return f
		}
	}
	return fault{}
}

// cellsOf checks the cells of phase p. first and filled are those of cells.
func (c *checker) cellsOf(p int, first, filled []int) fault {
	d, phase := c.d, &c.d.Phases[p]
	leaving := 0
	for i := phase.FirstSlot; i < phase.FirstSlot+phase.SlotCount; i++ {
		s := &d.Slots[i]
		bad := func(field, format string, args ...any) fault {
			return c.fault(sectionSlots, int(i), field, format, args...)
		}
		if s.Flags&(SlotEntering|SlotLeaving) == 0 {
			continue
		}
		if uint64(s.Cell) >= uint64(len(first)) {
			return bad("cell", "%d is not one of the %d cells that the first body fills", s.Cell, len(first))
		}
		if first[s.Cell] == 0 {
			first[s.Cell] = int(i) + 1
		}
		if other := &d.Slots[first[s.Cell]-1]; s.Offset != other.Offset || s.Size != other.Size {
			return bad("cell", "%d has %d B at offset %d here, but %d B at offset %d in slot %d", s.Cell, s.Size, s.Offset, other.Size, other.Offset, first[s.Cell]-1)
		}
		if s.Flags&SlotLeaving != 0 {
			if filled[s.Cell] == p+1 {
				return bad("cell", "%d is filled a second time in its phase", s.Cell)
			}
			if p == 1 && s.Cell != uint32(leaving) {
				return bad("cell", "%d, expected %d: the first body fills the cells in the order of their numbers", s.Cell, leaving)
			}
			filled[s.Cell] = p + 1
			leaving++
		}
	}
	if phase.Kind == PhaseBody && leaving != len(first) {
		return c.fault(sectionPhases, p, "", "fills %d of %d cells, expected all of them", leaving, len(first))
	}
	return fault{}
}
