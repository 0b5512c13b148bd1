package planfile

import "encoding/binary"

// periodicCompleted is a plan for completed ends without strays and waits. The free of
// what enters in cell 0 was requested before the body begins. Cell 1 is filled by the
// body only: not by the prologue, and no pass begins with it filled.
func periodicCompleted() *Plan {
	d := Device{
		Rank: -1, Mode: ModePeriodic, End: EndCompleted,
		Events: 12, Alignment: 512, ArenaBytes: 2048, PeakAllocated: 1536, PeakActive: 1536, RecordedPeakReserved: 4096,
		Iterations: 2, SteadyStart: 4, SteadyEnd: 12,
		Certificate: Certificate{Kind: BoundLoad, LowerBound: 1536, At: 6, Gap: 512},
		Streams:     []uint64{0},
		Slots: []Slot{
			{Start: 0, RequestedEnd: 4, CompletedEnd: 5, Size: 512, Requested: 1, Flags: SlotLeaving},
			{Start: 0, RequestedEnd: 0, CompletedEnd: 1, Size: 512, Requested: 1, Flags: SlotEntering, Occurrences: 2},
			{Start: 0, RequestedEnd: 1, CompletedEnd: 1, Offset: 512, Size: 1024, Flags: SlotEntering, Cell: 1},
			{Start: 0, RequestedEnd: 3, CompletedEnd: 3, Offset: 1536, Size: 512, Requested: 512, Occurrences: 2},
			{Start: 1, RequestedEnd: 3, CompletedEnd: 4, Size: 512, Requested: 1, Flags: SlotLeaving, Occurrences: 2},
			{Start: 2, RequestedEnd: 3, CompletedEnd: 6, Offset: 512, Size: 1024, Requested: 600, Flags: SlotLeaving, Cell: 1},
		},
		Phases: []Phase{
			{Kind: PhasePrologue, Occurrences: 1, Length: 4, SlotCount: 1, Makespan: 512, LowerBound: 512},
			{Kind: PhaseBody, Occurrences: 2, Length: 3, FirstSlot: 1, SlotCount: 5, Makespan: 2048, LowerBound: 1536, BoundAt: 2},
		},
		Passes: []Pass{
			{FirstEvent: 4, Phase: 1, Present: []uint64{0b011}},
			{FirstEvent: 8, Phase: 1, Present: []uint64{0b111}},
		},
	}
	whole(d.Slots)
	return &Plan{Producer: "stplan test", Devices: []Device{d}}
}

// periodicInterlude is periodic with an interlude as its second body, so without the
// slots that enter and leave it.
func periodicInterlude() *Plan {
	p := periodic()
	d := &p.Devices[0]
	d.Slots = append(d.Slots[:8], d.Slots[9:]...)
	d.Slots[9].Flags, d.Slots[9].Cell, d.Slots[9].Offset = 0, NoCell, 0
	d.Waits = nil
	d.Phases[2].Kind, d.Phases[2].SlotCount = PhaseInterlude, 2
	return p
}

// periodicWide has a body with a presence of three words, of which the last is not full.
// One pass has every slot, the other one has two.
func periodicWide() *Plan {
	const n = 130
	d := Device{
		Rank: -1, Mode: ModePeriodic, End: EndRequested,
		Events: 400, Alignment: 512, ArenaBytes: 512, PeakAllocated: 512, PeakActive: 512, RecordedPeakReserved: 512,
		Iterations: 2, SteadyStart: 1, SteadyEnd: 300,
		Certificate: Certificate{Kind: BoundLoad, LowerBound: 512, At: 1},
		Streams:     []uint64{0},
		Phases: []Phase{
			{Kind: PhasePrologue, Occurrences: 1, Length: 1},
			{Kind: PhaseBody, Occurrences: 2, Length: n, SlotCount: n, Makespan: 512, LowerBound: 512},
		},
		Passes: []Pass{
			{FirstEvent: 1, Phase: 1, Present: []uint64{^uint64(0), ^uint64(0), 3}},
			{FirstEvent: 290, Phase: 1, Present: []uint64{1, 0, 2}},
		},
	}
	for k := range uint64(n) {
		d.Slots = append(d.Slots, Slot{Start: k, RequestedEnd: k + 1, CompletedEnd: k + 1, Size: 512, Requested: 1})
	}
	d.Slots[0].Occurrences, d.Slots[n-1].Occurrences = 2, 2
	whole(d.Slots)
	return &Plan{Producer: "stplan test", Devices: []Device{d}}
}

// breaks collects vectors that are a periodic plan with one change.
type breaks struct{ all []vector }

func (b *breaks) device(name, note string, change func(d *Device)) {
	p := periodic()
	change(&p.Devices[0])
	b.all = append(b.all, vector{"periodic-" + name, note, ClassStructure, encode(p)})
}

func (b *breaks) completed(name, note string, change func(d *Device)) {
	p := periodicCompleted()
	change(&p.Devices[0])
	b.all = append(b.all, vector{"completed-" + name, note, ClassStructure, encode(p)})
}

func (b *breaks) slot(i int, name, note string, change func(s *Slot)) {
	b.device("slot-"+name, note, func(d *Device) { change(&d.Slots[i]) })
}

func (b *breaks) phase(i int, name, note string, change func(p *Phase)) {
	b.device("phase-"+name, note, func(d *Device) { change(&d.Phases[i]) })
}

func (b *breaks) pass(i int, name, note string, change func(p *Pass)) {
	b.device("pass-"+name, note, func(d *Device) { change(&d.Passes[i]) })
}

func (b *breaks) wait(w Wait, name, note string) {
	b.device("wait-"+name, note, func(d *Device) { d.Waits = []Wait{w} })
}

// phaseVectors break a rule about the phases and passes of a periodic plan.
func phaseVectors() []vector {
	var b breaks
	b.device("steady-end", "a steady end that is the steady start", func(d *Device) { d.SteadyEnd = 10 })
	b.device("steady-end-late", "a steady end after the last event", func(d *Device) { d.SteadyEnd = 41 })
	b.device("stray-bytes", "strays of more than 2^62 B", func(d *Device) { d.StrayBytes = maxNumber + 1 })
	b.device("bound-at", "a bound after the last phase", func(d *Device) { d.Certificate.At = 17 })
	b.device("prologue-only", "no body", func(d *Device) { d.Phases = d.Phases[:1] })
	b.device("phases-257", "more phases than there may be", func(d *Device) { d.Phases = make([]Phase, maxPhases+1) })

	b.phase(0, "prologue-kind", "a body before the prologue", func(p *Phase) { p.Kind = PhaseBody })
	b.phase(1, "body-kind", "a second prologue", func(p *Phase) { p.Kind = PhasePrologue })
	b.phase(1, "kind-unknown", "an unknown kind of phase", func(p *Phase) { p.Kind = 4 })
	b.phase(1, "interlude-first", "an interlude as the first body", func(p *Phase) { p.Kind = PhaseInterlude })
	b.phase(2, "interlude-cells", "an interlude with slots in cells", func(p *Phase) { p.Kind = PhaseInterlude })
	b.phase(0, "prologue-occurrences", "a prologue recorded twice", func(p *Phase) { p.Occurrences = 2 })
	b.phase(2, "occurrences-0", "a body that was never recorded", func(p *Phase) { p.Occurrences = 0 })
	b.phase(1, "occurrences", "a body with fewer passes than it says", func(p *Phase) { p.Occurrences = 3 })
	b.phase(0, "prologue-length", "a prologue that does not end at the cut", func(p *Phase) { p.Length = 9 })
	b.phase(1, "length-0", "a body without allocations", func(p *Phase) { p.Length = 0 })
	b.phase(1, "length-short", "a body with more allocations than it is long", func(p *Phase) { p.Length = 3 })
	b.phase(1, "length-long", "a body with fewer allocations than it is long", func(p *Phase) { p.Length = 5 })
	b.phase(1, "length-huge", "a length near 2^64", func(p *Phase) { p.Length = ^uint64(0) })
	b.phase(1, "first-slot", "a slot that belongs to no phase", func(p *Phase) { p.FirstSlot = 4 })
	b.phase(1, "slots-overlap", "a slot that belongs to two phases", func(p *Phase) { p.SlotCount = 6 })
	b.phase(2, "slots-few", "slots behind the last phase", func(p *Phase) { p.SlotCount = 2 })
	b.phase(2, "slots-many", "a phase with more slots than the device", func(p *Phase) { p.SlotCount = 4 })
	b.phase(2, "slots-wrap", "a number of slots that wraps around", func(p *Phase) { p.SlotCount = ^uint64(0) - 7 })
	b.phase(1, "makespan", "a makespan above the arena", func(p *Phase) { p.Makespan = 4608 })
	b.phase(1, "makespan-alignment", "a makespan that is no multiple of the alignment", func(p *Phase) { p.Makespan = 3073 })
	b.phase(1, "bound", "a lower bound above the makespan", func(p *Phase) { p.LowerBound = 3584 })
	b.phase(1, "bound-at", "a bound after the phase", func(p *Phase) { p.BoundAt = 5 })

	b.device("passes-none", "no recorded pass", func(d *Device) { d.Passes = nil })
	b.pass(0, "first", "a first pass that does not begin at the cut", func(p *Pass) { p.FirstEvent = 11 })
	b.pass(2, "order", "passes that do not ascend", func(p *Pass) { p.FirstEvent = 18 })
	b.pass(2, "late", "a pass that begins at the steady end", func(p *Pass) { p.FirstEvent = 34 })
	b.pass(1, "prologue", "a pass of the prologue", func(p *Pass) { p.Phase, p.Present = 0, nil })
	b.pass(2, "unknown", "a pass of a phase that the device does not have", func(p *Pass) { p.Phase, p.Present = 3, nil })
	b.device("pass-body-order", "bodies that are not in the order of their first pass", func(d *Device) {
		d.Passes[0], d.Passes[1] = Pass{10, 2, d.Passes[1].Present}, Pass{18, 1, d.Passes[0].Present}
	})
	b.pass(1, "presence-beyond", "a bit beyond the slots of the body", func(p *Pass) { p.Present = []uint64{0b111} })
	b.pass(0, "presence-other", "a slot that occurred in fewer passes than it says", func(p *Pass) { p.Present = []uint64{0b111} })
	b.pass(2, "presence-more", "a slot that occurred in more passes than it says", func(p *Pass) { p.Present = []uint64{0b1111} })
	b.pass(2, "presence-short", "a word of presence too few", func(p *Pass) { p.Present = nil })
	b.pass(2, "presence-long", "a word of presence too many", func(p *Pass) { p.Present = append(p.Present, 0) })
	return append(b.all, vector{"periodic-pass-zero", "a pass whose last field is not zero", ClassStructure, passNotZero()})
}

// passNotZero sets the last field of a pass record, which a plan in memory does not have.
func passNotZero() []byte {
	data := encode(periodic())
	passes := headerBytes + int(6)*entryBytes + int(entryField("offset"))
	at := binary.LittleEndian.Uint64(data[passes:]) + passBytes + uint64(fieldOffset(sectionPasses, "zero"))
	binary.LittleEndian.PutUint32(data[at:], 1)
	return seal(data)
}

// bodyVectors break a rule about the slots, cells and waits of a periodic plan.
func bodyVectors() []vector {
	var b breaks
	b.slot(1, "prologue-late", "a prologue slot freed after the cut", func(s *Slot) { s.RequestedEnd = 11 })
	b.slot(1, "prologue-completed", "a prologue slot pending for more than the first body", func(s *Slot) { s.CompletedEnd = 15 })
	b.slot(1, "prologue-entering", "an entering slot in the prologue", func(s *Slot) { s.Flags, s.Cell = SlotEntering, 0 })
	b.slot(1, "prologue-stray", "a stray in the prologue", func(s *Slot) { s.Flags = SlotStray })
	b.slot(2, "prologue-leaving-resident", "a resident slot that leaves", func(s *Slot) { s.Flags |= SlotResident })
	b.slot(0, "resident-pending", "a resident slot with a completed end after the cut", func(s *Slot) { s.CompletedEnd = 11 })
	b.slot(1, "prologue-occurrences", "a prologue slot that occurred twice", func(s *Slot) { s.Occurrences = 2 })
	b.slot(1, "prologue-least", "a prologue slot of two sizes", func(s *Slot) { s.Least-- })
	b.slot(4, "resident", "a resident slot in a body", func(s *Slot) { s.Flags = SlotResident })
	b.slot(4, "initial", "an initial slot in a body", func(s *Slot) { s.Flags = SlotInitial })
	b.slot(6, "leaving-stray", "a stray that leaves in a cell", func(s *Slot) { s.Flags |= SlotStray })
	b.slot(3, "entering-leaving", "a slot that enters and leaves", func(s *Slot) { s.Flags |= SlotLeaving })
	b.slot(3, "entering-none", "an entering slot without a cell", func(s *Slot) { s.Cell = NoCell })
	b.slot(6, "leaving-none", "a leaving slot without a cell", func(s *Slot) { s.Cell = NoCell })
	b.slot(4, "cell", "a slot with a cell that does not cross the seam", func(s *Slot) { s.Cell = 0 })
	b.slot(5, "stray-cell", "a stray with a cell", func(s *Slot) { s.Cell = 0 })
	b.slot(6, "cell-unknown", "a cell beyond those that the first body fills", func(s *Slot) { s.Cell = 1 })
	b.slot(6, "cell-offset", "a cell in two places", func(s *Slot) { s.Offset = 1536 })
	b.slot(8, "cell-size", "a cell of two sizes", func(s *Slot) { s.Size = 1536 })
	b.device("cell-twice", "a cell that a body fills twice", func(d *Device) {
		d.Slots[7].Flags, d.Slots[7].Cell, d.Slots[7].Offset, d.Slots[7].Size = SlotLeaving, 0, 1024, 1024
		d.Waits = nil
	})
	b.slot(10, "cell-not-filled", "a body that does not fill a cell", func(s *Slot) { s.Flags, s.Cell = 0, NoCell })
	b.device("cell-order", "entering slots that are not by cell", func(d *Device) { d.Slots[4], d.Waits = d.Slots[3], nil })
	b.device("entering-late", "an entering slot after an allocation", func(d *Device) { d.Slots[3], d.Slots[4], d.Waits = d.Slots[4], d.Slots[3], nil })
	b.slot(3, "entering-start", "an entering slot that does not start with its body", func(s *Slot) { s.Start, s.RequestedEnd = 1, 2 })
	b.slot(3, "entering-empty", "an entering slot that is freed before its body begins", func(s *Slot) { s.RequestedEnd = 0 })
	b.slot(5, "ordinal-twice", "two slots of one ordinal", func(s *Slot) { s.Start = 0 })
	b.slot(5, "ordinal-missing", "an ordinal without a slot", func(s *Slot) { s.Start = 2 })
	b.slot(4, "late", "a slot freed after its body", func(s *Slot) { s.RequestedEnd, s.CompletedEnd = 5, 5 })
	b.slot(4, "completed-late", "a slot pending for more than one pass", func(s *Slot) { s.CompletedEnd = 9 })
	b.slot(6, "leaving-early", "a leaving slot that ends before its body", func(s *Slot) { s.RequestedEnd = 3 })
	b.slot(4, "occurrences-0", "a slot that never occurred", func(s *Slot) { s.Occurrences = 0 })
	b.slot(4, "occurrences", "a slot that occurred more often than its body", func(s *Slot) { s.Occurrences = 3 })
	b.slot(7, "least", "a smallest request above the largest", func(s *Slot) { s.Least = 513 })
	b.slot(5, "stray-offset", "a stray with a place", func(s *Slot) { s.Offset = 512 })
	b.slot(5, "stray-size", "a stray with a size", func(s *Slot) { s.Size = 512 })
	b.slot(5, "stray-requested", "a stray that asked for more than 2^62 B", func(s *Slot) { s.Requested = maxNumber + 1 })

	b.completed("late", "a slot completed after its body that is no leaving one", func(d *Device) { d.Slots[3].CompletedEnd = 4 })
	b.completed("prologue-late", "a prologue slot completed after the cut that is no leaving one", func(d *Device) { d.Slots[0].Flags, d.Slots[0].Cell = 0, NoCell })
	b.completed("entering-empty", "an entering slot completed before its body begins", func(d *Device) { d.Slots[1].CompletedEnd = 0 })
	b.completed("leaving-early", "a leaving slot requested to end before the end of its body", func(d *Device) { d.Slots[4].RequestedEnd = 2 })
	b.completed("cell-numbers", "cells that are not in the order in which the first body fills them", func(d *Device) {
		for i := range d.Slots {
			if s := &d.Slots[i]; s.Cell != NoCell {
				s.Cell = 1 - s.Cell
			}
		}
		d.Slots[1], d.Slots[2] = d.Slots[2], d.Slots[1]
	})
	b.completed("empty", "an ordinary slot that is freed when it starts", func(d *Device) { d.Slots[3].RequestedEnd = 0 })

	b.wait(Wait{11, 1, WaitPending | WaitSeam}, "later", "a wait of a slot that the device does not have")
	b.wait(Wait{4, 11, WaitPending | WaitSeam}, "earlier", "a wait for a slot that the device does not have")
	b.wait(Wait{3, 2, WaitPending | WaitSeam}, "later-entering", "a wait of an entering slot")
	b.wait(Wait{5, 1, WaitPending | WaitSeam}, "later-stray", "a wait of a stray")
	b.wait(Wait{4, 3, WaitPending}, "earlier-entering", "a wait for an entering slot")
	b.wait(Wait{6, 5, WaitPending}, "earlier-stray", "a wait for a stray")
	b.wait(Wait{4, 1, WaitSeam}, "seam-only", "a wait over the seam of no kind")
	b.wait(Wait{4, 1, WaitPending}, "prologue", "a wait for a prologue slot that is not over the seam")
	b.wait(Wait{9, 4, WaitPending | WaitSeam}, "other-body", "a wait for a slot of another body")
	b.wait(Wait{7, 4, WaitPending | WaitSeam}, "seam-before", "a wait over the seam for a slot that has its bytes again")
	b.wait(Wait{4, 7, WaitPending}, "after", "a wait in one pass for a later slot")
	b.wait(Wait{2, 1, WaitPending | WaitSeam}, "seam-prologue", "a wait over the seam in the prologue")
	b.device("wait-twice", "a wait listed twice, once over the seam", func(d *Device) {
		d.Waits = []Wait{{4, 7, WaitCrossStream}, {4, 7, WaitCrossStream | WaitSeam}}
	})
	return b.all
}
