package baseline

import "github.com/stplan/stplan/internal/trace"

// Granted is the program of a recording that ends in an out-of-memory, with the request
// that failed as one that is served, and freed at once: what the program would have
// needed to get beyond it. Other recordings are returned as they are.
func (p *Program) Granted() *Program {
	failures := p.device.Failures()
	fatal := failures.FatalAt()
	if fatal < 0 {
		return p
	}
	granted := *p
	granted.ops = make([]op, 0, len(p.ops)+2)
	for _, o := range p.ops {
		if o.kind == opRefused && o.at == fatal {
			o.kind = opAlloc
			granted.ops = append(granted.ops, o, op{opFree, o.buffer, o.at}, op{opComplete, o.buffer, o.at})
			continue
		}
		granted.ops = append(granted.ops, o)
	}
	return &granted
}

// ReservedAt is what the recorded allocator held after an event, in bytes.
func ReservedAt(d *trace.Device, at trace.Time) trace.Bytes {
	reserved := initiallyReserved(d)
	for i := range d.Events[:at+1] {
		reserved += segmentDelta(&d.Events[i])
	}
	return reserved
}

// PeakReservedAt is the first event after which the recorded allocator held most, -1 for
// before the recording.
func PeakReservedAt(d *trace.Device) trace.Time {
	reserved, at := newPeak(initiallyReserved(d)), trace.Time(-1)
	for i := range d.Events {
		before := reserved.most
		if reserved.add(segmentDelta(&d.Events[i])); reserved.most > before {
			at = trace.Time(i)
		}
	}
	return at
}
