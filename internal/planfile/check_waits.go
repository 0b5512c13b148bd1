package planfile

// slotOwnsNothing has the flags of the slots that occur in no wait. What lies in a cell is
// owned by the leaving slot, a shared place by its holder, and a stray has no place.
const slotOwnsNothing = SlotEntering | SlotStray | SlotShares

// waits checks each wait, and that they are in order.
func (c *checker) waits() fault {
	d := c.d
	if uint64(len(d.Waits)) > maxRecords {
		return c.fault(sectionWaits, 0, "", "the device has %d, expected fewer than 2^32", len(d.Waits))
	}
	for i, w := range d.Waits {
		bad := func(field, format string, args ...any) fault {
			return c.fault(sectionWaits, i, field, format, args...)
		}
		switch {
		case uint64(w.Later) >= uint64(len(d.Slots)):
			return bad("later", "slot %d is not one of the device's %d", w.Later, len(d.Slots))
		case uint64(w.Earlier) >= uint64(len(d.Slots)):
			return bad("earlier", "slot %d is not one of the device's %d", w.Earlier, len(d.Slots))
		case d.Slots[w.Later].Flags&slotOwnsNothing != 0:
			return bad("later", "slot %d is entering, a stray or shares its place: it takes no bytes over", w.Later)
		case d.Slots[w.Earlier].Flags&slotOwnsNothing != 0:
			return bad("earlier", "slot %d is entering, a stray or shares its place: it owns no bytes that others take over", w.Earlier)
		case w.Kind&waitReasons == 0 || w.Kind&^waitKindsKnown != 0:
			return bad("kind", "%#x, expected 1 (cross-stream), 2 (pending) or both, and 4 if over the seam", uint32(w.Kind))
		case i > 0 && !waitsAscend(d.Waits[i-1], w):
			return bad("", "slots %d and %d after %d and %d, expected waits by later, then earlier slot", w.Later, w.Earlier, d.Waits[i-1].Later, d.Waits[i-1].Earlier)
		}
		if problem := c.seam(w); problem != "" {
			return bad("earlier", problem, w.Earlier, w.Later)
		}
	}
	return fault{}
}

// seam checks the phases of the two slots of a wait, and returns the format of what is
// wrong, for the earlier and the later slot. Within a pass a slot takes over from one
// before it. From the pass of the same body before, it can only take over from itself or
// from a slot after it, because a slot before it has owned its bytes again since.
func (c *checker) seam(w Wait) string {
	later, earlier := c.d.phaseOf(w.Later), c.d.phaseOf(w.Earlier)
	switch over := w.Kind&WaitSeam != 0; {
	case !over && later != earlier:
		return "slot %d is in another phase than slot %d, expected kind 4 (over the seam)"
	case !over && w.Earlier >= w.Later:
		return "slot %d is not before slot %d"
	case over && later == 0:
		return "slot %d before the seam, but slot %d is in the prologue, which is the first phase"
	case over && earlier != 0 && earlier != later:
		return "slot %d before the seam is in another body than slot %d"
	case over && earlier == later && w.Earlier < w.Later:
		return "slot %d before the seam, expected slot %d or one after it, since those before it had their bytes again"
	}
	return ""
}

// phaseOf is the index of the phase that slot i belongs to, 0 in mode recorded.
func (d *Device) phaseOf(i uint32) int {
	p := max(0, len(d.Phases)-1)
	for p > 0 && uint64(i) < d.Phases[p].FirstSlot {
		p--
	}
	return p
}

func waitsAscend(a, b Wait) bool {
	return a.Later < b.Later || a.Later == b.Later && a.Earlier < b.Earlier
}
