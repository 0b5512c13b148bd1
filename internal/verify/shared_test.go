package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// sharedSample is a small periodic plan in which slots share a place, and which is right:
// in the prologue, in a body with waits of and for the holder, and in an interlude.
func sharedSample() *planfile.Plan {
	const shares = planfile.SlotShares
	d := planfile.Device{
		Rank: -1, Mode: planfile.ModePeriodic, End: planfile.EndRequested,
		Events: 45, Alignment: 512, ArenaBytes: 3072, PeakAllocated: 2560, PeakActive: 3072, RecordedPeakReserved: 4096,
		SteadyStart: 10, SteadyEnd: 42,
		Certificate: planfile.Certificate{Kind: planfile.BoundLoad, LowerBound: 3072, At: 10},
		Streams:     []uint64{0, 0x7f00},
		Slots: []planfile.Slot{
			{RequestedEnd: 10, CompletedEnd: 10, Size: 512, Requested: 500, Flags: planfile.SlotResident | planfile.SlotInitial},
			{Start: 1, RequestedEnd: 5, CompletedEnd: 6, Offset: 512, Size: 2048, Requested: 900},
			{Start: 2, RequestedEnd: 7, CompletedEnd: 11, Offset: 512, Size: 2048, Requested: 1000, Flags: shares},
			{Start: 8, RequestedEnd: 10, CompletedEnd: 11, Offset: 2560, Size: 512, Requested: 512, Flags: planfile.SlotLeaving},

			{RequestedEnd: 1, CompletedEnd: 1, Offset: 2560, Size: 512, Requested: 512, Flags: planfile.SlotEntering},
			{Start: 0, RequestedEnd: 2, CompletedEnd: 2, Offset: 512, Size: 2048, Requested: 1500},
			{Start: 1, RequestedEnd: 3, CompletedEnd: 5, Offset: 512, Size: 2048, Requested: 1000, Flags: shares},
			{Start: 2, RequestedEnd: 4, CompletedEnd: 4, Offset: 2560, Size: 512, Requested: 512, Flags: planfile.SlotLeaving},
			{Start: 3, RequestedEnd: 4, CompletedEnd: 4, Offset: 512, Size: 512, Requested: 100, Stream: 1},

			{Start: 0, RequestedEnd: 1, CompletedEnd: 1, Offset: 512, Size: 1536, Requested: 700},
			{Start: 1, RequestedEnd: 2, CompletedEnd: 2, Offset: 512, Size: 1536, Requested: 600, Flags: shares},
		},
		Waits: []planfile.Wait{
			{Later: 5, Earlier: 1, Kind: planfile.WaitPending | planfile.WaitSeam},
			{Later: 5, Earlier: 5, Kind: planfile.WaitPending | planfile.WaitSeam},
			{Later: 5, Earlier: 8, Kind: planfile.WaitCrossStream | planfile.WaitSeam},
			{Later: 8, Earlier: 5, Kind: planfile.WaitCrossStream | planfile.WaitPending},
			{Later: 9, Earlier: 1, Kind: planfile.WaitPending | planfile.WaitSeam},
		},
		Phases: []planfile.Phase{
			{Kind: planfile.PhasePrologue, Occurrences: 1, Length: 10, SlotCount: 4, Makespan: 3072, LowerBound: 2560, BoundAt: 1},
			{Kind: planfile.PhaseBody, Occurrences: 2, Length: 4, FirstSlot: 4, SlotCount: 5, Makespan: 3072, LowerBound: 3072},
			{Kind: planfile.PhaseInterlude, Occurrences: 1, Length: 2, FirstSlot: 9, SlotCount: 2, Makespan: 3072, LowerBound: 2560},
		},
		Passes: []planfile.Pass{
			{FirstEvent: 10, Phase: 1, Present: []uint64{0b1111}},
			{FirstEvent: 23, Phase: 2, Present: []uint64{0b11}},
			{FirstEvent: 31, Phase: 1, Present: []uint64{0b0111}},
		},
	}
	once(d.Slots)
	for _, i := range []int{3, 4, 7} {
		d.Slots[i].Cell = 0
	}
	for _, i := range []int{4, 5, 6, 7} {
		d.Slots[i].Occurrences = 2
	}
	d.Slots[2].Cell, d.Slots[6].Cell, d.Slots[10].Cell = 1, 5, 9
	d.Slots[5].Least, d.Slots[6].Least = 600, 400
	d.Fingerprint = sharedRecording().Devices[0].EventsFingerprint()
	return &planfile.Plan{Producer: "test", Devices: []planfile.Device{d}}
}

// sharedRecording is the recording of sharedSample. What lies in the place of slots 5 and 6
// takes 1024 B and 1024 B in the first pass, and 1536 B and 512 B in the last.
func sharedRecording() *trace.Trace {
	d := trace.Device{
		Initial: []trace.Segment{{Address: 0x1000, Size: 4096, Blocks: []trace.Block{{Address: 0x1000, Size: 4096, Requested: 500, State: trace.BlockAllocated}}}},
		Events:  make([]trace.Event, 45), // ActionOther
	}
	for _, b := range []struct {
		start, requested, completed int
		size                        trace.Bytes
		stream                      uint64
	}{
		{1, 5, 6, 900, 0},
		{2, 7, 12, 1000, 0},
		{8, 13, 14, 512, 0},

		{11, 16, 17, 600, 0},
		{15, 19, 25, 1000, 0},
		{18, 33, 34, 512, 0},
		{20, 21, 22, 100, 0x7f00},

		{24, 26, 27, 700, 0},
		{28, 29, 30, 600, 0},

		{32, 36, 37, 1500, 0},
		{35, 39, 40, 400, 0},
		{38, 43, 44, 512, 0},
	} {
		addr := uint64(b.start) << 16
		d.Events[b.start] = event(alloc, addr, b.size, b.stream)
		d.Events[b.requested] = event(requested, addr, b.size, b.stream)
		d.Events[b.completed] = event(completed, addr, b.size, b.stream)
	}
	return &trace.Trace{Name: "sample", Devices: []trace.Device{d}}
}

func TestSharedSample(t *testing.T) {
	p := sharedSample()
	if v := append(Plan(p, nil), AgainstTrace(p, sharedRecording())...); v != nil {
		t.Errorf("violations %v", v)
	}
	if _, err := planfile.Encode(p); err != nil {
		t.Error(err)
	}
	p.Devices[0].Phases[2].BoundAt = 1 // the holder has ended, but its place is kept
	demand(t, p)
}

// sharedRules break one rule of the sample at a time, or make it differ from its recording.
var sharedRules = []struct {
	name   string
	change func(d *planfile.Device)
}{
	{"another flag", slot(6, func(s *planfile.Slot) { s.Flags |= planfile.SlotStray })},
	{"initial", slot(2, func(s *planfile.Slot) { s.Flags |= planfile.SlotInitial })},
	{"no holder", slot(6, func(s *planfile.Slot) { s.Cell = planfile.NoCell })},
	{"its own holder", slot(6, func(s *planfile.Slot) { s.Cell = 6 })},
	{"holder of another phase", slot(6, func(s *planfile.Slot) { s.Cell = 1 })},
	{"entering holder", slot(6, func(s *planfile.Slot) { s.Cell = 4 })},
	{"holder that shares", slot(8, func(s *planfile.Slot) { s.Flags, s.Cell = planfile.SlotShares, 6 })},
	{"another stream", slot(6, func(s *planfile.Slot) { s.Stream = 1 })},
	{"another offset", slot(6, func(s *planfile.Slot) { s.Offset = 1024 })},
	{"another size", slot(6, func(s *planfile.Slot) { s.Size = 1536 })},
	{"request above the place", slot(6, func(s *planfile.Slot) { s.Requested = 2049 })},

	{"a place of their own, so an overlap", slot(6, func(s *planfile.Slot) { s.Flags, s.Cell = 0, planfile.NoCell })},
	{"overlap with a place whose holder has ended", func(d *planfile.Device) { d.Slots[6].RequestedEnd, d.Slots[6].CompletedEnd = 4, 5 }},
	{"wait for what is kept missing", func(d *planfile.Device) { d.Waits = slices.Delete(d.Waits, 3, 4) }},
	{"wait by the holder's own end", wait(3, func(w *planfile.Wait) { w.Kind = planfile.WaitCrossStream })},
	{"wait over the seam by the holder's own end", func(d *planfile.Device) { d.Waits = d.Waits[1:] }},
	{"wait of a sharing slot", wait(3, func(w *planfile.Wait) { w.Later, w.Earlier = 6, 5 })},
	{"wait for a sharing slot", wait(3, func(w *planfile.Wait) { w.Earlier = 6 })},
	{"load of the requests", phase(1, func(p *planfile.Phase) { p.LowerBound = 2560 })},
	{"load of the holder's request", phase(0, func(p *planfile.Phase) { p.LowerBound, p.BoundAt = 2048, 2 })},
	{"load after what is kept", phase(0, func(p *planfile.Phase) { p.BoundAt = 7 })},

	{"place of the prologue too small", places(1536, 1, 2)},
	{"place of the body too small", places(1536, 5, 6)},
	{"place of the interlude too small", places(512, 9, 10)},
	{"end of a sharing slot", slot(6, func(s *planfile.Slot) { s.RequestedEnd = 2 })},
	{"completed end of a sharing slot", slot(2, func(s *planfile.Slot) { s.CompletedEnd = 12 })},
	{"least of a sharing slot", slot(6, func(s *planfile.Slot) { s.Least = 399 })},
	{"occurrences of a sharing slot", slot(6, func(s *planfile.Slot) { s.Occurrences = 1 })},
}

// places makes the place of some slots another size.
func places(size uint64, slots ...int) func(*planfile.Device) {
	return func(d *planfile.Device) {
		for _, i := range slots {
			d.Slots[i].Size = size
		}
	}
}

// TestSharedRules compares the messages for each broken rule with the golden file.
func TestSharedRules(t *testing.T) {
	var got strings.Builder
	for _, c := range sharedRules {
		p := sharedSample()
		c.change(&p.Devices[0])
		alone, beside := texts(t, Plan(p, nil)), texts(t, AgainstTrace(p, sharedRecording()))
		if len(alone)+len(beside) == 0 {
			t.Errorf("%s: not noticed", c.name)
		}
		fmt.Fprintf(&got, "%s\n", c.name)
		for _, message := range append(alone, beside...) {
			fmt.Fprintf(&got, "\t%s\n", message)
		}
	}
	demandGolden(t, "testdata/shared.golden", got.String())
}

// TestSharedRecorded: no slot of a recorded plan shares its place.
func TestSharedRecorded(t *testing.T) {
	p := sample()
	p.Devices[0].Slots[1].Flags, p.Devices[0].Slots[1].Cell = planfile.SlotShares, 0
	demand(t, p, "device 0: shared: slot 1 shares its place, which no slot of mode recorded does")
}

// TestSharedTooSmall makes shared places of right plans as large as what they held in the
// recording, and a unit smaller.
func TestSharedTooSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	small := 0
	for small < 100 {
		p, tr := randomPeriodic(r)
		d := &p.Devices[0]
		held := naiveHeld(d, tr)
		for i := range d.Slots {
			all := members(d, i)
			if len(all) < 2 {
				continue
			}
			enough := (held[i] + d.Alignment - 1) / d.Alignment * d.Alignment
			places(enough, all...)(d)
			if blames(AgainstTrace(p, tr), RuleShared) {
				t.Fatalf("slot %d: a place of %d B is too small for %d B", i, enough, held[i])
			}
			less := enough - d.Alignment
			if slices.ContainsFunc(all, func(k int) bool { return inUnits(d.Slots[k].Requested) > less }) {
				continue // too small for one of them
			}
			places(less, all...)(d)
			if small++; !blames(AgainstTrace(p, tr), RuleShared) {
				t.Fatalf("slot %d: a place of %d B is enough for %d B", i, less, held[i])
			}
			places(enough, all...)(d)
		}
	}
}
