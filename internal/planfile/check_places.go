package planfile

import "fmt"

// places checks that every slot that shares its place names a holder, and has the place
// of that.
func (c *checker) places() fault {
	d := c.d
	for _, phase := range d.spans() {
		for i := phase.FirstSlot; i < phase.FirstSlot+phase.SlotCount; i++ {
			if d.Slots[i].Flags&SlotShares == 0 {
				continue
			}
			if field, problem := d.sharedPlace(phase.FirstSlot, i); problem != "" {
				return c.fault(sectionSlots, int(i), field, "%s", problem)
			}
		}
	}
	return fault{}
}

// sharedPlace says what is wrong with the place that slot i shares. first is the first
// slot of its phase. A holder has no flags, so it shares no place itself: the members of
// a place name one holder, and each place has one. An empty problem means that nothing is
// wrong.
func (d *Device) sharedPlace(first, i uint64) (field, problem string) {
	s := &d.Slots[i]
	if k := uint64(s.Cell); k < first || k >= i {
		return "cell", fmt.Sprintf("%d, expected the slot whose place this one shares, an earlier one of its phase: at least %d and below %d", k, first, i)
	}
	switch holder := &d.Slots[s.Cell]; {
	case holder.Flags != 0:
		return "cell", fmt.Sprintf("slot %d has the flags %#x, expected none of a slot whose place this one shares", s.Cell, uint32(holder.Flags))
	case s.Stream != holder.Stream:
		return "stream", fmt.Sprintf("%d, expected %d, the stream of slot %d, whose place it shares", s.Stream, holder.Stream, s.Cell)
	case s.Offset != holder.Offset:
		return "offset", fmt.Sprintf("%d, expected %d, that of slot %d, whose place it shares", s.Offset, holder.Offset, s.Cell)
	case s.Size != holder.Size:
		return "size", fmt.Sprintf("%d, expected %d, that of slot %d, whose place it shares", s.Size, holder.Size, s.Cell)
	}
	return "", ""
}
