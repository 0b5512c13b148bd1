package baseline

import (
	"errors"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// e makes an entry of a recording.
func e(a trace.Action, addr uint64, size trace.Bytes, stream uint64) trace.Event {
	return trace.Event{Action: a, Addr: addr, Size: size, Stream: stream, Pool: -1}
}

const (
	alloc     = trace.ActionAlloc
	freed     = trace.ActionFreeRequested
	completed = trace.ActionFreeCompleted
	segAlloc  = trace.ActionSegmentAlloc
	segFree   = trace.ActionSegmentFree
)

// TestWhoReleased has one burst of releases in each recording, and says whether
// ReadProgram must conclude that the program called empty_cache.
func TestWhoReleased(t *testing.T) {
	// A 40 MiB segment, free; then a 20 MiB one of another stream.
	begin := []trace.Event{
		e(segAlloc, 1<<30, 40*mib, 0), e(alloc, 1<<30, 40*mib, 0), e(freed, 1<<30, 40*mib, 0), e(completed, 1<<30, 40*mib, 0),
		e(segAlloc, 2<<30, 20*mib, 7), e(alloc, 2<<30, 2*mib, 7),
	}
	release := e(segFree, 1<<30, 40*mib, 0)
	for _, tc := range []struct {
		name     string
		settings trace.Settings
		after    []trace.Event
		want     bool
	}{
		{"at the end", trace.Settings{}, nil, true},
		{"before a free", trace.Settings{}, []trace.Event{e(freed, 2<<30, 2*mib, 7)}, true},
		{"before a request from the cache", trace.Settings{}, []trace.Event{e(alloc, 2<<30+2<<20, 2*mib, 7)}, true},
		{"before a request it could have served", trace.Settings{}, []trace.Event{e(segAlloc, 3<<30, 60*mib, 0), e(alloc, 3<<30, 30*mib, 0)}, true},
		{"before a larger one, at the peak", trace.Settings{}, []trace.Event{e(segAlloc, 3<<30, 50*mib, 0), e(alloc, 3<<30, 50*mib, 0)}, false},
		{"before a small one, at the peak", trace.Settings{}, []trace.Event{e(segAlloc, 3<<30, 2*mib, 0), e(alloc, 3<<30, 1024, 0)}, false},
		{"before a larger one, far below the peak", trace.Settings{}, []trace.Event{
			e(segAlloc, 3<<30, 50*mib, 0), e(alloc, 3<<30, 50*mib, 0), e(segAlloc, 4<<30, 90*mib, 0), e(alloc, 4<<30, 90*mib, 0)}, true},
		{"before running out of memory", trace.Settings{}, []trace.Event{e(trace.ActionOOM, 0, 90*mib, 0)}, false},
		{"by the collector", trace.Settings{Known: true, MaxSplitSize: -1, GarbageCollectionThreshold: 0.5}, []trace.Event{
			e(segAlloc, 3<<30, 50*mib, 0), e(alloc, 3<<30, 50*mib, 0), e(segAlloc, 4<<30, 90*mib, 0), e(alloc, 4<<30, 90*mib, 0)}, false},
		{"of an oversize block", trace.Settings{Known: true, MaxSplitSize: 30 * mib}, []trace.Event{
			e(segAlloc, 3<<30, 50*mib, 0), e(alloc, 3<<30, 50*mib, 0), e(segAlloc, 4<<30, 90*mib, 0), e(alloc, 4<<30, 90*mib, 0)}, false},
		{"of a block too large to split", trace.Settings{Known: true, MaxSplitSize: 30 * mib}, []trace.Event{
			e(segAlloc, 3<<30, 24*mib, 0), e(alloc, 3<<30, 24*mib, 0)}, false},
	} {
		c, err := RecordedConfig(tc.settings)
		if err != nil {
			t.Fatal(err)
		}
		d := &trace.Device{Events: slices.Concat(begin, []trace.Event{release}, tc.after)}
		p, err := ReadProgram(d, c)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		got := slices.ContainsFunc(p.ops, func(o op) bool { return o.kind == opEmptyCache })
		if got != tc.want {
			t.Errorf("%s: empty_cache %t, expected %t", tc.name, got, tc.want)
		}
	}
}

// TestAwaitedFrees has an allocator that waits for a free before it gives back
// everything. The request came before the completion and failed without that memory.
func TestAwaitedFrees(t *testing.T) {
	d := &trace.Device{Events: []trace.Event{
		e(segAlloc, 1<<30, 40*mib, 0), e(alloc, 1<<30, 40*mib, 0), e(freed, 1<<30, 40*mib, 0),
		e(completed, 1<<30, 40*mib, 0), e(segFree, 1<<30, 40*mib, 0), e(segAlloc, 2<<30, 40*mib, 0), e(alloc, 2<<30, 40*mib, 0),
	}}
	// The free and its completion are neighbours: the allocator did not wait, and the
	// block could have served the request.
	kinds := func() (k []opKind) {
		p, err := ReadProgram(d, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range p.ops {
			k = append(k, o.kind)
		}
		return k
	}
	if got, want := kinds(), []opKind{opAlloc, opFree, opComplete, opEmptyCache, opAlloc}; !slices.Equal(got, want) {
		t.Errorf("ops %v, expected %v", got, want)
	}
	checkExact(t, d, Config{})
	// Something happened in between: the allocator waited for the completion.
	d.Events = slices.Insert(d.Events, 3, e(segAlloc, 3<<30, 20*mib, 7), e(alloc, 3<<30, 20*mib, 7))
	if got, want := kinds(), []opKind{opAlloc, opFree, opAlloc, opAlloc, opComplete}; !slices.Equal(got, want) {
		t.Errorf("ops %v, expected %v", got, want)
	}
	checkExact(t, d, Config{})
}

// TestFreesWhileServing has frees complete in the middle of a request: between
// what the collector gave back, which was not enough, and everything else; and
// after a part of an expandable request was mapped.
func TestFreesWhileServing(t *testing.T) {
	collecting := trace.Settings{Known: true, MaxSplitSize: -1, GarbageCollectionThreshold: 0.5}
	for _, tc := range []struct {
		settings trace.Settings
		answer   []trace.Event
	}{
		{collecting, []trace.Event{
			e(segFree, 1<<30, 40*mib, 0), e(completed, 2<<30, 1024, 0), e(segFree, 2<<30, 2*mib, 0), e(segAlloc, 3<<30, 60*mib, 0)}},
		{trace.Settings{}, []trace.Event{
			e(trace.ActionSegmentMap, 3<<30, 20*mib, 0), e(completed, 2<<30, 1024, 0),
			e(trace.ActionSegmentUnmap, 5<<30, 40*mib, 0), e(trace.ActionSegmentMap, 3<<30+20<<20, 40*mib, 0)}},
	} {
		c, err := RecordedConfig(tc.settings)
		if err != nil {
			t.Fatal(err)
		}
		d := &trace.Device{Events: slices.Concat([]trace.Event{
			e(segAlloc, 1<<30, 40*mib, 0), e(alloc, 1<<30, 40*mib, 0), e(freed, 1<<30, 40*mib, 0), e(completed, 1<<30, 40*mib, 0),
			e(segAlloc, 2<<30, 2*mib, 0), e(alloc, 2<<30, 1024, 0), e(freed, 2<<30, 1024, 0), e(alloc, 2<<30+1024, 1024, 0),
		}, tc.answer, []trace.Event{e(alloc, 3<<30, 60*mib, 0)})}
		p, err := ReadProgram(d, c)
		if err != nil {
			t.Fatal(err)
		}
		last := p.ops[len(p.ops)-3:]
		if last[1].kind != opAlloc || last[2].kind != opComplete || last[2].buffer != 1 || len(p.ops) != 8 {
			t.Errorf("ops %+v, expected the last completion after the last allocation", p.ops)
		}
	}
}

func TestCard(t *testing.T) {
	d := &trace.Device{Events: []trace.Event{
		e(segAlloc, 96<<20, 20*mib, 0), e(segAlloc, 64<<20, 2*mib, 0), e(segAlloc, 160<<20, 20*mib, 0),
	}}
	c := newCard(d)
	take := func(want uint64, got uint64, ok bool) {
		t.Helper()
		if got != want || !ok {
			t.Errorf("0x%x, %t, expected 0x%x", got, ok, want)
		}
	}
	for _, want := range []uint64{96 << 20, 160 << 20, 32 << 20, highest - 32<<20} {
		addr, ok := c.segment(20 * mib)
		take(want, addr, ok)
	}
	addr, ok := c.reserve(40 * mib)
	take(highest-96<<20, addr, ok)
	for _, want := range []bool{true, false} {
		if _, ok := c.reserve(highest / 2); ok != want {
			t.Errorf("half the address space: %t, expected %t", ok, want)
		}
	}
	c.refuse(true)
	if _, ok := c.segment(2 * mib); ok || c.commit(2*mib) {
		t.Error("a full card has memory")
	}
}

// TestSurvivedRefusal has a program that goes on after it ran out of memory.
func TestSurvivedRefusal(t *testing.T) {
	d := &trace.Device{Events: []trace.Event{
		e(segAlloc, 1<<30, 40*mib, 0), e(alloc, 1<<30, 40*mib, 0), e(freed, 1<<30, 40*mib, 0), e(completed, 1<<30, 40*mib, 0),
		e(segFree, 1<<30, 40*mib, 0), e(trace.ActionOOM, 0, 90*mib, 0),
		e(segAlloc, 2<<30, 20*mib, 0), e(alloc, 2<<30, 2*mib, 0),
	}}
	checkExact(t, d, Config{})
	r, err := simulate(d, Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Result{
		PeakReserved: 40 * mib, PeakAllocated: 40 * mib, PeakActive: 40 * mib, PeakAt: 1, Retries: 1,
		final: Usage{20 * mib, 2 * mib, 2 * mib},
	}
	if r != want {
		t.Errorf("%+v\nexpected\n%+v", r, want)
	}
}

// TestOneKindOfFree reads recordings without one of the two kinds of free entries.
func TestOneKindOfFree(t *testing.T) {
	for _, missing := range []trace.Action{freed, completed} {
		d, c := readFixture(t, "default", "")
		// Apart from the fixture's delayed frees, either kind says everything.
		one := *d
		one.Events = nil
		for i := range d.Events {
			if d.Events[i].Action != missing {
				one.Events = append(one.Events, d.Events[i])
			}
		}
		r, err := simulate(&one, c, nil)
		if err != nil {
			t.Fatalf("without %s: %v", missing, err)
		}
		all, err := simulate(d, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.final.Allocated != all.final.Allocated || r.OOM != nil {
			t.Errorf("without %s: %+v, with all entries %+v", missing, r, all)
		}
	}
}

func TestContradictions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		device trace.Device
		want   string
	}{
		{"two at one address", trace.Device{Events: []trace.Event{e(alloc, 512, 1, 0), e(alloc, 512, 1, 0)}},
			"entry 1: allocation at 0x200, which is still in use"},
		{"pending address", trace.Device{Events: []trace.Event{e(alloc, 512, 1, 0), e(freed, 512, 1, 0), e(alloc, 512, 1, 0), e(completed, 512, 1, 0)}},
			"entry 2: allocation at 0x200, which is still in use"},
		{"free of nothing", trace.Device{Events: []trace.Event{e(completed, 512, 1, 0)}},
			"entry 0: free_completed of 0x200, which is not allocated"},
		{"freed twice", trace.Device{Events: []trace.Event{e(alloc, 512, 1, 0), e(freed, 512, 1, 0), e(freed, 512, 1, 0), e(completed, 512, 1, 0)}},
			"entry 2: free_requested of 0x200, which is not allocated"},
		{"negative size", trace.Device{Events: []trace.Event{e(alloc, 512, -1, 0)}},
			"entry 0: allocation of -1 B, expected 0 to 281474976710656"},
		{"absurd size", trace.Device{Events: []trace.Event{e(trace.ActionOOM, 512, 1<<60, 0)}},
			"entry 0: allocation of 1152921504606846976 B, expected 0 to 281474976710656"},
		{"hole in a segment", trace.Device{Initial: []trace.Segment{{Address: 4096, Size: 2 * mib, Blocks: []trace.Block{
			{Address: 4096, Size: mib}, {Address: 4096 + 1<<20 + 512, Size: mib - 512}}}}},
			"initial state: the blocks of the segment at 0x1000 do not fill it"},
		{"short of a segment", trace.Device{Initial: []trace.Segment{{Address: 4096, Size: 2 * mib, Blocks: []trace.Block{{Address: 4096, Size: mib}}}}},
			"initial state: the blocks of the segment at 0x1000 do not fill it"},
		{"segment of nothing", trace.Device{Initial: []trace.Segment{{Address: 4096, Size: 2 * mib}}},
			"initial state: the blocks of the segment at 0x1000 do not fill it"},
		{"absurd block", trace.Device{Initial: []trace.Segment{{Address: 4096, Size: 1 << 60, Blocks: []trace.Block{{Address: 4096, Size: 1 << 60}}}}},
			"initial state: segment of 1152921504606846976 B at 0x1000, expected 1 to 281474976710656"},
	} {
		for name, run := range map[string]func() error{
			"Simulate":  func() error { _, err := simulate(&tc.device, Config{}, nil); return err },
			"SelfCheck": func() error { _, err := selfCheck(&tc.device, Config{}, nil); return err },
		} {
			var input *trace.InputError
			if err := run(); !errors.As(err, &input) || err.Error() != tc.want {
				t.Errorf("%s, %s: %v\nexpected %s", tc.name, name, err, tc.want)
			}
		}
	}
}

// TestPrivatePools attributes allocations to the pool of a CUDA graph: by the entries
// if they name it, otherwise by the final segments.
func TestPrivatePools(t *testing.T) {
	graph := trace.PoolID{1, 0}
	d := &trace.Device{
		Events: []trace.Event{
			e(segAlloc, 1<<30, 20*mib, 0), e(alloc, 1<<30, 2*mib, 0), e(freed, 1<<30, 2*mib, 0), e(completed, 1<<30, 2*mib, 0),
			// The graph's pool does not take from the default one.
			e(segAlloc, 2<<30, 20*mib, 0), e(alloc, 2<<30, 2*mib, 0), e(freed, 2<<30, 2*mib, 0), e(completed, 2<<30, 2*mib, 0),
			// empty_cache leaves its memory alone.
			e(segFree, 1<<30, 20*mib, 0),
			// What lay there before belonged to the default pool.
			e(segAlloc, 1<<30, 20*mib, 0), e(alloc, 1<<30, 2*mib, 0),
			e(alloc, 2<<30, 3*mib, 0),
		},
		Final: []trace.Segment{
			{Address: 1 << 30, Size: 20 * mib},
			{Address: 2 << 30, Size: 20 * mib, Pool: graph},
		},
	}
	checkExact(t, d, Config{})

	// Now the entries name the pools, and the graph's owner has let go of its pool.
	d.Final, d.Pools = nil, []trace.PoolID{{}, graph}
	d.Events = d.Events[:9]
	for i := range d.Events {
		d.Events[i].Pool = 0
		if d.Events[i].Addr == 2<<30 {
			d.Events[i].Pool = 1
		}
	}
	released := d.Events[4]
	released.Action = segFree
	d.Events = append(d.Events, released)
	checkExact(t, d, Config{})
}

// TestReusedAddress has a private pool at an address that was the default pool's.
func TestReusedAddress(t *testing.T) {
	d := &trace.Device{
		Events: []trace.Event{
			e(segAlloc, 1<<30, 20*mib, 0), e(alloc, 1<<30, 2*mib, 0), e(freed, 1<<30, 2*mib, 0), e(completed, 1<<30, 2*mib, 0),
			e(segFree, 1<<30, 20*mib, 0), e(segAlloc, 1<<30, 20*mib, 0), e(alloc, 1<<30, 2*mib, 0),
		},
		Final: []trace.Segment{{Address: 1 << 30, Size: 20 * mib, Pool: trace.PoolID{0, 2}}},
	}
	p := findPrivatePools(d)
	for i, want := range map[int]trace.PoolID{1: {}, 6: {0, 2}} {
		if got := p.of(d, i); got != want {
			t.Errorf("entry %d: pool %v, expected %v", i, got, want)
		}
	}
	recorded, err := Expandable(Config{}).rules()
	if err != nil {
		t.Fatal(err)
	}
	if got := customPools(d, &recorded); !got[trace.PoolID{0, 2}] {
		t.Error("a native segment among expandable ones is not taken for a custom allocator's")
	}
}

// TestPendingWithoutCompletions begins with a pending free in a recording without
// completions: its memory is free from the start.
func TestPendingWithoutCompletions(t *testing.T) {
	d := &trace.Device{
		Initial: []trace.Segment{{Address: 1 << 30, Size: 2 * mib, Small: true, Blocks: []trace.Block{
			{Address: 1 << 30, Size: 2 * mib, Requested: 2 * mib, State: trace.BlockPendingFree}}}},
		Events: []trace.Event{e(alloc, 1<<30, 512, 0), e(freed, 1<<30, 512, 0), e(alloc, 1<<30, 1024, 0)},
	}
	checkExact(t, d, Config{})
}
