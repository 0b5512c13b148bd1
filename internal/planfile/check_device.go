package planfile

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

// identity checks which device this is and what kind of plan.
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
	case d.Rank < -1:
		return bad("rank", "%d, expected -1 or more", d.Rank)
	case d.Mode == ModePeriodic:
		return bad("mode", "2 (periodic) is reserved for a later version")
	case d.Mode != ModeRecorded:
		return bad("mode", "%d, expected 1 (recorded)", uint32(d.Mode))
	case d.End != EndRequested && d.End != EndCompleted:
		return bad("end", "%d, expected 1 (requested) or 2 (completed)", uint32(d.End))
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
	} {
		if n.value > maxNumber {
			return bad(n.field, "%d is above 2^62", n.value)
		}
	}
	switch a := d.Alignment; {
	case a < minAlignment || a > maxAlignment || a&(a-1) != 0:
		return bad("alignment", "%d, expected a power of two from 512 to 2^30", a)
	case d.ArenaBytes%a != 0:
		return bad("arena bytes", "%d is not a multiple of the alignment %d", d.ArenaBytes, a)
	case d.SteadyStart > d.Events:
		return bad("steady start", "%d is after the last of %d events", d.SteadyStart, d.Events)
	}
	return fault{}
}

func (c *checker) certificate() fault {
	d, cert := c.d, &c.d.Certificate
	bad := func(field, format string, args ...any) fault {
		return c.fault(sectionDevice, 0, field, format, args...)
	}
	switch {
	case cert.Kind != BoundLoad:
		return bad("bound kind", "%d, expected 1 (load)", uint32(cert.Kind))
	case cert.LowerBound > d.ArenaBytes:
		return bad("lower bound", "%d is above the arena of %d B", cert.LowerBound, d.ArenaBytes)
	case cert.At > d.Events:
		return bad("bound at", "%d is after the last of %d events", cert.At, d.Events)
	case cert.Gap != d.ArenaBytes-cert.LowerBound:
		return bad("gap", "%d, expected the arena of %d B less the lower bound of %d B", cert.Gap, d.ArenaBytes, cert.LowerBound)
	}
	return fault{}
}

func (c *checker) streams() fault {
	d := c.d
	if len(d.Streams) > maxStreams {
		return c.fault(sectionStreams, maxStreams, "", "one of %d, expected at most %d", len(d.Streams), maxStreams)
	}
	seen := make(map[uint64]int, len(d.Streams))
	for i, s := range d.Streams {
		if first, ok := seen[s]; ok {
			return c.fault(sectionStreams, i, "", "%#x is stream %d already", s, first)
		}
		seen[s] = i
	}
	return fault{}
}
