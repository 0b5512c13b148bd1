package planfile

import "fmt"

// slots checks each slot, and that they and the streams are in order.
func (c *checker) slots() fault {
	d := c.d
	if uint64(len(d.Slots)) > maxRecords {
		return c.fault(sectionSlots, 0, "", "one of %d, expected fewer than 2^32", len(d.Slots))
	}
	used := uint32(0) // streams used so far
	for i := range d.Slots {
		s := &d.Slots[i]
		field, problem := c.slot(i, s)
		if problem == "" && s.Stream > used {
			field, problem = "stream", fmt.Sprintf("%d before stream %d has a slot, expected streams in the order of their first slot", s.Stream, used)
		}
		if problem != "" {
			return c.fault(sectionSlots, i, field, "%s", problem)
		}
		used = max(used, s.Stream+1)
	}
	if int(used) < len(d.Streams) {
		return c.fault(sectionStreams, int(used), "", "has no slot")
	}
	return fault{}
}

// slot checks slot i alone and its place after slot i-1.
func (c *checker) slot(i int, s *Slot) (field, problem string) {
	if field, problem = c.slotTimes(s); problem != "" {
		return field, problem
	}
	if field, problem = c.slotBytes(s); problem != "" {
		return field, problem
	}
	switch {
	case uint64(s.Stream) >= uint64(len(c.d.Streams)):
		return "stream", fmt.Sprintf("%d is not one of the device's %d", s.Stream, len(c.d.Streams))
	case s.Flags&^slotFlagsKnown != 0:
		return "flags", fmt.Sprintf("%#x has unknown bits", uint32(s.Flags))
	case i > 0:
		return slotOrder(&c.d.Slots[i-1], s)
	}
	return "", ""
}

func (c *checker) slotTimes(s *Slot) (field, problem string) {
	events := c.d.Events
	switch {
	case s.RequestedEnd <= s.Start:
		return "requested end", fmt.Sprintf("%d is not after the start %d", s.RequestedEnd, s.Start)
	case s.CompletedEnd < s.RequestedEnd:
		return "completed end", fmt.Sprintf("%d is before the requested end %d", s.CompletedEnd, s.RequestedEnd)
	case s.CompletedEnd > events:
		return "completed end", fmt.Sprintf("%d is after the last of %d events", s.CompletedEnd, events)
	case s.Flags&SlotInitial != 0 && s.Start != 0:
		return "start", fmt.Sprintf("%d, expected 0 of a slot that was live before", s.Start)
	case s.Flags&SlotResident != 0 && s.RequestedEnd != events:
		return "requested end", fmt.Sprintf("%d, expected %d of a slot that is never freed", s.RequestedEnd, events)
	}
	return "", ""
}

func (c *checker) slotBytes(s *Slot) (field, problem string) {
	a, arena := c.d.Alignment, c.d.ArenaBytes
	switch {
	case s.Size == 0 || s.Size%a != 0:
		return "size", fmt.Sprintf("%d is not a positive multiple of the alignment %d", s.Size, a)
	case s.Offset%a != 0:
		return "offset", fmt.Sprintf("%d is not a multiple of the alignment %d", s.Offset, a)
	case s.Offset > arena || s.Size > arena-s.Offset:
		return "offset", fmt.Sprintf("%d and size %d are beyond the arena of %d B", s.Offset, s.Size, arena)
	case s.Requested > s.Size:
		return "requested", fmt.Sprintf("%d is above the size %d", s.Requested, s.Size)
	}
	return "", ""
}

// slotOrder checks that b may follow a. One event allocates one buffer, so only
// initial slots share a start.
func slotOrder(a, b *Slot) (field, problem string) {
	switch {
	case b.Start < a.Start:
		return "start", fmt.Sprintf("%d after a slot that starts at %d, expected slots by start", b.Start, a.Start)
	case b.Start == a.Start && a.Flags&SlotInitial == 0:
		return "start", fmt.Sprintf("%d twice, expected one slot for an event, after the initial ones", b.Start)
	}
	return "", ""
}

func (c *checker) waits() fault {
	d := c.d
	if uint64(len(d.Waits)) > maxRecords {
		return c.fault(sectionWaits, 0, "", "one of %d, expected fewer than 2^32", len(d.Waits))
	}
	for i, w := range d.Waits {
		bad := func(field, format string, args ...any) fault {
			return c.fault(sectionWaits, i, field, format, args...)
		}
		switch {
		case uint64(w.Later) >= uint64(len(d.Slots)):
			return bad("later", "slot %d is not one of the device's %d", w.Later, len(d.Slots))
		case w.Earlier >= w.Later:
			return bad("earlier", "slot %d is not before slot %d", w.Earlier, w.Later)
		case w.Kind == 0 || w.Kind&^waitKindsKnown != 0:
			return bad("kind", "%#x, expected a sum of 1 (cross-stream) and 2 (pending)", uint32(w.Kind))
		case i > 0 && !waitsAscend(d.Waits[i-1], w):
			return bad("", "slots %d and %d after %d and %d, expected waits by later, then earlier slot", w.Later, w.Earlier, d.Waits[i-1].Later, d.Waits[i-1].Earlier)
		}
	}
	return fault{}
}

func waitsAscend(a, b Wait) bool {
	return a.Later < b.Later || a.Later == b.Later && a.Earlier < b.Earlier
}
