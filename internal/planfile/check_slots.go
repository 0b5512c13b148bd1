package planfile

import "fmt"

// slots checks each slot, the order of the slots, and that streams are in the order of
// their first slots.
func (c *checker) slots() fault {
	d := c.d
	if uint64(len(d.Slots)) > maxRecords {
		return c.fault(sectionSlots, 0, "", "the device has %d, expected fewer than 2^32", len(d.Slots))
	}
	used := uint32(0) // streams used so far
	for _, phase := range d.spans() {
		allocations := uint64(0)
		for i := phase.FirstSlot; i < phase.FirstSlot+phase.SlotCount; i++ {
			s := &d.Slots[i]
			field, problem := c.slot(&phase, s)
			if problem == "" {
				field, problem = phase.order(d.Slots[phase.FirstSlot:i], s, allocations)
			}
			if problem == "" && s.Stream > used {
				field, problem = "stream", fmt.Sprintf("%d before stream %d has a slot, expected streams in the order of their first slot", s.Stream, used)
			}
			if problem != "" {
				return c.fault(sectionSlots, int(i), field, "%s", problem)
			}
			used = max(used, s.Stream+1)
			if s.Flags&SlotEntering == 0 {
				allocations++
			}
		}
		if phase.Kind != PhasePrologue && allocations != phase.Length {
			return c.fault(sectionSlots, int(phase.FirstSlot+phase.SlotCount-1), "", "the body has %d allocations, expected its length %d", allocations, phase.Length)
		}
	}
	if int(used) < len(d.Streams) {
		return c.fault(sectionStreams, int(used), "", "has no slot")
	}
	return fault{}
}

// slot checks one slot by itself. An empty problem means that nothing is wrong.
func (c *checker) slot(phase *span, s *Slot) (field, problem string) {
	for _, rule := range [...]func(*span, *Slot) (field, problem string){c.slotKind, c.slotTimes, c.slotEnds, c.slotBytes} {
		if field, problem = rule(phase, s); problem != "" {
			return field, problem
		}
	}
	return "", ""
}

// slotKind checks the stream, flags, cell and occurrences of a slot.
func (c *checker) slotKind(phase *span, s *Slot) (field, problem string) {
	crosses, shares := s.Flags&(SlotEntering|SlotLeaving) != 0, s.Flags&SlotShares != 0
	switch {
	case uint64(s.Stream) >= uint64(len(c.d.Streams)):
		return "stream", fmt.Sprintf("%d is not one of the device's %d", s.Stream, len(c.d.Streams))
	case s.Flags&^slotFlagsKnown != 0:
		return "flags", fmt.Sprintf("%#x has unknown bits", uint32(s.Flags))
	case c.d.Mode == ModeRecorded && s.Flags&^(SlotResident|SlotInitial) != 0:
		return "flags", fmt.Sprintf("%#x, expected a sum of 1 (resident) and 2 (initial) in mode recorded", uint32(s.Flags))
	case shares && s.Flags != SlotShares:
		return "flags", fmt.Sprintf("%#x, expected no other flag beside 32 (shares)", uint32(s.Flags))
	case phase.Kind == PhasePrologue && (s.Flags&(SlotEntering|SlotStray) != 0 || s.Flags&(SlotResident|SlotLeaving) == SlotResident|SlotLeaving):
		return "flags", fmt.Sprintf("%#x, expected in the prologue at most 2 (initial) and one of 1 (resident) and 8 (leaving), or 32 (shares)", uint32(s.Flags))
	case phase.Kind != PhasePrologue && (s.Flags&(SlotResident|SlotInitial) != 0 || s.Flags&(s.Flags-1) != 0):
		return "flags", fmt.Sprintf("%#x, expected in a body at most one of 4 (entering), 8 (leaving), 16 (stray) and 32 (shares)", uint32(s.Flags))
	case phase.Kind == PhaseInterlude && crosses:
		return "flags", fmt.Sprintf("%#x, expected no slot of an interlude to cross the seam", uint32(s.Flags))
	case crosses && s.Cell == NoCell:
		return "cell", "none, expected one for a slot that crosses the seam"
	case !crosses && !shares && s.Cell != NoCell:
		return "cell", fmt.Sprintf("%d, expected none for a slot that neither crosses the seam nor shares its place", s.Cell)
	case s.Occurrences > phase.Occurrences || s.Occurrences == 0 && s.Flags&SlotEntering == 0:
		return "occurrences", fmt.Sprintf("%d, expected 1 to %d, the occurrences of its phase", s.Occurrences, phase.Occurrences)
	}
	return "", ""
}

// slotTimes checks the order of a slot's times and their limits.
func (c *checker) slotTimes(phase *span, s *Slot) (field, problem string) {
	early := s.Flags&SlotEntering != 0 && c.d.End == EndCompleted && s.RequestedEnd == 0
	switch {
	case s.RequestedEnd <= s.Start && !early:
		return "requested end", fmt.Sprintf("%d is not after the start %d", s.RequestedEnd, s.Start)
	case s.RequestedEnd > phase.Length:
		return "requested end", fmt.Sprintf("%d, expected at most %d, the end of its phase", s.RequestedEnd, phase.Length)
	case s.CompletedEnd < s.RequestedEnd:
		return "completed end", fmt.Sprintf("%d is before the requested end %d", s.CompletedEnd, s.RequestedEnd)
	case s.CompletedEnd > phase.Length+phase.carry:
		return "completed end", fmt.Sprintf("%d, expected at most %d", s.CompletedEnd, phase.Length+phase.carry)
	case s.Flags&(SlotInitial|SlotEntering) != 0 && s.Start != 0:
		return "start", fmt.Sprintf("%d, expected 0 for a slot that is live before its phase", s.Start)
	}
	return "", ""
}

// slotEnds checks the ends that follow from the kind of a slot.
func (c *checker) slotEnds(phase *span, s *Slot) (field, problem string) {
	completed := c.d.End == EndCompleted
	switch {
	case s.Flags&SlotResident != 0 && s.RequestedEnd != phase.Length:
		return "requested end", fmt.Sprintf("%d, expected %d for a slot that is never freed", s.RequestedEnd, phase.Length)
	case s.Flags&SlotResident != 0 && s.CompletedEnd != phase.Length:
		return "completed end", fmt.Sprintf("%d, expected %d for a slot that is never freed", s.CompletedEnd, phase.Length)
	case s.Flags&SlotLeaving != 0 && s.RequestedEnd != phase.Length:
		return "requested end", fmt.Sprintf("%d, expected %d for a slot that leaves its phase", s.RequestedEnd, phase.Length)
	case s.Flags&(SlotLeaving|SlotStray) == 0 && completed && s.CompletedEnd == 0:
		return "completed end", "0, expected at least 1 for a slot that does not leave its phase"
	case s.Flags&(SlotLeaving|SlotStray) == 0 && completed && s.CompletedEnd > phase.Length:
		return "completed end", fmt.Sprintf("%d, expected at most %d for a slot that does not leave its phase", s.CompletedEnd, phase.Length)
	}
	return "", ""
}

// slotBytes checks the offset and the sizes of a slot.
func (c *checker) slotBytes(phase *span, s *Slot) (field, problem string) {
	a, arena := c.d.Alignment, c.d.ArenaBytes
	switch stray := s.Flags&SlotStray != 0; {
	case stray && s.Offset != 0:
		return "offset", fmt.Sprintf("%d, expected 0 for a stray, which has no place", s.Offset)
	case stray && s.Size != 0:
		return "size", fmt.Sprintf("%d, expected 0 for a stray, which has no place", s.Size)
	case stray && s.Requested > maxNumber:
		return "requested", fmt.Sprintf("%d is above 2^62", s.Requested)
	case !stray && (s.Size == 0 || s.Size%a != 0):
		return "size", fmt.Sprintf("%d is not a positive multiple of the alignment %d", s.Size, a)
	case s.Offset%a != 0:
		return "offset", fmt.Sprintf("%d is not a multiple of the alignment %d", s.Offset, a)
	case s.Offset > arena || s.Size > arena-s.Offset:
		return "offset", fmt.Sprintf("%d and size %d are beyond the arena of %d B", s.Offset, s.Size, arena)
	case !stray && s.Requested > s.Size:
		return "requested", fmt.Sprintf("%d is above the size %d", s.Requested, s.Size)
	case s.Least > s.Requested:
		return "least", fmt.Sprintf("%d is above the requested %d", s.Least, s.Requested)
	case phase.Kind == PhasePrologue && s.Least != s.Requested:
		return "least", fmt.Sprintf("%d, expected the requested %d for a slot outside of bodies", s.Least, s.Requested)
	}
	return "", ""
}

// order checks that slot s may follow the slots of its phase before it. allocations is
// the number of these that do not enter.
func (p *span) order(before []Slot, s *Slot, allocations uint64) (field, problem string) {
	if p.Kind != PhasePrologue {
		return bodyOrder(before, s, allocations)
	}
	if len(before) > 0 {
		return slotOrder(&before[len(before)-1], s)
	}
	return "", ""
}

// bodyOrder checks the order in a body: entering slots come first, by cell, and the k-th
// allocation after them starts at time k, from 0.
func bodyOrder(before []Slot, s *Slot, allocations uint64) (field, problem string) {
	switch entering := s.Flags&SlotEntering != 0; {
	case entering && allocations > 0:
		return "flags", "4 (entering) after an allocation, expected entering slots first"
	case entering && len(before) > 0 && s.Cell <= before[len(before)-1].Cell:
		return "cell", fmt.Sprintf("%d after cell %d, expected entering slots by cell", s.Cell, before[len(before)-1].Cell)
	case !entering && s.Start != allocations:
		return "start", fmt.Sprintf("%d, expected %d, the number of allocations before it in the body", s.Start, allocations)
	}
	return "", ""
}

// slotOrder checks that slot b may follow slot a outside of bodies. One event allocates
// one buffer, so only initial slots share a start.
func slotOrder(a, b *Slot) (field, problem string) {
	switch {
	case b.Start < a.Start:
		return "start", fmt.Sprintf("%d after a slot that starts at %d, expected slots by start", b.Start, a.Start)
	case b.Start == a.Start && a.Flags&SlotInitial == 0:
		return "start", fmt.Sprintf("%d, which the slot before has too: only initial slots may share a start", b.Start)
	}
	return "", ""
}
