package planfile

import (
	"encoding/binary"
	"math/rand/v2"
)

// sample is a small plan that uses every feature of the format: two devices,
// both kinds of end, initial and resident slots, waits of every kind. It is
// also right as a plan.
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
	for i := range first.Fingerprint {
		first.Fingerprint[i] = byte(i)
		second.Fingerprint[i] = byte(0xff - i)
	}
	return &Plan{Producer: "stplan test", Devices: []Device{first, second}}
}

// minimal is the smallest plan there is: one device without slots.
func minimal() *Plan {
	return &Plan{Producer: "x", Devices: []Device{{Rank: -1, Mode: ModeRecorded, End: EndRequested, Alignment: 512, Certificate: Certificate{Kind: BoundLoad}}}}
}

// random is a plan that keeps the rules of the format and means nothing.
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
		s.Stream = uint32(r.IntN(len(d.Streams) + 1))
		if int(s.Stream) == len(d.Streams) {
			d.Streams = append(d.Streams, uint64(len(d.Streams))<<40|r.Uint64N(1<<40))
		}
	}
}

func randomWaits(r *rand.Rand, d *Device) {
	for later := range d.Slots {
		for earlier := range later {
			if r.IntN(8) == 0 {
				d.Waits = append(d.Waits, Wait{uint32(later), uint32(earlier), WaitKind(1 + r.IntN(3))})
			}
		}
	}
}

// seal makes a changed file whole again: its length and its checksum.
func seal(file []byte) []byte {
	binary.LittleEndian.PutUint64(file[lengthAt:], uint64(len(file)))
	binary.LittleEndian.PutUint64(file[checksumAt:], checksum(file))
	return file
}
