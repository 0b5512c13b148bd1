package verify

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// texts are the messages of violations. It checks that each begins with its device and
// rule.
func texts(t *testing.T, violations []Violation) []string {
	t.Helper()
	var all []string
	for _, v := range violations {
		if v.Rule != RuleDevices && !strings.HasPrefix(v.Message, fmt.Sprintf("device %d: %s: ", v.Device, v.Rule)) {
			t.Errorf("violation of %s on device %d says %q", v.Rule, v.Device, v.Message)
		}
		all = append(all, v.Message)
	}
	return all
}

// demand compares what Plan says of a plan with the messages it should give.
func demand(t *testing.T, p *planfile.Plan, want ...string) {
	t.Helper()
	if got := texts(t, Plan(p, nil)); !slices.Equal(got, want) {
		t.Errorf("violations\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPlanAcceptsSample(t *testing.T) {
	p := sample()
	if v := Plan(p, nil); v != nil {
		t.Errorf("violations %v", v)
	}
	if _, err := planfile.Encode(p); err != nil {
		t.Error(err)
	}
}

// TestPlanRules breaks one rule at a time.
func TestPlanRules(t *testing.T) {
	slot := func(i int, f func(s *planfile.Slot)) func(*planfile.Plan) {
		return func(p *planfile.Plan) { f(&p.Devices[0].Slots[i]) }
	}
	device := func(f func(d *planfile.Device)) func(*planfile.Plan) {
		return func(p *planfile.Plan) { f(&p.Devices[0]) }
	}
	for _, c := range []struct {
		name   string
		change func(p *planfile.Plan)
		want   string
	}{
		{"no devices", func(p *planfile.Plan) { p.Devices = nil }, "devices: the plan has none"},
		{"devices descend", func(p *planfile.Plan) {
			p.Devices = append(p.Devices, p.Devices[0])
			p.Devices[0].Ordinal = 1
		}, "device 0: devices: listed after device 1"},
		{"mode", device(func(d *planfile.Device) { d.Mode = 7 }), "device 0: devices: mode 7, expected recorded or periodic"},
		{"no phases", device(func(d *planfile.Device) { d.Mode = planfile.ModePeriodic }), "device 0: phase: 0 phases, expected a prologue and a body at least"},
		{"phases", device(func(d *planfile.Device) { d.Phases = make([]planfile.Phase, 2) }), "device 0: phase: 2 phases and 0 passes, expected none in mode recorded"},
		{"end", device(func(d *planfile.Device) { d.End = 3 }), "device 0: devices: end 3, expected requested or completed"},

		{"alignment 0", device(func(d *planfile.Device) { d.Alignment = 0 }), "device 0: alignment: alignment of 0 B, expected a power of two, at least 512 B"},
		{"alignment 768", device(func(d *planfile.Device) { d.Alignment = 768 }), "device 0: alignment: alignment of 768 B, expected a power of two, at least 512 B"},
		{"arena", device(func(d *planfile.Device) { d.ArenaBytes = 4100 }), "device 0: alignment: arena of 4100 B, expected a multiple of 512 B"},
		{"offset", slot(2, func(s *planfile.Slot) { s.Offset = 3070 }), "device 0: alignment: slot 2: offset 3070, expected a multiple of 512"},
		{"size", slot(2, func(s *planfile.Slot) { s.Size = 1025 }), "device 0: alignment: slot 2: size 1025 B, expected a multiple of 512 B"},

		{"arena huge", device(func(d *planfile.Device) { d.ArenaBytes = 1 << 63 }), "device 0: bounds: arena of 9223372036854775808 B, expected at most 2^62"},
		{"beyond", slot(2, func(s *planfile.Slot) { s.Size = 1536 }), "device 0: bounds: slot 2: 1536 B at offset 3072, beyond the arena of 4096 B"},
		{"beyond by wrapping", slot(2, func(s *planfile.Slot) { s.Offset = 1<<64 - 1024 }), "device 0: bounds: slot 2: 1024 B at offset 18446744073709550592, beyond the arena of 4096 B"},

		{"events huge", device(func(d *planfile.Device) { d.Events = 1 << 63 }), "device 0: times: 9223372036854775808 events, expected at most 2^62"},
		{"steady", device(func(d *planfile.Device) { d.SteadyStart = 21 }), "device 0: times: steady from event 21 on, expected at most 20"},
		{"empty", slot(2, func(s *planfile.Slot) { s.RequestedEnd = 3 }), "device 0: times: slot 2: empty live range: starts at 3 and is freed at 3"},
		{"ends", slot(2, func(s *planfile.Slot) { s.CompletedEnd = 5 }), "device 0: times: slot 2: freed at 6, but reusable before that, at 5"},
		{"late", slot(2, func(s *planfile.Slot) { s.CompletedEnd = 21 }), "device 0: times: slot 2: reusable at 21, after the last of 20 events"},
		{"initial", slot(2, func(s *planfile.Slot) { s.Flags = planfile.SlotInitial }), "device 0: times: slot 2: live before the recording, but starts at 3"},
		{"resident", slot(4, func(s *planfile.Slot) { s.RequestedEnd = 19 }), "device 0: times: slot 4: never freed, but ends at 19 of 20 events"},

		{"small", slot(2, func(s *planfile.Slot) { s.Requested = 1025 }), "device 0: size: slot 2: 1024 B for a request of 1025 B"},
		{"none", slot(2, func(s *planfile.Slot) { s.Size = 0 }), "device 0: size: slot 2: 0 B for a request of 1024 B"},
		{"huge request", slot(2, func(s *planfile.Slot) { s.Requested = 1<<64 - 1 }), "device 0: size: slot 2: 1024 B for a request of 18446744073709551615 B"},
		{"stream", slot(2, func(s *planfile.Slot) { s.Stream = 2 }), "device 0: stream: slot 2: stream 2 of 2"},

		{"order", slot(3, func(s *planfile.Slot) { s.Start = 2 }), "device 0: order: slot 3 starts at 2, slot 2 before it at 3"},
		{"one event", slot(3, func(s *planfile.Slot) { s.Start = 3 }), "device 0: order: slots 2 and 3 both start at event 3"},
		{"wait of none", device(func(d *planfile.Device) { d.Waits[2].Later = 5 }), "device 0: order: wait 2: slot 5 waits for slot 3, expected a slot before it, and both below 5"},
		{"wait for itself", device(func(d *planfile.Device) { d.Waits[2].Earlier = 4 }), "device 0: order: wait 2: slot 4 waits for slot 4, expected a slot before it, and both below 5"},
		{"wait twice", device(func(d *planfile.Device) { d.Waits[1].Earlier = 1 }), "device 0: order: wait 1: slots 3 and 1, after slots 3 and 1"},

		{"overlap", slot(2, func(s *planfile.Slot) { s.Offset, s.Size = 2560, 1536 }),
			"device 0: overlap: slot 1 (live [0, 5), 2048 B at offset 1024, stream 0x0) and slot 2 (live [3, 6), 1536 B at offset 2560, stream 0x7f00) are both live at 3 and share bytes [2560, 3072)"},

		{"wait missing", device(func(d *planfile.Device) { d.Waits = d.Waits[1:] }),
			"device 0: wait: slot 3 (live [8, 10), 2560 B at offset 1024, stream 0x0) takes over bytes [1024, 3072) of slot 1 (live [0, 5), 2048 B at offset 1024, stream 0x0) without a wait, expected one that is pending"},
		{"wait missing at the end", device(func(d *planfile.Device) { d.Waits = d.Waits[:2] }),
			"device 0: wait: slot 4 (live [12, 20), 512 B at offset 1024, stream 0x7f00) takes over bytes [1024, 1536) of slot 3 (live [8, 10), 2560 B at offset 1024, stream 0x0) without a wait, expected one that is cross-stream"},
		{"wait of another kind", device(func(d *planfile.Device) { d.Waits[1].Kind = planfile.WaitPending }),
			"device 0: wait: the wait of slot 3 (live [8, 10), 2560 B at offset 1024, stream 0x0) for slot 2 (live [3, 6), 1024 B at offset 3072, stream 0x7f00) is pending, expected cross-stream"},
		{"wait of a kind too many", device(func(d *planfile.Device) { d.Waits[1].Kind = 3 }),
			"device 0: wait: the wait of slot 3 (live [8, 10), 2560 B at offset 1024, stream 0x0) for slot 2 (live [3, 6), 1024 B at offset 3072, stream 0x7f00) is cross-stream and pending, expected cross-stream"},
		{"wait for nothing", slot(4, func(s *planfile.Slot) { s.Stream = 0 }),
			"device 0: wait: the wait of slot 4 (live [12, 20), 512 B at offset 1024, stream 0x0) for slot 3 (live [8, 10), 2560 B at offset 1024, stream 0x0) is cross-stream, expected none"},
		{"wait for an owner before the last", device(func(d *planfile.Device) {
			d.Waits = slices.Insert(d.Waits, 2, planfile.Wait{Later: 4, Earlier: 1, Kind: planfile.WaitCrossStream})
		}), "device 0: wait: slot 4 (live [12, 20), 512 B at offset 1024, stream 0x7f00) waits for slot 1 (live [0, 5), 2048 B at offset 1024, stream 0x0), but is not the next owner of any of its bytes"},

		{"makespan", device(func(d *planfile.Device) { d.ArenaBytes, d.Certificate.Gap = 4608, 512 }), "device 0: makespan: the slots end at 4096 B, the arena at 4608 B"},
		{"bound kind", device(func(d *planfile.Device) { d.Certificate.Kind = 4 }), "device 0: certificate: bound of kind 4, expected 1 (load), 2 (witness) or 3 (streams apart)"},
		{"bound", device(func(d *planfile.Device) { d.Certificate.LowerBound, d.Certificate.Gap = 3584, 512 }), "device 0: certificate: lower bound of 3584 B at event 3, but 4096 B are live there"},
		{"bound elsewhere", device(func(d *planfile.Device) { d.Certificate.At = 5 }), "device 0: certificate: lower bound of 4096 B at event 5, but 2048 B are live there"},
		{"gap", device(func(d *planfile.Device) { d.Certificate.Gap = 512 }), "device 0: certificate: gap of 512 B, expected 0 B: the arena of 4096 B less the lower bound of 4096 B"},
		{"peak allocated", device(func(d *planfile.Device) { d.PeakAllocated = 4608 }), "device 0: peak: peak allocated of 4608 B, but the most that is live is 4096 B, at event 3"},
		{"peak active", device(func(d *planfile.Device) { d.PeakActive = 4096 }), "device 0: peak: peak active of 4096 B, but the most that is live is 5632 B, at event 8"},
	} {
		p := sample()
		c.change(p)
		if got := texts(t, Plan(p, nil)); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: violations\n%s\nexpected\n%s", c.name, strings.Join(got, "\n"), c.want)
		}
	}
}

// TestWasteProvesNothing: a plan with all sizes doubled cannot claim twice the lower
// bound, because the requests of the program are still the same.
func TestWasteProvesNothing(t *testing.T) {
	p := sample()
	d := &p.Devices[0]
	for i := range d.Slots {
		d.Slots[i].Offset *= 2
		d.Slots[i].Size *= 2
	}
	d.ArenaBytes *= 2
	d.Certificate.LowerBound *= 2
	demand(t, p, "device 0: certificate: lower bound of 8192 B at event 3, but 4096 B are live there")
}

// TestBoundAboveArena: more bytes are live than the arena has. That is only possible if
// slots overlap.
func TestBoundAboveArena(t *testing.T) {
	p := sample()
	d := &p.Devices[0]
	d.Slots = d.Slots[:3]
	d.Waits = nil
	d.Slots[2].Offset = 0
	d.ArenaBytes = 3072
	d.PeakActive = 4096
	demand(t, p,
		"device 0: overlap: slot 0 (live [0, 20), 1024 B at offset 0, stream 0x0) and slot 2 (live [3, 6), 1024 B at offset 0, stream 0x7f00) are both live at 3 and share bytes [0, 1024)",
		"device 0: certificate: lower bound of 4096 B above the arena of 3072 B",
	)
}

// TestCompletedEnd: a reuse that is right with requested ends is an overlap with
// completed ends, and no wait can be pending.
func TestCompletedEnd(t *testing.T) {
	p := sample()
	d := &p.Devices[0]
	d.End = planfile.EndCompleted
	demand(t, p,
		"device 0: overlap: slot 1 (live [0, 9), 2048 B at offset 1024, stream 0x0) and slot 3 (live [8, 11), 2560 B at offset 1024, stream 0x0) are both live at 8 and share bytes [1024, 3072)",
		"device 0: wait: slot 3 (live [8, 11), 2560 B at offset 1024, stream 0x0) waits for slot 1 (live [0, 9), 2048 B at offset 1024, stream 0x0), but is not the next owner of any of its bytes",
	)
}

// TestSecondDevice: a violation names its device, and each device is judged.
func TestSecondDevice(t *testing.T) {
	p := sample()
	p.Devices = append(p.Devices, sample().Devices[0], sample().Devices[0])
	for i := range p.Devices {
		p.Devices[i].Ordinal = uint32(i)
	}
	p.Devices[1].PeakActive++
	p.Devices[2].PeakActive--
	demand(t, p,
		"device 1: peak: peak active of 5633 B, but the most that is live is 5632 B, at event 8",
		"device 2: peak: peak active of 5631 B, but the most that is live is 5632 B, at event 8",
	)
}

// TestLimit: violations beyond the limit are not listed, but they count: pairs of slots
// are not judged. Both devices have slots on a stream that does not exist.
func TestLimit(t *testing.T) {
	p := sample()
	d := &p.Devices[0]
	for i := range 200 {
		d.Events++
		d.Slots = append(d.Slots, planfile.Slot{Start: uint64(20 + i), RequestedEnd: uint64(21 + i), CompletedEnd: uint64(21 + i), Size: 512, Stream: 9})
	}
	d.Slots[0].Flags, d.Slots[4].Flags = planfile.SlotInitial, 0
	p.Devices = append(p.Devices, *d)
	got := map[string]int{}
	for _, v := range Plan(p, nil) {
		got[v.Rule]++
	}
	if want := map[string]int{RuleDevices: 1, RuleStream: limit}; !maps.Equal(got, want) {
		t.Errorf("violations %v, expected %v", got, want)
	}
}

// TestOverflowingLoad: slots that overlap after their requested end, with sizes that
// add up to more than 64 bits.
func TestOverflowingLoad(t *testing.T) {
	p := sample()
	d := &p.Devices[0]
	d.Streams = d.Streams[:1]
	d.ArenaBytes, d.PeakAllocated = 1<<62, 1<<62
	d.Certificate = planfile.Certificate{Kind: planfile.BoundLoad, LowerBound: 1 << 62}
	d.Slots, d.Waits = nil, nil
	for i := range uint64(8) {
		d.Slots = append(d.Slots, planfile.Slot{Start: i, RequestedEnd: i + 1, CompletedEnd: 20, Size: 1 << 62, Requested: 1 << 62})
		if i > 0 {
			d.Waits = append(d.Waits, planfile.Wait{Later: uint32(i), Earlier: uint32(i - 1), Kind: planfile.WaitPending})
		}
	}
	demand(t, p, "device 0: peak: peak active of 5632 B, but the most that is live is 18446744073709551615 B, at event 3")
}

func TestRandomPlansPass(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		p := random(r, 1+r.IntN(40))
		if v := Plan(p, nil); v != nil {
			t.Fatalf("%s\n%+v", v[0].Message, p.Devices[0])
		}
	}
}

// TestOverlapDifferential moves slots of right plans and compares with a check of all
// pairs.
func TestOverlapDifferential(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	broken := 0
	for range 5000 {
		d := &random(r, 2+r.IntN(30)).Devices[0]
		if len(d.Slots) == 0 {
			continue
		}
		for range 1 + r.IntN(2) {
			s := &d.Slots[r.IntN(len(d.Slots))]
			s.Offset = r.Uint64N((d.ArenaBytes-s.Size)/d.Alignment+1) * d.Alignment
		}
		any := false
		for i := range d.Slots {
			any = any || naiveClash(d, i)
		}
		found := false
		for _, v := range Plan(&planfile.Plan{Devices: []planfile.Device{*d}}, nil) {
			if v.Rule != RuleOverlap {
				continue
			}
			found = true
			if v.First >= v.Second || !naiveOverlap(d, v.First, v.Second) {
				t.Fatalf("%s, which is not so", v.Message)
			}
		}
		if found != any {
			t.Fatalf("overlap found: %v, expected %v\n%+v", found, any, d.Slots)
		}
		if any {
			broken++
		}
	}
	if broken < 500 {
		t.Errorf("only %d plans had an overlap", broken)
	}
}

// TestWaitDifferential changes waits of right plans. Exactly the changed ones have to be
// found.
func TestWaitDifferential(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	changes := 0
	for range 5000 {
		d := &random(r, 2+r.IntN(30)).Devices[0]
		want := changeWaits(r, d)
		got := map[[2]int]bool{}
		for _, v := range Plan(&planfile.Plan{Devices: []planfile.Device{*d}}, nil) {
			if v.Rule != RuleWait || got[[2]int{v.First, v.Second}] {
				t.Fatalf("unexpected: %s", v.Message)
			}
			got[[2]int{v.First, v.Second}] = true
		}
		if len(got) != len(want) {
			t.Fatalf("%d violations, expected %d", len(got), len(want))
		}
		for pair := range want {
			if !got[pair] {
				t.Fatalf("the wait of slot %d for slot %d was changed unnoticed", pair[1], pair[0])
			}
		}
		changes += len(want)
	}
	if changes < 5000 {
		t.Errorf("only %d changes", changes)
	}
}

// changeWaits drops, alters and adds waits, and returns the pairs that it changed.
func changeWaits(r *rand.Rand, d *planfile.Device) map[[2]int]bool {
	touched := map[[2]int]bool{}
	kind := map[[2]int]planfile.WaitKind{}
	for _, w := range d.Waits {
		kind[[2]int{int(w.Earlier), int(w.Later)}] = w.Kind
	}
	d.Waits = nil
	for later := range d.Slots {
		for earlier := range later {
			pair := [2]int{earlier, later}
			k := kind[pair]
			if r.IntN(50) == 0 {
				k = planfile.WaitKind(r.IntN(4))
			}
			if k != kind[pair] {
				touched[pair] = true
			}
			if k != 0 {
				d.Waits = append(d.Waits, planfile.Wait{Later: uint32(later), Earlier: uint32(earlier), Kind: k})
			}
		}
	}
	return touched
}

// TestLarge: a plan with many cuts passes, and progress is called.
func TestLarge(t *testing.T) {
	const n = 1<<17 + 5
	p := large(n, 1024)
	second := p.Devices[0]
	second.Ordinal = 1
	p.Devices = append(p.Devices, second)
	var got []int64
	violations := Plan(p, func(done, total int64) {
		if total != 2*n {
			t.Fatalf("total %d, expected %d", total, 2*n)
		}
		got = append(got, done)
	})
	if violations != nil {
		t.Errorf("violations %v", violations)
	}
	if want := []int64{1 << 16, 1 << 17, n, n + 1<<16, n + 1<<17, 2 * n}; !slices.Equal(got, want) {
		t.Errorf("progress %d, expected %d", got, want)
	}
}

func BenchmarkPlan(b *testing.B) {
	// Wide lanes cut the arena into as many pieces as it can have.
	for _, lane := range []uint64{64, 1 << 14} {
		const n = 1 << 20
		b.Run(fmt.Sprintf("slots=%d/lane=%d", n, lane), func(b *testing.B) {
			p := large(n, lane)
			for b.Loop() {
				if v := Plan(p, nil); v != nil {
					b.Fatal(v)
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "slots/s")
		})
	}
}
