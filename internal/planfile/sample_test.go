package planfile

import (
	"encoding/binary"
	"math/rand/v2"
)

// sample is a small plan that uses every feature of mode recorded: two devices, both
// kinds of end, initial and resident slots, waits of every kind. It is also right as a
// plan.
func sample() *Plan {
	first := Device{
		Ordinal: 0, Rank: 3, Mode: ModeRecorded, End: EndRequested,
		Events: 20, Alignment: 512, ArenaBytes: 4096,
		PeakAllocated: 4096, PeakActive: 6144, RecordedPeakReserved: 2 << 20,
		Iterations: 2, SteadyStart: 6,
		Certificate: Certificate{Kind: BoundLoad, LowerBound: 4096, At: 3, Gap: 0},
		Streams:     []uint64{0, 0x7f0011223344},
		Slots: []Slot{
			{Start: 0, RequestedEnd: 20, CompletedEnd: 20, Offset: 0, Size: 1024, Requested: 1000, Stream: 0, Flags: SlotResident | SlotInitial},
			{Start: 0, RequestedEnd: 5, CompletedEnd: 20, Offset: 1024, Size: 2048, Requested: 2048, Stream: 0, Flags: SlotInitial},
			{Start: 3, RequestedEnd: 6, CompletedEnd: 6, Offset: 3072, Size: 1024, Requested: 513, Stream: 1},
			{Start: 8, RequestedEnd: 10, CompletedEnd: 14, Offset: 1024, Size: 2560, Requested: 2500, Stream: 0},
			{Start: 12, RequestedEnd: 20, CompletedEnd: 20, Offset: 1024, Size: 512, Requested: 0, Stream: 1, Flags: SlotResident},
		},
		Waits: []Wait{
			{Later: 3, Earlier: 1, Kind: WaitPending},
			{Later: 3, Earlier: 2, Kind: WaitCrossStream},
			{Later: 4, Earlier: 3, Kind: WaitCrossStream | WaitPending},
		},
	}
	second := Device{
		Ordinal: 5, Rank: 3, Mode: ModeRecorded, End: EndCompleted,
		Events: 2, Alignment: 4096, ArenaBytes: 4096,
		PeakAllocated: 512, PeakActive: 512,
		Certificate: Certificate{Kind: BoundLoad, LowerBound: 512, At: 0, Gap: 3584},
		Streams:     []uint64{9},
		Slots:       []Slot{{Start: 0, RequestedEnd: 1, CompletedEnd: 1, Offset: 0, Size: 4096, Requested: 1}},
	}
	whole(first.Slots)
	whole(second.Slots)
	for i := range first.Fingerprint {
		first.Fingerprint[i] = byte(i)
		second.Fingerprint[i] = byte(0xff - i)
	}
	return &Plan{Producer: "stplan test", Devices: []Device{first, second}}
}

// whole fills in the fields of slots that occurred once and cross no seam.
func whole(slots []Slot) {
	for i := range slots {
		s := &slots[i]
		if s.Occurrences == 0 {
			s.Occurrences = 1
		}
		if s.Flags&(SlotEntering|SlotLeaving|SlotShares) == 0 {
			s.Cell = NoCell
		}
		if s.Least == 0 {
			s.Least = s.Requested
		}
	}
}

// periodic is a small plan that uses every feature of mode periodic: two bodies, a cell
// that the prologue fills, an optional slot, one of several sizes, a stray, and waits of
// every kind within a pass and over the seam. It is also right as a plan.
func periodic() *Plan {
	d := Device{
		Ordinal: 1, Rank: 0, Mode: ModePeriodic, End: EndRequested,
		Events: 40, Alignment: 512, ArenaBytes: 4096,
		PeakAllocated: 4608, PeakActive: 5120, RecordedPeakReserved: 2 << 20,
		Iterations: 5, SteadyStart: 10, SteadyEnd: 34, StrayBytes: 512,
		Certificate: Certificate{Kind: BoundLoad, LowerBound: 4096, At: 14},
		Streams:     []uint64{0, 0x7f0011223344},
		Slots: []Slot{
			{RequestedEnd: 10, CompletedEnd: 10, Offset: 0, Size: 1024, Requested: 1000, Flags: SlotResident | SlotInitial},
			{Start: 2, RequestedEnd: 6, CompletedEnd: 12, Offset: 2048, Size: 1024, Requested: 1024},
			{Start: 4, RequestedEnd: 10, CompletedEnd: 12, Offset: 1024, Size: 1024, Requested: 700, Flags: SlotLeaving},

			{RequestedEnd: 1, CompletedEnd: 2, Offset: 1024, Size: 1024, Requested: 900, Least: 700, Flags: SlotEntering, Occurrences: 2},
			{Start: 0, RequestedEnd: 2, CompletedEnd: 3, Offset: 2048, Size: 1024, Requested: 600, Stream: 1},
			{Start: 1, RequestedEnd: 4, CompletedEnd: 8, Requested: 100, Least: 90, Flags: SlotStray, Occurrences: 2},
			{Start: 2, RequestedEnd: 4, CompletedEnd: 5, Offset: 1024, Size: 1024, Requested: 800, Flags: SlotLeaving, Occurrences: 2},
			{Start: 3, RequestedEnd: 4, CompletedEnd: 4, Offset: 2048, Size: 512, Requested: 512, Least: 400, Occurrences: 2},

			{RequestedEnd: 1, CompletedEnd: 1, Offset: 1024, Size: 1024, Requested: 800, Flags: SlotEntering},
			{Start: 0, RequestedEnd: 1, CompletedEnd: 3, Offset: 2048, Size: 2048, Requested: 2000, Stream: 1},
			{Start: 1, RequestedEnd: 2, CompletedEnd: 3, Offset: 1024, Size: 1024, Requested: 900, Flags: SlotLeaving},
		},
		Waits: []Wait{
			{Later: 4, Earlier: 1, Kind: WaitCrossStream | WaitPending | WaitSeam},
			{Later: 4, Earlier: 7, Kind: WaitCrossStream | WaitSeam},
			{Later: 7, Earlier: 4, Kind: WaitCrossStream},
			{Later: 9, Earlier: 1, Kind: WaitCrossStream | WaitPending | WaitSeam},
			{Later: 9, Earlier: 9, Kind: WaitPending | WaitSeam},
			{Later: 10, Earlier: 2, Kind: WaitPending | WaitSeam},
		},
		Phases: []Phase{
			{Kind: PhasePrologue, Occurrences: 1, Length: 10, FirstSlot: 0, SlotCount: 3, Makespan: 3072, LowerBound: 3072, BoundAt: 4},
			{Kind: PhaseBody, Occurrences: 2, Length: 4, FirstSlot: 3, SlotCount: 5, Makespan: 3072, LowerBound: 3072, BoundAt: 0},
			{Kind: PhaseBody, Occurrences: 1, Length: 2, FirstSlot: 8, SlotCount: 3, Makespan: 4096, LowerBound: 4096, BoundAt: 0},
		},
		Passes: []Pass{
			{FirstEvent: 10, Phase: 1, Present: []uint64{0b1111}},
			{FirstEvent: 18, Phase: 2, Present: []uint64{0b11}},
			{FirstEvent: 26, Phase: 1, Present: []uint64{0b1110}},
		},
	}
	whole(d.Slots)
	for i := range d.Fingerprint {
		d.Fingerprint[i] = byte(3 * i)
	}
	return &Plan{Producer: "stplan test", Devices: []Device{d}}
}

// shared is a small periodic plan in which slots share a place: in the prologue, in a body
// with waits of and for the holder, and in an interlude. It is also right as a plan.
func shared() *Plan {
	d := Device{
		Rank: -1, Mode: ModePeriodic, End: EndRequested,
		Events: 45, Alignment: 512, ArenaBytes: 3072, PeakAllocated: 2560, PeakActive: 3072, RecordedPeakReserved: 4096,
		SteadyStart: 10, SteadyEnd: 42,
		Certificate: Certificate{Kind: BoundLoad, LowerBound: 3072, At: 10},
		Streams:     []uint64{0, 0x7f00},
		Slots: []Slot{
			{RequestedEnd: 10, CompletedEnd: 10, Size: 512, Requested: 500, Flags: SlotResident | SlotInitial},
			{Start: 1, RequestedEnd: 5, CompletedEnd: 6, Offset: 512, Size: 2048, Requested: 900},
			{Start: 2, RequestedEnd: 7, CompletedEnd: 11, Offset: 512, Size: 2048, Requested: 1000, Flags: SlotShares, Cell: 1},
			{Start: 8, RequestedEnd: 10, CompletedEnd: 11, Offset: 2560, Size: 512, Requested: 512, Flags: SlotLeaving},

			{RequestedEnd: 1, CompletedEnd: 1, Offset: 2560, Size: 512, Requested: 512, Flags: SlotEntering, Occurrences: 2},
			{Start: 0, RequestedEnd: 2, CompletedEnd: 2, Offset: 512, Size: 2048, Requested: 1500, Least: 600, Occurrences: 2},
			{Start: 1, RequestedEnd: 3, CompletedEnd: 5, Offset: 512, Size: 2048, Requested: 1000, Least: 400, Flags: SlotShares, Occurrences: 2, Cell: 5},
			{Start: 2, RequestedEnd: 4, CompletedEnd: 4, Offset: 2560, Size: 512, Requested: 512, Flags: SlotLeaving, Occurrences: 2},
			{Start: 3, RequestedEnd: 4, CompletedEnd: 4, Offset: 512, Size: 512, Requested: 100, Stream: 1},

			{Start: 0, RequestedEnd: 1, CompletedEnd: 1, Offset: 512, Size: 1536, Requested: 700},
			{Start: 1, RequestedEnd: 2, CompletedEnd: 2, Offset: 512, Size: 1536, Requested: 600, Flags: SlotShares, Cell: 9},
		},
		Waits: []Wait{
			{Later: 5, Earlier: 1, Kind: WaitPending | WaitSeam},
			{Later: 5, Earlier: 5, Kind: WaitPending | WaitSeam},
			{Later: 5, Earlier: 8, Kind: WaitCrossStream | WaitSeam},
			{Later: 8, Earlier: 5, Kind: WaitCrossStream | WaitPending},
			{Later: 9, Earlier: 1, Kind: WaitPending | WaitSeam},
		},
		Phases: []Phase{
			{Kind: PhasePrologue, Occurrences: 1, Length: 10, SlotCount: 4, Makespan: 3072, LowerBound: 2560, BoundAt: 1},
			{Kind: PhaseBody, Occurrences: 2, Length: 4, FirstSlot: 4, SlotCount: 5, Makespan: 3072, LowerBound: 3072},
			{Kind: PhaseInterlude, Occurrences: 1, Length: 2, FirstSlot: 9, SlotCount: 2, Makespan: 3072, LowerBound: 2560},
		},
		Passes: []Pass{
			{FirstEvent: 10, Phase: 1, Present: []uint64{0b1111}},
			{FirstEvent: 23, Phase: 2, Present: []uint64{0b11}},
			{FirstEvent: 31, Phase: 1, Present: []uint64{0b0111}},
		},
	}
	whole(d.Slots)
	return &Plan{Producer: "stplan test", Devices: []Device{d}}
}

// all has the devices of the sample and a periodic one between them.
func all() *Plan {
	p := sample()
	d := periodic().Devices[0]
	d.Rank = p.Devices[0].Rank
	p.Devices = []Device{p.Devices[0], d, p.Devices[1]}
	return p
}

// minimal is the smallest possible plan: one device without slots.
func minimal() *Plan {
	return &Plan{Producer: "x", Devices: []Device{{Rank: -1, Mode: ModeRecorded, End: EndRequested, Alignment: 512, Certificate: Certificate{Kind: BoundLoad}}}}
}

// random is a random plan that keeps the rules of the format. It is not right as a plan.
func random(r *rand.Rand) *Plan {
	p := &Plan{Producer: "random"}
	rank := int32(r.IntN(3)) - 1
	for i := range 1 + r.IntN(3) {
		d := Device{
			Ordinal: uint32(2*i + r.IntN(2)), Rank: rank, Mode: ModeRecorded, End: EndKind(1 + r.IntN(2)),
			Alignment: 512 << r.IntN(4), Events: 50, PeakAllocated: r.Uint64N(maxNumber + 1), PeakActive: r.Uint64N(maxNumber + 1),
			RecordedPeakReserved: r.Uint64N(maxNumber + 1), Iterations: r.Uint32(), SteadyStart: r.Uint64N(51),
		}
		d.ArenaBytes = (16 + r.Uint64N(1<<30)) * d.Alignment
		d.Certificate = Certificate{Kind: BoundLoad, LowerBound: r.Uint64N(d.ArenaBytes + 1), At: r.Uint64N(51)}
		d.Certificate.Gap = d.ArenaBytes - d.Certificate.LowerBound
		for k := range d.Fingerprint {
			d.Fingerprint[k] = byte(r.Uint32())
		}
		randomSlots(r, &d)
		if r.IntN(2) == 0 {
			randomSteady(r, &d)
		}
		randomWaits(r, &d)
		p.Devices = append(p.Devices, d)
	}
	return p
}

func randomSlots(r *rand.Rand, d *Device) {
	for range r.IntN(3) {
		d.Slots = append(d.Slots, Slot{Flags: SlotInitial})
	}
	for start := range uint64(30) {
		if r.IntN(2) == 0 {
			d.Slots = append(d.Slots, Slot{Start: start})
		}
	}
	for i := range d.Slots {
		s := &d.Slots[i]
		s.RequestedEnd = s.Start + 1 + r.Uint64N(10)
		s.CompletedEnd = s.RequestedEnd + r.Uint64N(10)
		if r.IntN(4) == 0 {
			s.RequestedEnd, s.CompletedEnd = d.Events, d.Events
			s.Flags |= SlotResident
		}
		s.Size = (1 + r.Uint64N(8)) * d.Alignment
		s.Offset = r.Uint64N((d.ArenaBytes-s.Size)/d.Alignment+1) * d.Alignment
		s.Requested = r.Uint64N(s.Size + 1)
		s.Least, s.Occurrences, s.Cell = s.Requested, 1, NoCell
		s.Stream = randomStream(r, d)
	}
}

func randomStream(r *rand.Rand, d *Device) uint32 {
	s := uint32(r.IntN(len(d.Streams) + 1))
	if int(s) == len(d.Streams) {
		d.Streams = append(d.Streams, uint64(len(d.Streams))<<40|r.Uint64N(1<<40))
	}
	return s
}

// randomSteady makes the slots so far the prologue of a periodic plan and adds bodies
// with their passes. The prologue is 50 events long.
func randomSteady(r *rand.Rand, d *Device) {
	d.Mode, d.SteadyStart, d.StrayBytes = ModePeriodic, d.Events, r.Uint64N(maxNumber)
	for i := range d.Slots {
		d.share(r, 0, i)
	}
	prologue := Phase{Kind: PhasePrologue, Occurrences: 1, Length: d.Events, SlotCount: uint64(len(d.Slots))}
	d.Phases = []Phase{prologue}
	cells := make([]Slot, r.IntN(4))
	for i := range cells {
		cells[i] = d.place(r, Slot{Cell: uint32(i)})
	}
	lengths := []uint64{0, 1 + r.Uint64N(10) + uint64(len(cells)), 60 + r.Uint64N(10), 1 + r.Uint64N(10) + uint64(len(cells))}[:2+r.IntN(3)]
	for i := 1; i < len(lengths); i++ {
		d.Phases = append(d.Phases, Phase{Kind: PhaseBody, Length: lengths[i]})
	}
	for i := range 6 {
		d.SteadyEnd += 1 + r.Uint64N(100)
		phase := uint32(1 + i%(len(lengths)-1))
		pass := Pass{FirstEvent: d.SteadyStart + d.SteadyEnd - 1, Phase: phase}
		if i == 0 {
			pass.FirstEvent, d.SteadyEnd = d.SteadyStart, 1
		}
		for at := uint64(0); at < lengths[phase]; at += 64 {
			pass.Present = append(pass.Present, r.Uint64()>>(64-min(64, lengths[phase]-at)))
		}
		d.Passes = append(d.Passes, pass)
		d.Phases[phase].Occurrences++
	}
	d.SteadyEnd += d.SteadyStart
	d.Events = d.SteadyEnd + r.Uint64N(9)
	for i := 1; i < len(lengths); i++ {
		randomBody(r, d, i, cells)
	}
	for i := range d.Phases {
		p := &d.Phases[i]
		p.Makespan = r.Uint64N(d.ArenaBytes/d.Alignment+1) * d.Alignment
		p.LowerBound, p.BoundAt = r.Uint64N(p.Makespan+1), r.Uint64N(p.Length+1)
	}
}

// place gives a slot any place in the arena, and a request.
func (d *Device) place(r *rand.Rand, s Slot) Slot {
	s.Size = (1 + r.Uint64N(8)) * d.Alignment
	s.Offset = r.Uint64N((d.ArenaBytes-s.Size)/d.Alignment+1) * d.Alignment
	s.Requested = r.Uint64N(s.Size + 1)
	s.Least = r.Uint64N(s.Requested + 1)
	return s
}

// completed gives a slot of a body of the given length a random completed end.
func (d *Device) completed(r *rand.Rand, s Slot, length uint64) Slot {
	s.CompletedEnd = s.RequestedEnd + r.Uint64N(2*length-s.RequestedEnd+1)
	if d.End == EndCompleted && s.Flags&(SlotLeaving|SlotStray) == 0 {
		s.CompletedEnd = min(s.CompletedEnd, length)
	}
	return s
}

func randomBody(r *rand.Rand, d *Device, phase int, cells []Slot) {
	p := &d.Phases[phase]
	p.FirstSlot = uint64(len(d.Slots))
	for _, cell := range cells {
		if r.IntN(3) > 0 { // else it is freed before the body's first allocation
			s := cell
			s.Flags, s.Stream, s.Occurrences = SlotEntering, randomStream(r, d), uint32(r.IntN(int(p.Occurrences)+1))
			s.RequestedEnd = 1 + r.Uint64N(p.Length)
			d.Slots = append(d.Slots, d.completed(r, s, p.Length))
		}
	}
	for k := range p.Length {
		s := d.place(r, Slot{Cell: NoCell})
		if left := p.Length - k; left <= uint64(len(cells)) {
			s = cells[uint64(len(cells))-left]
			s.Flags, s.RequestedEnd = SlotLeaving, p.Length
		} else {
			s.RequestedEnd = k + 1 + r.Uint64N(left)
			if r.IntN(8) == 0 {
				s.Flags, s.Offset, s.Size = SlotStray, 0, 0
			}
		}
		s.Start, s.Stream = k, randomStream(r, d)
		s = d.completed(r, s, p.Length)
		for i := range d.Passes {
			if d.Passes[i].Phase == uint32(phase) {
				s.Occurrences += uint32(d.Passes[i].Present[k/64] >> (k % 64) & 1)
			}
		}
		if s.Occurrences == 0 { // every slot has one: its first pass gets it
			d.Passes[phase-1].Present[k/64] |= 1 << (k % 64)
			s.Occurrences = 1
		}
		d.Slots = append(d.Slots, s)
		d.share(r, int(p.FirstSlot), len(d.Slots)-1)
	}
	p.SlotCount = uint64(len(d.Slots)) - p.FirstSlot
}

// share makes slot i share the place of an earlier one of its phase, which begins at slot
// first, if the two may and chance wants it.
func (d *Device) share(r *rand.Rand, first, i int) {
	s, holder := &d.Slots[i], first+r.IntN(i-first+1)
	h := &d.Slots[holder]
	if holder == i || s.Flags != 0 || h.Flags != 0 || s.Stream != h.Stream || r.IntN(2) == 0 {
		return
	}
	s.Flags, s.Cell, s.Offset, s.Size = SlotShares, uint32(holder), h.Offset, h.Size
	s.Requested = min(s.Requested, s.Size)
	s.Least = min(s.Least, s.Requested)
}

func randomWaits(r *rand.Rand, d *Device) {
	for later := range d.Slots {
		for earlier := range d.Slots {
			w := Wait{uint32(later), uint32(earlier), WaitKind(1 + r.IntN(3))}
			a, b := d.phaseOf(w.Earlier), d.phaseOf(w.Later)
			if b > 0 && (a == 0 || a == b && earlier >= later) {
				w.Kind |= WaitSeam
			} else if a != b || earlier >= later {
				continue
			}
			if (d.Slots[later].Flags|d.Slots[earlier].Flags)&(SlotEntering|SlotStray|SlotShares) == 0 && r.IntN(8) == 0 {
				d.Waits = append(d.Waits, w)
			}
		}
	}
}

// seal corrects the length and the checksum of a changed file.
func seal(file []byte) []byte {
	binary.LittleEndian.PutUint64(file[lengthAt:], uint64(len(file)))
	binary.LittleEndian.PutUint64(file[checksumAt:], checksum(file))
	return file
}
