package compile

import (
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/verify"
)

// write makes the plan file's form of a finished draft, with its certificate.
func (c *compiler) write(d *draft, pl packing.Placement) *planfile.Device {
	dev := &planfile.Device{
		Ordinal:              uint32(c.device.Ordinal),
		Rank:                 -1,
		Mode:                 planfile.ModeRecorded,
		End:                  planfile.EndRequested,
		Fingerprint:          c.device.Fingerprint(),
		Events:               uint64(c.timeline.Events),
		Alignment:            uint64(alignment),
		ArenaBytes:           uint64(pl.Makespan),
		PeakAllocated:        uint64(c.timeline.PeakAllocated.Bytes),
		PeakActive:           uint64(c.timeline.PeakActive.Bytes),
		RecordedPeakReserved: uint64(c.reserved),
		Iterations:           uint32(c.iterations.Count),
		SteadyStart:          uint64(c.iterations.SteadyStart),
		Certificate:          c.certificate(pl),
		Streams:              d.streams.numbers(),
	}
	if c.end() == lifespan.EndCompleted {
		dev.End = planfile.EndCompleted
	}
	for i := range d.slots {
		dev.Slots = append(dev.Slots, d.slots[i].written())
	}
	for _, w := range d.waits {
		dev.Waits = append(dev.Waits, w.written())
	}
	if d.periodic() {
		c.writePhases(dev, d)
		if c.scaled != nil || c.believed > 0 {
			recordedBound(dev)
		}
	} else {
		certifyWitness(dev, pl.Witness)
	}
	return dev
}

// certificate is the load that proves how small the plan could be.
func (c *compiler) certificate(pl packing.Placement) planfile.Certificate {
	kind := planfile.BoundLoad
	if c.NoCrossStream {
		kind = planfile.BoundApart
	}
	return planfile.Certificate{
		Kind: kind, LowerBound: uint64(pl.MaxLoad.Load), At: uint64(pl.MaxLoad.At), Gap: uint64(pl.Makespan - pl.MaxLoad.Load),
	}
}

// certifyWitness replaces the load by a larger bound, if the packer has a witness
// for one: slots that need more among themselves. A witness that takes verify more
// trials than it allows itself is not used.
func certifyWitness(dev *planfile.Device, w *packing.Witness) {
	if w == nil || dev.Certificate.Kind != planfile.BoundLoad {
		return
	}
	load := dev.Certificate
	dev.Certificate = planfile.Certificate{Kind: planfile.BoundWitness, LowerBound: uint64(w.Bytes), Gap: dev.ArenaBytes - uint64(w.Bytes)}
	for _, b := range w.Buffers { // buffer i is slot i
		dev.Certificate.Witness = append(dev.Certificate.Witness, uint32(b))
	}
	if len(verify.Plan(&planfile.Plan{Devices: []planfile.Device{*dev}}, nil)) > 0 {
		dev.Certificate = load
	}
}

func (s *slot) written() planfile.Slot {
	out := planfile.Slot{
		Start: uint64(s.start), RequestedEnd: uint64(s.requestedEnd), CompletedEnd: uint64(s.completedEnd),
		Offset: uint64(s.offset), Size: uint64(s.size), Requested: uint64(s.requested), Least: uint64(s.least),
		Stream: uint32(s.stream), Flags: s.flags, Occurrences: uint32(s.occurrences), Cell: planfile.NoCell,
	}
	switch {
	case s.is(planfile.SlotShares):
		out.Cell = uint32(s.holder - 1)
	case s.cell != noCell:
		out.Cell = uint32(s.cell)
	}
	return out
}

func (w wait) written() planfile.Wait {
	return planfile.Wait{Later: uint32(w.later), Earlier: uint32(w.earlier), Kind: w.kind}
}

func (p *phase) written() planfile.Phase {
	return planfile.Phase{
		Kind: p.kind, Occurrences: uint32(p.occurrences), Length: uint64(p.length),
		FirstSlot: uint64(p.first), SlotCount: uint64(p.count),
	}
}

// writePhases writes what only a periodic plan has: its phases with their bounds,
// and which recorded pass had which slots.
func (c *compiler) writePhases(dev *planfile.Device, d *draft) {
	per := c.periodic
	dev.Mode = planfile.ModePeriodic
	dev.SteadyStart, dev.SteadyEnd, dev.StrayBytes = uint64(per.Cut), uint64(per.End), uint64(per.StrayBytes)
	for x, peak := range per.Envelope(c.timeline, c.end()) {
		p := d.phases[x].written()
		p.LowerBound, p.BoundAt, p.Makespan = uint64(peak.Bytes), uint64(peak.At), uint64(d.makespan(x))
		dev.Phases = append(dev.Phases, p)
	}
	for _, p := range per.Passes {
		dev.Passes = append(dev.Passes, planfile.Pass{FirstEvent: uint64(p.First), Phase: uint32(p.Body + 1), Present: p.Present})
	}
}

// makespan is the largest offset + size of what is live in phase x: of its slots,
// of residents, and in an interlude of the cells, which lie filled in it.
func (d *draft) makespan(x int) packing.Bytes {
	top := max(topOf(d.of(x), 0), topOf(d.of(0), planfile.SlotResident))
	if d.phases[x].kind == planfile.PhaseInterlude {
		top = max(top, topOf(d.of(1), planfile.SlotLeaving))
	}
	return top
}
