package verify

import (
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// periodicSample is a small periodic plan that is right: two bodies, a cell that the
// prologue fills, an optional slot, one of two sizes, a stray, and waits of every kind
// within a pass and over the seam.
func periodicSample() *planfile.Plan {
	d := planfile.Device{
		Rank: -1, Mode: planfile.ModePeriodic, End: planfile.EndRequested,
		Events: 40, Alignment: 512, ArenaBytes: 4096, PeakAllocated: 4608, PeakActive: 4608, RecordedPeakReserved: 4096,
		SteadyStart: 10, SteadyEnd: 37, StrayBytes: 512,
		Certificate: planfile.Certificate{Kind: planfile.BoundLoad, LowerBound: 4096, At: 14},
		Streams:     []uint64{0, 0x7f00},
		Slots: []planfile.Slot{
			{RequestedEnd: 10, CompletedEnd: 10, Offset: 0, Size: 1024, Requested: 1000, Flags: planfile.SlotResident | planfile.SlotInitial},
			{Start: 2, RequestedEnd: 6, CompletedEnd: 12, Offset: 2048, Size: 1024, Requested: 1024},
			{Start: 4, RequestedEnd: 10, CompletedEnd: 12, Offset: 1024, Size: 1024, Requested: 700, Flags: planfile.SlotLeaving},

			{RequestedEnd: 1, CompletedEnd: 2, Offset: 1024, Size: 1024, Requested: 900, Flags: planfile.SlotEntering},
			{Start: 0, RequestedEnd: 2, CompletedEnd: 3, Offset: 2048, Size: 1024, Requested: 600, Stream: 1},
			{Start: 1, RequestedEnd: 4, CompletedEnd: 8, Requested: 100, Flags: planfile.SlotStray},
			{Start: 2, RequestedEnd: 4, CompletedEnd: 5, Offset: 1024, Size: 1024, Requested: 800, Flags: planfile.SlotLeaving},
			{Start: 3, RequestedEnd: 4, CompletedEnd: 4, Offset: 2048, Size: 512, Requested: 512},

			{RequestedEnd: 1, CompletedEnd: 1, Offset: 1024, Size: 1024, Requested: 800, Flags: planfile.SlotEntering},
			{Start: 0, RequestedEnd: 1, CompletedEnd: 3, Offset: 2048, Size: 2048, Requested: 2000, Stream: 1},
			{Start: 1, RequestedEnd: 2, CompletedEnd: 3, Offset: 1024, Size: 1024, Requested: 900, Flags: planfile.SlotLeaving},
		},
		Waits: []planfile.Wait{
			{Later: 4, Earlier: 1, Kind: planfile.WaitCrossStream | planfile.WaitPending | planfile.WaitSeam},
			{Later: 4, Earlier: 7, Kind: planfile.WaitCrossStream | planfile.WaitSeam},
			{Later: 7, Earlier: 4, Kind: planfile.WaitCrossStream},
			{Later: 9, Earlier: 1, Kind: planfile.WaitCrossStream | planfile.WaitPending | planfile.WaitSeam},
			{Later: 9, Earlier: 9, Kind: planfile.WaitPending | planfile.WaitSeam},
			{Later: 10, Earlier: 2, Kind: planfile.WaitPending | planfile.WaitSeam},
		},
		Phases: []planfile.Phase{
			{Kind: planfile.PhasePrologue, Occurrences: 1, Length: 10, FirstSlot: 0, SlotCount: 3, Makespan: 3072, LowerBound: 3072, BoundAt: 4},
			{Kind: planfile.PhaseBody, Occurrences: 2, Length: 4, FirstSlot: 3, SlotCount: 5, Makespan: 3072, LowerBound: 3072, BoundAt: 0},
			{Kind: planfile.PhaseBody, Occurrences: 1, Length: 2, FirstSlot: 8, SlotCount: 3, Makespan: 4096, LowerBound: 4096, BoundAt: 0},
		},
		Passes: []planfile.Pass{
			{FirstEvent: 10, Phase: 1, Present: []uint64{0b1111}},
			{FirstEvent: 22, Phase: 2, Present: []uint64{0b11}},
			{FirstEvent: 28, Phase: 1, Present: []uint64{0b1110}},
		},
	}
	once(d.Slots)
	for _, i := range []int{2, 3, 6, 8, 10} {
		d.Slots[i].Cell = 0
	}
	for _, i := range []int{3, 5, 6, 7} {
		d.Slots[i].Occurrences = 2
	}
	d.Slots[3].Least, d.Slots[5].Least, d.Slots[7].Least = 700, 90, 400
	d.Fingerprint = periodicRecording().Devices[0].EventsFingerprint()
	return &planfile.Plan{Producer: "test", Devices: []planfile.Device{d}}
}

// periodicRecording is the recording of periodicSample. The list has the slot of each
// buffer.
func periodicRecording() *trace.Trace {
	d := trace.Device{
		Initial: []trace.Segment{{Address: 0x1000, Size: 4096, Blocks: []trace.Block{{Address: 0x1000, Size: 4096, Requested: 1000, State: trace.BlockAllocated}}}},
		Events:  make([]trace.Event, 40), // ActionOther
	}
	for _, b := range []struct {
		slot, start, requested, completed int
		size                              trace.Bytes
		stream                            uint64
	}{
		{1, 2, 6, 14, 1024, 0},
		{2, 4, 12, 15, 700, 0},
		{4, 11, 16, 18, 600, 0x7f00},
		{5, 13, 0, 0, 100, 0},
		{6, 17, 24, 25, 800, 0},
		{7, 19, 20, 21, 512, 0},
		{9, 23, 26, 32, 2000, 0x7f00},
		{10, 27, 29, 30, 900, 0},
		{5, 31, 0, 0, 90, 0},
		{6, 33, 38, 39, 800, 0},
		{7, 34, 35, 36, 400, 0},
	} {
		addr := uint64(b.start) << 16
		d.Events[b.start] = event(alloc, addr, b.size, b.stream)
		if b.requested > 0 {
			d.Events[b.requested] = event(requested, addr, b.size, b.stream)
			d.Events[b.completed] = event(completed, addr, b.size, b.stream)
		}
	}
	return &trace.Trace{Name: "sample", Devices: []trace.Device{d}}
}
