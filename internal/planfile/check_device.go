package planfile

import "math"

// header checks the device record.
func (c *checker) header(p *Plan) fault {
	if f := c.identity(p); f.is() {
		return f
	}
	if f := c.numbers(); f.is() {
		return f
	}
	return c.certificate()
}

// identity checks the fields that say which device this is and what kind of plan.
func (c *checker) identity(p *Plan) fault {
	d := c.d
	bad := func(field, format string, args ...any) fault {
		return c.fault(sectionDevice, 0, field, format, args...)
	}
	if c.device > 0 {
		previous := &p.Devices[c.device-1]
		if d.Ordinal <= previous.Ordinal {
			return bad("ordinal", "%d after device %d, expected devices to ascend", d.Ordinal, previous.Ordinal)
		}
		if d.Rank != previous.Rank {
			return bad("rank", "%d, expected %d: one file is one process", d.Rank, previous.Rank)
		}
	}
	switch {
	case d.Ordinal > math.MaxInt32:
		return bad("ordinal", "%d, expected 0 to 2^31 - 1", d.Ordinal)
	case d.Rank < -1:
		return bad("rank", "%d, expected -1 or more", d.Rank)
	case d.Mode != ModeRecorded && d.Mode != ModePeriodic:
		return bad("mode", "%d, expected 1 (recorded) or 2 (periodic)", uint32(d.Mode))
	case d.End != EndRequested && d.End != EndCompleted:
		return bad("end", "%d, expected 1 (requested) or 2 (completed)", uint16(d.End))
	case d.Advice > AdvicePool:
		return bad("advice", "%d, expected 0 (none) or 1 (serve without the plan)", uint16(d.Advice))
	}
	return fault{}
}

// numbers checks the sizes and times of the device record.
func (c *checker) numbers() fault {
	d := c.d
	bad := func(field, format string, args ...any) fault {
		return c.fault(sectionDevice, 0, field, format, args...)
	}
	for _, n := range [...]struct {
		field string
		value uint64
	}{
		{"events", d.Events},
		{"arena bytes", d.ArenaBytes},
		{"peak allocated", d.PeakAllocated},
		{"peak active", d.PeakActive},
		{"recorded peak reserved", d.RecordedPeakReserved},
		{"stray bytes", d.StrayBytes},
	} {
		if n.value > maxNumber {
			return bad(n.field, "%d is above 2^62", n.value)
		}
	}
	switch a := d.Alignment; {
	case a < minAlignment || a > maxAlignment || a&(a-1) != 0:
		return bad("alignment", "%d, expected a power of two from %d to 2^30", a, minAlignment)
	case d.ArenaBytes%a != 0:
		return bad("arena bytes", "%d is not a multiple of the alignment %d", d.ArenaBytes, a)
	case d.SteadyStart > d.Events:
		return bad("steady start", "%d is after the last of %d events", d.SteadyStart, d.Events)
	}
	return c.steady()
}

// steady checks the steady end and the stray bytes, which depend on the mode.
func (c *checker) steady() fault {
	d := c.d
	bad := func(field, format string, args ...any) fault {
		return c.fault(sectionDevice, 0, field, format, args...)
	}
	switch periodic := d.Mode == ModePeriodic; {
	case !periodic && d.SteadyEnd != 0:
		return bad("steady end", "%d, expected 0 in mode recorded", d.SteadyEnd)
	case !periodic && d.StrayBytes != 0:
		return bad("stray bytes", "%d, expected 0 in mode recorded", d.StrayBytes)
	case periodic && d.SteadyEnd <= d.SteadyStart:
		return bad("steady end", "%d is not after the steady start %d", d.SteadyEnd, d.SteadyStart)
	case periodic && d.SteadyEnd > d.Events:
		return bad("steady end", "%d is after the last of %d events", d.SteadyEnd, d.Events)
	}
	return fault{}
}

// certificate checks the lower bound and the gap.
func (c *checker) certificate() fault {
	d, cert := c.d, &c.d.Certificate
	bad := func(field, format string, args ...any) fault {
		return c.fault(sectionDevice, 0, field, format, args...)
	}
	switch {
	case cert.Kind < BoundLoad || cert.Kind > BoundApart:
		return bad("bound kind", "%d, expected 1 (load), 2 (witness) or 3 (streams apart)", uint32(cert.Kind))
	case cert.Kind == BoundWitness && d.Mode != ModeRecorded:
		return bad("bound kind", "2 (witness), expected 1 (load) or 3 (streams apart) in mode periodic")
	case cert.Kind == BoundWitness && cert.At != 0:
		return bad("bound at", "%d, expected 0 with bound kind 2 (witness)", cert.At)
	case cert.LowerBound > d.ArenaBytes:
		return bad("lower bound", "%d is above the arena of %d B", cert.LowerBound, d.ArenaBytes)
	case d.Mode == ModeRecorded && cert.At > d.Events:
		return bad("bound at", "%d is after the last of %d events", cert.At, d.Events)
	case cert.Gap != d.ArenaBytes-cert.LowerBound:
		return bad("gap", "%d, expected the arena of %d B less the lower bound of %d B", cert.Gap, d.ArenaBytes, cert.LowerBound)
	}
	return fault{}
}

// witness checks the list of slots that a bound by witness rests on.
func (c *checker) witness() fault {
	d, list := c.d, c.d.Certificate.Witness
	bad := func(i int, format string, args ...any) fault {
		return c.fault(sectionWitness, i, "", format, args...)
	}
	most := 0
	if d.Certificate.Kind == BoundWitness {
		most = MaxWitness
	}
	if len(list) > most {
		return bad(most, "the device has %d, expected at most %d with bound kind %d", len(list), most, uint32(d.Certificate.Kind))
	}
	if len(list) == 0 && most > 0 {
		return c.fault(sectionDevice, 0, "bound kind", "2 (witness), but the witness has no slots")
	}
	for i, s := range list {
		if uint64(s) >= uint64(len(d.Slots)) {
			return bad(i, "slot %d is not one of the device's %d", s, len(d.Slots))
		}
		if i > 0 && s <= list[i-1] {
			return bad(i, "slot %d after slot %d, expected them to ascend", s, list[i-1])
		}
	}
	return fault{}
}

// streams checks that no stream is listed twice.
func (c *checker) streams() fault {
	d := c.d
	if len(d.Streams) > maxStreams {
		return c.fault(sectionStreams, maxStreams, "", "the device has %d, expected at most %d", len(d.Streams), maxStreams)
	}
	seen := make(map[uint64]int, len(d.Streams))
	for i, s := range d.Streams {
		if first, ok := seen[s]; ok {
			return c.fault(sectionStreams, i, "", "%#x is already stream %d", s, first)
		}
		seen[s] = i
	}
	return fault{}
}
