package planfile

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
		case uint64(w.Earlier) >= uint64(len(d.Slots)):
			return bad("earlier", "slot %d is not one of the device's %d", w.Earlier, len(d.Slots))
		case d.Slots[w.Later].Flags&(SlotEntering|SlotStray) != 0:
			return bad("later", "slot %d takes nothing over: it is entering or a stray", w.Later)
		case d.Slots[w.Earlier].Flags&(SlotEntering|SlotStray) != 0:
			return bad("earlier", "slot %d leaves nothing to others: it is entering or a stray", w.Earlier)
		case w.Kind&waitReasons == 0 || w.Kind&^waitKindsKnown != 0:
			return bad("kind", "%#x, expected a sum of 1 (cross-stream) and 2 (pending), and 4 over the seam", uint32(w.Kind))
		case i > 0 && !waitsAscend(d.Waits[i-1], w):
			return bad("", "slots %d and %d after %d and %d, expected waits by later, then earlier slot", w.Later, w.Earlier, d.Waits[i-1].Later, d.Waits[i-1].Earlier)
		}
		if problem := c.seam(w); problem != "" {
			return bad("earlier", "slot %d %s slot %d", w.Earlier, problem, w.Later)
		}
	}
	return fault{}
}

// seam checks in which phases the two slots of a wait are. In one pass a slot
// takes over from one before it; from a pass of its own body before, only from
// itself or one after it: any other has had its bytes again since.
func (c *checker) seam(w Wait) string {
	later, earlier := c.d.phaseOf(w.Later), c.d.phaseOf(w.Earlier)
	switch over := w.Kind&WaitSeam != 0; {
	case !over && later != earlier:
		return "is of another phase than"
	case !over && w.Earlier >= w.Later:
		return "is not before"
	case over && later == 0:
		return "is over the seam, but the prologue has"
	case over && earlier != 0 && earlier != later:
		return "is over the seam, but of another body than"
	case over && earlier == later && w.Earlier < w.Later:
		return "is over the seam, but before"
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
