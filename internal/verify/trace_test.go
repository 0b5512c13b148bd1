package verify

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

const (
	alloc     = trace.ActionAlloc
	requested = trace.ActionFreeRequested
	completed = trace.ActionFreeCompleted
)

func event(action trace.Action, addr uint64, size trace.Bytes, stream uint64) trace.Event {
	return trace.Event{Action: action, Addr: addr, Size: size, Stream: stream}
}

// recording is a recording that the sample plan could have been made from.
func recording() *trace.Trace {
	d := trace.Device{
		Initial: []trace.Segment{{Address: 0x1000, Size: 4096, Blocks: []trace.Block{
			{Address: 0x1000, Size: 1024, Requested: 1000, State: trace.BlockAllocated},
			{Address: 0x1400, Size: 512, State: trace.BlockInactive, Requested: 77},
			{Address: 0x1600, Size: 2560, Requested: 2048, State: trace.BlockAllocated},
		}}},
		Events: make([]trace.Event, 20), // ActionOther
	}
	d.Events[1] = event(trace.ActionSegmentAlloc, 0x8000, 8192, 0x7f00)
	d.Events[3] = event(alloc, 0x8000, 1024, 0x7f00)
	d.Events[5] = event(requested, 0x1600, 2048, 0)
	d.Events[6] = event(completed, 0x8000, 1024, 0x7f00) // no request was recorded
	d.Events[8] = event(alloc, 0x8400, 2500, 0)
	d.Events[9] = event(completed, 0x1600, 2048, 0)
	d.Events[10] = event(requested, 0x8400, 2500, 0)
	d.Events[11] = event(completed, 0x8400, 2500, 0)
	d.Events[12] = event(alloc, 0x1600, 0, 0x7f00)
	d.Events[13] = event(trace.ActionSegmentMap, 0x20000, 4096, 0)
	d.Events[14] = event(trace.ActionSegmentUnmap, 0x20000, 4096, 0)
	d.Events[15] = event(trace.ActionSegmentFree, 0x8000, 8192, 0)
	return &trace.Trace{Name: "sample", Devices: []trace.Device{d}}
}

// recorded is the sample plan with the fingerprint of a recording.
func recorded(t *trace.Trace) *planfile.Plan {
	p := sample()
	p.Devices[0].Fingerprint = t.Devices[0].EventsFingerprint()
	p.Devices[0].RecordedPeakReserved = 4096 + 8192 + 4096
	return p
}

func TestAgainstTraceAcceptsSample(t *testing.T) {
	tr := recording()
	p := recorded(tr)
	if v := append(Plan(p, nil), AgainstTrace(p, tr)...); len(v) > 0 {
		t.Errorf("violations %v", v)
	}
}

// ofProgram is the sample plan as it is written now: with the fingerprint of the program, and
// its streams by number.
func ofProgram(t *trace.Trace) *planfile.Plan {
	p := recorded(t)
	p.Devices[0].Fingerprint = t.Devices[0].Fingerprint()
	for i := range p.Devices[0].Streams {
		p.Devices[0].Streams[i] = uint64(i)
	}
	return p
}

// TestAgainstTraceOfAnotherProcess: a plan is accepted for every process that does the same,
// whatever its addresses and stream handles are, and for no other.
func TestAgainstTraceOfAnotherProcess(t *testing.T) {
	other := func() *trace.Trace {
		tr := recording()
		d := &tr.Devices[0]
		for i := range d.Events {
			d.Events[i].Addr += 1 << 40
			d.Events[i].Stream ^= 0x7700
		}
		for k := range d.Initial {
			d.Initial[k].Address += 1 << 40
			d.Initial[k].Stream ^= 0x7700
			for b := range d.Initial[k].Blocks {
				d.Initial[k].Blocks[b].Address += 1 << 40
			}
		}
		return tr
	}
	for _, tr := range []*trace.Trace{recording(), other()} {
		if v := append(Plan(ofProgram(recording()), nil), AgainstTrace(ofProgram(recording()), tr)...); len(v) > 0 {
			t.Errorf("violations %v", v)
		}
	}
	changed := other()
	changed.Devices[0].Events[8].Size++
	if v := AgainstTrace(ofProgram(recording()), changed); len(v) != 1 || v[0].Rule != RuleFingerprint {
		t.Errorf("another size: violations %v, expected one of the fingerprint", v)
	}
	swapped := ofProgram(recording())
	for i := range swapped.Devices[0].Slots {
		if s := &swapped.Devices[0].Slots[i]; i >= 2 {
			s.Stream = 0
		}
	}
	if v := AgainstTrace(swapped, other()); len(v) == 0 || v[0].Rule != RuleBuffer {
		t.Errorf("two streams made one: violations %v, expected one of a buffer", v)
	}
	renamed := ofProgram(recording())
	renamed.Devices[0].Streams[1] = 0x7f00
	if v := AgainstTrace(renamed, recording()); len(v) != 1 || v[0].Rule != RuleStream {
		t.Errorf("a stream with a handle: violations %v, expected one of the stream", v)
	}
}

func TestAgainstTraceRules(t *testing.T) {
	plan := func(f func(d *planfile.Device)) func(*planfile.Plan, *trace.Trace) {
		return func(p *planfile.Plan, _ *trace.Trace) { f(&p.Devices[0]) }
	}
	slot := func(i int, f func(s *planfile.Slot)) func(*planfile.Plan, *trace.Trace) {
		return plan(func(d *planfile.Device) { f(&d.Slots[i]) })
	}
	// events changes the recording, and the fingerprint with it.
	events := func(f func(d *trace.Device)) func(*planfile.Plan, *trace.Trace) {
		return func(p *planfile.Plan, t *trace.Trace) {
			f(&t.Devices[0])
			p.Devices[0].Fingerprint = t.Devices[0].EventsFingerprint()
		}
	}
	for _, c := range []struct {
		name   string
		change func(p *planfile.Plan, t *trace.Trace)
		want   string
	}{
		{"device of the plan", func(p *planfile.Plan, t *trace.Trace) {
			p.Devices = append(p.Devices, p.Devices[0])
			p.Devices[1].Ordinal = 3
		}, "device 3: trace: the trace has no such device"},
		{"device of the trace", func(p *planfile.Plan, t *trace.Trace) {
			t.Devices = append(t.Devices, t.Devices[0])
			t.Devices[1].Ordinal = 3
		}, "device 3: trace: the trace has allocations, the plan no such device"},
		{"idle device of the trace", func(p *planfile.Plan, t *trace.Trace) {
			t.Devices = append(t.Devices, trace.Device{Ordinal: 3, Events: make([]trace.Event, 1)})
		}, ""},
		{"fingerprint", plan(func(d *planfile.Device) { d.Fingerprint = [32]byte{1, 2} }),
			"device 0: fingerprint: the plan was made from another trace: of events 0102000000000000…, this trace has b790912d7259581f…"},
		{"events", plan(func(d *planfile.Device) { d.Events = 21 }), "device 0: events: the plan is of 21 events, but the trace has 20"},
		{"reserved", plan(func(d *planfile.Device) { d.RecordedPeakReserved-- }), "device 0: reserved: recorded peak reserved of 16383 B, but the trace's is 16384 B"},

		{"two live", events(func(d *trace.Device) { d.Events[8].Addr = 0x1600 }),
			"device 0: trace: event 8: alloc at 0x1600, still held by the block at 0x1600, live before the recording"},
		{"free of nothing", events(func(d *trace.Device) { d.Events[10].Addr = 0x77 }),
			"device 0: trace: event 10: free_requested of 0x77, but nothing is live there"},
		{"second free", events(func(d *trace.Device) { d.Events[11].Action = requested }),
			"device 0: trace: event 11: second free_requested of 0x8400, held by the allocation at event 8"},

		{"no slot", plan(func(d *planfile.Device) { d.Slots = slices.Delete(d.Slots, 3, 4) }), "device 0: buffer: no slot for the 2500 B of the allocation at event 8"},
		{"no last slot", plan(func(d *planfile.Device) { d.Slots = d.Slots[:4] }), "device 0: buffer: no slot for the 0 B of the allocation at event 12"},
		{"no initial slot", plan(func(d *planfile.Device) { d.Slots = slices.Delete(d.Slots, 1, 2) }), "device 0: buffer: no slot for the 2048 B of the block at 0x1600, live before the recording"},
		{"slot for nothing", plan(func(d *planfile.Device) {
			d.Slots = slices.Insert(d.Slots, 3, planfile.Slot{Start: 7, RequestedEnd: 8, CompletedEnd: 8, Size: 512})
		}), "device 0: buffer: slot 3 starts at event 7, but the trace has no buffer for it"},
		{"last slot for nothing", plan(func(d *planfile.Device) {
			d.Slots = append(d.Slots, planfile.Slot{Start: 19, RequestedEnd: 20, CompletedEnd: 20, Size: 512})
		}), "device 0: buffer: slot 5 starts at event 19, but the trace has no buffer for it"},
		{"requested end", slot(3, func(s *planfile.Slot) { s.RequestedEnd = 9 }), "device 0: buffer: slot 3, for the allocation at event 8: requested end 9, in the trace 10"},
		{"completed end", slot(3, func(s *planfile.Slot) { s.CompletedEnd = 10 }), "device 0: buffer: slot 3, for the allocation at event 8: completed end 10, in the trace 11"},
		{"requested", slot(3, func(s *planfile.Slot) { s.Requested = 2560 }), "device 0: buffer: slot 3, for the allocation at event 8: requested bytes 2560, in the trace 2500"},
		{"stream", slot(3, func(s *planfile.Slot) { s.Stream = 1 }), "device 0: buffer: slot 3, for the allocation at event 8: stream 0x7f00, in the trace 0x0"},
		{"stream out of range", slot(4, func(s *planfile.Slot) { s.Stream = 2 }), "device 0: buffer: slot 4, for the allocation at event 12: stream 2 of 2, in the trace 0x7f00"},
		{"resident", slot(4, func(s *planfile.Slot) { s.Flags = 0 }), "device 0: buffer: slot 4, for the allocation at event 12: resident false, in the trace true"},
		{"initial", slot(1, func(s *planfile.Slot) { s.RequestedEnd = 6 }), "device 0: buffer: slot 1, for the block at 0x1600, live before the recording: requested end 6, in the trace 5"},
	} {
		tr := recording()
		p := recorded(tr)
		c.change(p, tr)
		if got := strings.Join(texts(t, AgainstTrace(p, tr)), "\n"); got != c.want {
			t.Errorf("%s: violations\n%s\nexpected\n%s", c.name, got, c.want)
		}
	}
}

// TestPendingWithoutCompletions: if completions are not recorded, a block with a pending
// free at the start counts as freed.
func TestPendingWithoutCompletions(t *testing.T) {
	w := newWalk(&trace.Device{
		Initial: []trace.Segment{{Address: 0x1000, Size: 512, Blocks: []trace.Block{{Address: 0x1000, Size: 512, Requested: 9, State: trace.BlockPendingFree}}}},
		Events:  []trace.Event{event(alloc, 0x1000, 7, 0), event(requested, 0x1000, 7, 0), {}},
	})
	if problem := w.all(); problem != "" {
		t.Fatal(problem)
	}
	want := []buffer{
		{start: 0, requestedEnd: 1, completedEnd: 1, requested: 9, addr: 0x1000, initial: true},
		{start: 0, requestedEnd: 1, completedEnd: 1, requested: 7, addr: 0x1000},
	}
	if !slices.Equal(w.buffers, want) {
		t.Errorf("buffers %+v, expected %+v", w.buffers, want)
	}
}

// program makes a random recording and a plan that serves it without reuse: one slot
// after the other. The plan is made from what the program does, not from its events.
type program struct {
	r                    *rand.Rand
	d                    trace.Device
	p                    planfile.Device
	requests, completion bool // which frees are recorded
	state                map[int]trace.BlockState
}

func newProgram(r *rand.Rand) *program {
	g := &program{r: r, state: map[int]trace.BlockState{}, requests: true, completion: true}
	switch r.IntN(4) {
	case 0:
		g.requests = false
	case 1:
		g.completion = false
	}
	g.p = planfile.Device{Mode: planfile.ModeRecorded, End: planfile.EndRequested, Alignment: 512}
	return g
}

// address is the address of slot i. Each slot has its own.
func address(i int) uint64 { return 1<<20 + uint64(i)<<12 }

func (g *program) open(s planfile.Slot, state trace.BlockState) {
	handle := uint64(g.r.IntN(3))
	k := slices.Index(g.p.Streams, handle)
	if k < 0 {
		k = len(g.p.Streams)
		g.p.Streams = append(g.p.Streams, handle)
	}
	s.Stream = uint32(k)
	s.Requested = g.r.Uint64N(3000)
	s.Size = inUnits(s.Requested)
	s.Offset = g.p.ArenaBytes
	g.p.ArenaBytes += s.Size
	g.state[len(g.p.Slots)] = state
	g.p.Slots = append(g.p.Slots, s)
}

// before makes the initial state.
func (g *program) before() {
	for range g.r.IntN(4) {
		i, state := len(g.p.Slots), trace.BlockAllocated
		if g.completion && g.requests && g.r.IntN(3) == 0 {
			state = trace.BlockPendingFree
		}
		g.open(planfile.Slot{Flags: planfile.SlotInitial}, state)
		s := &g.p.Slots[i]
		if state == trace.BlockPendingFree {
			s.RequestedEnd = 1
		}
		g.d.Initial = append(g.d.Initial, trace.Segment{Address: address(i), Size: 4096, Stream: g.p.Streams[s.Stream],
			Blocks: []trace.Block{{Address: address(i), Size: 4096, Requested: trace.Bytes(s.Requested), State: state}}})
	}
}

func (g *program) record(action trace.Action, i int) {
	e := trace.Event{}
	if action != trace.ActionOther {
		s := &g.p.Slots[i]
		e = event(action, address(i), trace.Bytes(s.Requested), g.p.Streams[s.Stream])
	}
	g.d.Events = append(g.d.Events, e)
}

// step records one event.
func (g *program) step() {
	now := uint64(len(g.d.Events))
	i := 0
	if len(g.p.Slots) > 0 {
		i = g.r.IntN(len(g.p.Slots))
	}
	state, ok := g.state[i]
	switch {
	case g.r.IntN(8) == 0:
		g.record(trace.ActionOther, 0)
	case !ok || g.r.IntN(3) == 0:
		g.open(planfile.Slot{Start: now}, trace.BlockAllocated)
		g.record(alloc, len(g.p.Slots)-1)
	case state == trace.BlockAllocated && g.requests:
		g.p.Slots[i].RequestedEnd = max(1, now)
		g.state[i] = trace.BlockPendingFree
		if !g.completion {
			g.p.Slots[i].CompletedEnd = max(1, now)
			delete(g.state, i)
		}
		g.record(requested, i)
	default:
		g.p.Slots[i].CompletedEnd = max(1, now)
		if !g.requests {
			g.p.Slots[i].RequestedEnd = max(1, now)
		}
		delete(g.state, i)
		g.record(completed, i)
	}
}

// finish ends what is still live.
func (g *program) finish() (*planfile.Plan, *trace.Trace) {
	last := uint64(len(g.d.Events))
	completion := slices.ContainsFunc(g.d.Events, func(e trace.Event) bool { return e.Action == completed })
	for i := range g.p.Slots {
		s := &g.p.Slots[i]
		if s.RequestedEnd == 0 && s.CompletedEnd == 0 {
			s.RequestedEnd, s.Flags = last, s.Flags|planfile.SlotResident
			s.CompletedEnd = last
		}
		if s.CompletedEnd == 0 {
			s.CompletedEnd = last
			if !completion {
				s.CompletedEnd = s.RequestedEnd
			}
		}
	}
	g.p.Events = last
	g.p.Fingerprint = g.d.EventsFingerprint()
	g.p.RecordedPeakReserved = uint64(4096 * len(g.d.Initial))
	g.p.PeakAllocated, g.p.Certificate.At = naivePeak(&g.p, planfile.EndRequested)
	g.p.PeakActive, _ = naivePeak(&g.p, planfile.EndCompleted)
	g.p.Certificate.Kind, g.p.Certificate.LowerBound = planfile.BoundLoad, g.p.PeakAllocated
	g.p.Certificate.Gap = g.p.ArenaBytes - g.p.Certificate.LowerBound
	g.r.Shuffle(len(g.d.Initial), func(i, k int) { g.d.Initial[i], g.d.Initial[k] = g.d.Initial[k], g.d.Initial[i] })
	return &planfile.Plan{Producer: "random", Devices: []planfile.Device{g.p}}, &trace.Trace{Devices: []trace.Device{g.d}}
}

func randomProgram(r *rand.Rand) (*planfile.Plan, *trace.Trace) {
	g := newProgram(r)
	g.before()
	for range 1 + r.IntN(60) {
		g.step()
	}
	return g.finish()
}

// TestRandomPrograms: the plan of a program passes against its recording, but not if any
// slot is changed.
func TestRandomPrograms(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 3000 {
		p, tr := randomProgram(r)
		if v := append(Plan(p, nil), AgainstTrace(p, tr)...); len(v) > 0 {
			t.Fatalf("%s\n%+v\n%+v", v[0].Message, p.Devices[0], tr.Devices[0])
		}
		d := &p.Devices[0]
		if len(d.Slots) == 0 {
			continue
		}
		i := r.IntN(len(d.Slots))
		what := spoil(r, d, i)
		v := AgainstTrace(p, tr)
		if len(v) == 0 || !strings.Contains(v[0].Message, RuleBuffer) {
			t.Fatalf("slot %d with another %s passes: %v", i, what, v)
		}
	}
}

// spoil changes one thing about slot i.
func spoil(r *rand.Rand, d *planfile.Device, i int) (what string) {
	s := &d.Slots[i]
	switch r.IntN(6) {
	case 0:
		s.RequestedEnd++
		return "requested end"
	case 1:
		s.CompletedEnd++
		return "completed end"
	case 2:
		s.Requested++
		return "request"
	case 3:
		d.Streams = append(d.Streams, 99)
		s.Stream = uint32(len(d.Streams) - 1)
		return "stream"
	case 4:
		s.Flags ^= planfile.SlotResident
		return "resident flag"
	}
	d.Slots = slices.Delete(d.Slots, i, i+1)
	return "slot in its place"
}

// TestSharedTraces compares the walk, the peaks and the reserved bytes of recordings of
// real jobs with known figures.
func TestSharedTraces(t *testing.T) {
	for _, folder := range []string{"../../../shared/traces", "../../../shared/traces-third-party"} {
		t.Run(filepath.Base(folder), func(t *testing.T) { compareFolder(t, folder) })
	}
}

func compareFolder(t *testing.T, folder string) {
	text, err := os.ReadFile(filepath.Join(folder, "MANIFEST.json"))
	if err != nil {
		t.Skipf("no recordings: %v", err)
	}
	var manifest []struct {
		File      string
		Reserved  uint64 `json:"peak_reserved_bytes_recorded"`
		Allocated uint64 `json:"peak_allocated_bytes"`
		Active    uint64 `json:"peak_active_bytes"`
		Buffers   int    `json:"allocations"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest {
		info, err := os.Stat(filepath.Join(folder, m.File))
		if err != nil {
			t.Fatal(err)
		}
		if testing.Short() || info.Size() > 600_000 {
			continue // the large ones take long to read and have nothing new
		}
		t.Run(m.File, func(t *testing.T) {
			tr, err := trace.ReadFile(filepath.Join(folder, m.File), trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(tr.Devices, func(d trace.Device) bool { return allocates(&d) })
			w := newWalk(&tr.Devices[i])
			if problem := w.all(); problem != "" {
				t.Fatal(problem)
			}
			toRequested, toCompleted := intervals(w.buffers)
			allocated, _ := maxLoad(toRequested)
			active, _ := maxLoad(toCompleted)
			got := fmt.Sprint(len(w.buffers), allocated, active, peakReserved(&tr.Devices[i]))
			if want := fmt.Sprint(m.Buffers, m.Allocated, m.Active, m.Reserved); got != want {
				t.Errorf("buffers and peaks %s, expected %s", got, want)
			}
		})
	}
}
