package planfile

import "math/bits"

// span is a phase with what its slots are checked by.
type span struct {
	*Phase
	carry uint64 // a completed end is at most this much after the end of the phase
}

// spans are the phases of a device. A recorded plan is one prologue without a body.
func (d *Device) spans() []span {
	if d.Mode == ModeRecorded {
		n := uint64(len(d.Slots))
		return []span{{&Phase{Kind: PhasePrologue, Occurrences: 1, Length: d.Events, SlotCount: n}, 0}}
	}
	all := make([]span, len(d.Phases))
	for i := range d.Phases {
		// A free that is pending when the prologue ends completes in the first body.
		all[i] = span{&d.Phases[i], d.Phases[max(1, i)].Length}
	}
	return all
}

// phases checks that the phases divide the slots of the device, and their figures.
func (c *checker) phases() fault {
	d := c.d
	if d.Mode == ModeRecorded {
		if len(d.Phases) > 0 {
			return c.fault(sectionPhases, 0, "", "the device has %d, expected none in mode recorded", len(d.Phases))
		}
		return fault{}
	}
	if n := len(d.Phases); n < 2 || n > maxPhases {
		return c.fault(sectionDevice, 0, "mode", "2 (periodic) with %d phases, expected 2 to %d", n, maxPhases)
	}
	next, time := uint64(0), uint64(0)
	for i := range d.Phases {
		p := &d.Phases[i]
		field, format, args := c.phase(i, p, next)
		if format != "" {
			return c.fault(sectionPhases, i, field, format, args...)
		}
		next += p.SlotCount
		time += p.Length
	}
	if n := uint64(len(d.Slots)); next != n {
		return c.fault(sectionPhases, len(d.Phases)-1, "slots", "the phases have %d slots, the device %d", next, n)
	}
	if at := d.Certificate.At; at > time {
		return c.fault(sectionDevice, 0, "bound at", "%d is after %d, the end of the last phase", at, time)
	}
	return fault{}
}

// phase checks phase i alone. Its slots have to start at index next. An empty format
// means that nothing is wrong.
func (c *checker) phase(i int, p *Phase, next uint64) (field, format string, args []any) {
	d := c.d
	bad := func(field, format string, args ...any) (string, string, []any) { return field, format, args }
	slots := uint64(len(d.Slots))
	switch {
	case i == 0 && p.Kind != PhasePrologue:
		return bad("kind", "%d, expected 1 (prologue) for the first phase", uint32(p.Kind))
	case i == 1 && p.Kind != PhaseBody:
		return bad("kind", "%d, expected 2 (body) for the second phase", uint32(p.Kind))
	case i > 1 && p.Kind != PhaseBody && p.Kind != PhaseInterlude:
		return bad("kind", "%d, expected 2 (body) or 3 (interlude)", uint32(p.Kind))
	case i == 0 && p.Occurrences != 1:
		return bad("occurrences", "%d, expected 1 for the prologue", p.Occurrences)
	case i > 0 && p.Occurrences == 0:
		return bad("occurrences", "0, expected at least 1 for a body")
	case i == 0 && (p.Length == 0 || p.Length != d.SteadyStart):
		return bad("length", "%d, expected the steady start %d, and above 0", p.Length, d.SteadyStart)
	case p.FirstSlot != next:
		return bad("first slot", "%d, expected %d", p.FirstSlot, next)
	case p.SlotCount > slots-next:
		return bad("slots", "%d from slot %d on, but the device has %d", p.SlotCount, next, slots)
	case i > 0 && (p.Length == 0 || p.Length > p.SlotCount):
		return bad("length", "%d, expected 1 to %d, the number of slots", p.Length, p.SlotCount)
	case p.Makespan > d.ArenaBytes || p.Makespan%d.Alignment != 0:
		return bad("makespan", "%d, expected a multiple of the alignment %d, at most the arena of %d B", p.Makespan, d.Alignment, d.ArenaBytes)
	case p.LowerBound > p.Makespan:
		return bad("lower bound", "%d is above the makespan of %d B", p.LowerBound, p.Makespan)
	case p.BoundAt > p.Length:
		return bad("bound at", "%d is after %d, the end of the phase", p.BoundAt, p.Length)
	}
	return "", "", nil
}

// passes checks the recorded passes and the presence of slots in them.
func (c *checker) passes() fault {
	d := c.d
	if n := len(d.Passes); d.Mode == ModeRecorded && n > 0 {
		return c.fault(sectionPasses, 0, "", "the device has %d, expected none in mode recorded", n)
	} else if uint64(n) > maxRecords {
		return c.fault(sectionPasses, 0, "", "the device has %d, expected fewer than 2^32", n)
	}
	passes := make([]uint32, len(d.Phases)) // number of passes of each phase
	begun := uint32(0)                      // the last phase that had a pass
	for i := range d.Passes {
		p := &d.Passes[i]
		bad := func(field, format string, args ...any) fault {
			return c.fault(sectionPasses, i, field, format, args...)
		}
		switch {
		case i == 0 && p.FirstEvent != d.SteadyStart:
			return bad("first event", "%d, expected the steady start %d", p.FirstEvent, d.SteadyStart)
		case i > 0 && p.FirstEvent <= d.Passes[i-1].FirstEvent:
			return bad("first event", "%d is not after %d, at which the pass before begins", p.FirstEvent, d.Passes[i-1].FirstEvent)
		case p.FirstEvent >= d.SteadyEnd:
			return bad("first event", "%d is not before the steady end %d", p.FirstEvent, d.SteadyEnd)
		case p.Phase == 0 || uint64(p.Phase) >= uint64(len(d.Phases)):
			return bad("phase", "%d, expected a body, 1 to %d", p.Phase, len(d.Phases)-1)
		case p.Phase > begun+1:
			return bad("phase", "%d before phase %d had a pass, expected bodies in the order of their first pass", p.Phase, begun+1)
		}
		if f := c.presence(i); f.is() {
			return f
		}
		passes[p.Phase]++
		begun = max(begun, p.Phase)
	}
	for i := 1; i < len(d.Phases); i++ {
		if n := d.Phases[i].Occurrences; n != passes[i] {
			return c.fault(sectionPhases, i, "occurrences", "%d, but %d passes are listed", n, passes[i])
		}
	}
	return c.occurrences()
}

// presence checks that a pass has a bit for each allocation slot of its body, and no bit
// beyond them.
func (c *checker) presence(pass int) fault {
	d, p := c.d, &c.d.Passes[pass]
	slots := d.Phases[p.Phase].Length
	if found, want := uint64(len(p.Present)), presenceWords(slots); found != want {
		return c.fault(sectionPasses, pass, "", "presence of %d words, expected %d for %d slots", found, want, slots)
	}
	if last := len(p.Present) - 1; slots%64 != 0 && p.Present[last]>>(slots%64) != 0 {
		return c.fault(sectionPasses, pass, "", "presence %#x in its last word, expected bits for %d slots", p.Present[last], slots%64)
	}
	return fault{}
}

// occurrences compares the occurrences of every allocation slot with its set bits.
func (c *checker) occurrences() fault {
	d := c.d
	for i := 1; i < len(d.Phases); i++ {
		phase := &d.Phases[i]
		seen := make([]uint32, phase.Length)
		for k := range d.Passes {
			if d.Passes[k].Phase == uint32(i) {
				countBits(seen, d.Passes[k].Present)
			}
		}
		first := phase.FirstSlot + phase.SlotCount - phase.Length // past the entering slots
		for k, n := range seen {
			if s := first + uint64(k); d.Slots[s].Occurrences != n {
				return c.fault(sectionSlots, int(s), "occurrences", "%d, but %d passes have it", d.Slots[s].Occurrences, n)
			}
		}
	}
	return fault{}
}

// countBits adds each bit of words to the entry of seen with its index.
func countBits(seen []uint32, words []uint64) {
	for w, word := range words {
		for ; word != 0; word &= word - 1 {
			seen[w*64+bits.TrailingZeros64(word)]++
		}
	}
}
