package verify

import (
	"math/rand/v2"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// sample is a small plan that is right: it has a pending reuse, two cross-stream ones,
// and an arena as large as the lower bound.
//
//	offset   0        5   6    8  9      12          20
//	4096  ┌──────────────────┐
//	      │      ·  2        │                          stream 0x7f00
//	3072  ├──────┬───────────┤ ┌───────┐ (to 3584)
//	      │  1   │ pending…  │ │   3   │
//	      │      │           │ │       │ ┌──────────┐
//	1024  ├──────┴───────────┴─┴───────┴─┤    4     │
//	      │            0                 └──────────┤
//	0     └─────────────────────────────────────────┘
func sample() *planfile.Plan {
	p := &planfile.Plan{Producer: "test", Devices: []planfile.Device{{
		Mode: planfile.ModeRecorded, End: planfile.EndRequested, Rank: -1,
		Events: 20, Alignment: 512, ArenaBytes: 4096, PeakAllocated: 4096, PeakActive: 5632,
		Certificate: planfile.Certificate{Kind: planfile.BoundLoad, LowerBound: 4096, At: 3},
		Streams:     []uint64{0, 0x7f00},
		Slots: []planfile.Slot{
			{Start: 0, RequestedEnd: 20, CompletedEnd: 20, Offset: 0, Size: 1024, Requested: 1000, Flags: planfile.SlotResident | planfile.SlotInitial},
			{Start: 0, RequestedEnd: 5, CompletedEnd: 9, Offset: 1024, Size: 2048, Requested: 2048, Flags: planfile.SlotInitial},
			{Start: 3, RequestedEnd: 6, CompletedEnd: 6, Offset: 3072, Size: 1024, Requested: 1024, Stream: 1},
			{Start: 8, RequestedEnd: 10, CompletedEnd: 11, Offset: 1024, Size: 2560, Requested: 2500},
			{Start: 12, RequestedEnd: 20, CompletedEnd: 20, Offset: 1024, Size: 512, Requested: 0, Stream: 1, Flags: planfile.SlotResident},
		},
		Waits: []planfile.Wait{
			{Later: 3, Earlier: 1, Kind: planfile.WaitPending},
			{Later: 3, Earlier: 2, Kind: planfile.WaitCrossStream},
			{Later: 4, Earlier: 3, Kind: planfile.WaitCrossStream},
		},
	}}}
	once(p.Devices[0].Slots)
	return p
}

// once fills in the fields of slots that occurred once and cross no seam.
func once(slots []planfile.Slot) {
	for i := range slots {
		s := &slots[i]
		s.Least, s.Occurrences, s.Cell = s.Requested, 1, planfile.NoCell
	}
}

// random is a random plan of up to n slots that is right. A search over all placed slots
// finds each slot's offset; figures and waits are those of the naive references.
func random(r *rand.Rand, n int) *planfile.Plan {
	d := planfile.Device{Mode: planfile.ModeRecorded, End: planfile.EndKind(1 + r.IntN(2)), Rank: -1, Alignment: 512 << r.IntN(2), Streams: []uint64{7, 8, 9}}
	d.Events = uint64(2 * n)
	for range r.IntN(3) {
		d.Slots = append(d.Slots, planfile.Slot{Flags: planfile.SlotInitial})
	}
	for start := range uint64(2 * n) {
		if len(d.Slots) < n && r.IntN(2) == 0 {
			d.Slots = append(d.Slots, planfile.Slot{Start: start})
		}
	}
	for _, i := range r.Perm(len(d.Slots)) {
		s := &d.Slots[i]
		s.RequestedEnd = min(d.Events, s.Start+1+r.Uint64N(10))
		s.CompletedEnd = min(d.Events, s.RequestedEnd+r.Uint64N(5)*r.Uint64N(2))
		if r.IntN(10) == 0 {
			s.RequestedEnd, s.CompletedEnd = d.Events, d.Events
			s.Flags |= planfile.SlotResident
		}
		s.Requested = r.Uint64N(5 * 512)
		s.Size = (max(1, s.Requested) + d.Alignment - 1 + r.Uint64N(2)*d.Alignment) / d.Alignment * d.Alignment
		s.Stream = uint32(r.IntN(len(d.Streams)))
		s.Offset = r.Uint64N(4) * d.Alignment
		for naiveClash(&d, i) {
			s.Offset += d.Alignment
		}
		d.ArenaBytes = max(d.ArenaBytes, s.Offset+s.Size)
	}
	once(d.Slots)
	d.PeakAllocated, _ = naivePeak(&d, planfile.EndRequested)
	d.PeakActive, _ = naivePeak(&d, planfile.EndCompleted)
	c := &d.Certificate
	c.Kind = planfile.BoundLoad
	c.LowerBound, c.At = naivePeak(&d, d.End)
	if r.IntN(4) == 0 { // a weaker lower bound is right as well
		c.At = r.Uint64N(d.Events)
		c.LowerBound = naiveLoad(&d, d.End, c.At)
	}
	c.Gap = d.ArenaBytes - c.LowerBound
	d.Waits = naiveWaits(&d)
	return &planfile.Plan{Producer: "random", Devices: []planfile.Device{d}}
}

// naiveClash says whether slot i overlaps any slot that has a size already.
func naiveClash(d *planfile.Device, i int) bool {
	for k := range d.Slots {
		if k != i && d.Slots[k].Size > 0 && naiveOverlap(d, i, k) {
			return true
		}
	}
	return false
}

// naiveOverlap says whether two slots share time and bytes.
func naiveOverlap(d *planfile.Device, i, k int) bool {
	a, b := &d.Slots[i], &d.Slots[k]
	return a.Start < d.SlotEnd(k) && b.Start < d.SlotEnd(i) &&
		a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size
}

func naiveLoad(d *planfile.Device, end planfile.EndKind, at uint64) (load uint64) {
	e := planfile.Device{End: end, Slots: d.Slots}
	for i, s := range d.Slots {
		if s.Start <= at && at < e.SlotEnd(i) {
			for units := uint64(0); units == 0 || units*512 < s.Requested; units++ {
				load += 512
			}
		}
	}
	return load
}

func naivePeak(d *planfile.Device, end planfile.EndKind) (most, at uint64) {
	for t := range d.Events {
		if load := naiveLoad(d, end, t); load > most {
			most, at = load, t
		}
	}
	return most, at
}

// naiveWaits is the reference for the waits of a recorded plan: it keeps the last owner
// of every unit of the arena.
func naiveWaits(d *planfile.Device) (waits []planfile.Wait) {
	last := make([]int, d.ArenaBytes/512) // slot index + 1
	for i := range d.Slots {
		s := &d.Slots[i]
		var from []int
		for at := s.Offset / 512; at < (s.Offset+s.Size)/512; at++ {
			if e := last[at] - 1; e >= 0 && !slices.Contains(from, e) {
				from = append(from, e)
			}
			last[at] = i + 1
		}
		slices.Sort(from)
		for _, e := range from {
			kind := planfile.WaitKind(0)
			if d.Slots[e].Stream != s.Stream {
				kind += planfile.WaitCrossStream
			}
			if d.Slots[e].CompletedEnd > s.Start {
				kind += planfile.WaitPending
			}
			if kind != 0 {
				waits = append(waits, planfile.Wait{Later: uint32(i), Earlier: uint32(e), Kind: kind})
			}
		}
	}
	return waits
}

// large is a plan of n slots that is right. The slots reuse 64 lanes of the arena, on two
// streams. A lane is the given number of units of 512 B wide, a slot up to 64 of them.
func large(n int, lane uint64) *planfile.Plan {
	r := rand.New(rand.NewPCG(4, 4))
	const lanes = 64
	d := planfile.Device{Mode: planfile.ModeRecorded, End: planfile.EndRequested, Rank: -1, Alignment: 512,
		Events: uint64(n), Streams: []uint64{0, 1}, Slots: make([]planfile.Slot, n)}
	born, dead := make([]uint64, n), make([]uint64, n+1)
	for i := range d.Slots {
		// Slot i has its lane until the lane's next turn at most.
		start := uint64(i)
		first := r.Uint64N(lane)
		size := (1 + r.Uint64N(min(64, lane-first))) * 512
		end := min(d.Events, start+1+r.Uint64N(lanes))
		offset := (start%lanes*lane + first) * 512
		d.Slots[i] = planfile.Slot{Start: start, RequestedEnd: end, CompletedEnd: end,
			Offset: offset, Size: size, Requested: size, Stream: uint32(r.IntN(2))}
		d.ArenaBytes = max(d.ArenaBytes, offset+size)
		born[start] += size
		dead[end] += size
	}
	load := uint64(0)
	for t := range born {
		load += born[t] - dead[t]
		d.PeakAllocated = max(d.PeakAllocated, load)
	}
	d.PeakActive = d.PeakAllocated
	// Nothing is live after the last event, which is a bound, if a poor one.
	d.Certificate = planfile.Certificate{Kind: planfile.BoundLoad, At: d.Events, Gap: d.ArenaBytes}
	d.Waits = naiveWaits(&d)
	return &planfile.Plan{Producer: "large", Devices: []planfile.Device{d}}
}
