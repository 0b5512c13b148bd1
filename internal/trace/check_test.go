package trace

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// trial is a trace of one device with the given events, which have no stacks, texts
// or pools.
func trial(events ...Event) *Trace {
	for i := range events {
		events[i].Stack, events[i].UserMetadata, events[i].CompileContext, events[i].Pool = None, None, None, int16(None)
	}
	return &Trace{Name: "t", Devices: []Device{{Ordinal: 2, Events: events}}}
}

func validated(t *Trace) error {
	if err := t.validate(false, entryOf); err != nil {
		return err
	}
	return nil
}

func at(a Action, addr uint64) Event { return Event{Action: a, Addr: addr, Size: 8} }

// One trace per rule, each with its whole message.
func TestValidateRefuses(t *testing.T) {
	alloc, free, done := ActionAlloc, ActionFreeRequested, ActionFreeCompleted
	edit := func(f func(*Trace)) *Trace {
		tr := trial(at(alloc, 64), at(free, 64), at(done, 64))
		f(tr)
		return tr
	}
	segment := func(blocks ...Block) []Segment { return []Segment{{Address: 4096, Size: 1024, Blocks: blocks}} }
	for _, c := range []struct {
		name string
		t    *Trace
		want string
	}{
		{"no events", &Trace{Name: "t"}, "t: empty trace: no device has an event; " + advice},
		{"no allocs", trial(at(free, 64)), "t: trace without allocations: none of 1 events is an alloc; " + advice},
		{"second free", trial(at(alloc, 64), at(free, 64), at(done, 64), at(free, 64)),
			"t: device 2: entry 3: addr: second free: free_requested of 0x40, which device 2: entry 2 freed already"},
		{"second completion", trial(at(alloc, 64), at(free, 64), at(done, 64), at(done, 64)),
			"t: device 2: entry 3: addr: second free: free_completed of 0x40, which device 2: entry 2 freed already"},
		{"two live", trial(at(alloc, 64), at(alloc, 64)),
			"t: device 2: entry 1: addr: two live allocations at one address: 0x40 is held by device 2: entry 0 (not freed since)"},
		{"reused while pending", trial(at(alloc, 64), at(free, 64), at(alloc, 64), at(alloc, 128), at(done, 128)),
			"t: device 2: entry 2: addr: two live allocations at one address: 0x40 is held by device 2: entry 1 (the free there has not completed)"},
		{"completed only", trial(at(alloc, 64), at(done, 64), at(alloc, 128), at(free, 128)),
			"t: device 2: entry 1: addr: free_completed of 0x40, held by device 2: entry 0, without a free_requested between"},
		{"not in exact initial state", edit(func(t *Trace) {
			t.Devices[0].Initial = segment(Block{Address: 4096, Size: 1024, Stack: None})
			t.Devices[0].Events[0].Addr = 128
		}), "t: device 2: entry 1: addr: free_requested of 0x40, which no entry allocated and the initial state does not hold"},
		{"on top of exact initial state", edit(func(t *Trace) {
			t.Devices[0].Initial = segment(Block{Address: 4096, Size: 1024, State: BlockAllocated, Stack: None})
			t.Devices[0].Events[0].Addr = 4096
		}), "t: device 2: entry 0: addr: two live allocations at one address: 0x1000 is held by the initial state (not freed since)"},
		{"negative size", edit(func(t *Trace) { t.Devices[0].Events[1].Size = -1 }), "t: device 2: entry 1: size: size -1 B, expected 0 to 281474976710656 B"},
		{"action", edit(func(t *Trace) { t.Devices[0].Events[1].Action = 10 }), "t: device 2: entry 1: action: action 10 is unknown"},
		{"address range", edit(func(t *Trace) { t.Devices[0].Events[2].Addr = 1<<64 - 7 }),
			"t: device 2: entry 2: addr: address 0xfffffffffffffff9 plus 8 B is beyond the 64-bit address space"},
		{"stack", edit(func(t *Trace) { t.Devices[0].Events[2].Stack = 0 }), "t: device 2: entry 2: stack: stack 0 is not one of the trace's 0"},
		{"user metadata", edit(func(t *Trace) { t.Devices[0].Events[2].UserMetadata = -2 }), "t: device 2: entry 2: user_metadata: string -2 is not one of the trace's 0"},
		{"compile context", edit(func(t *Trace) { t.Devices[0].Events[2].CompileContext = 1 }), "t: device 2: entry 2: compile_context: string 1 is not one of the trace's 0"},
		{"pool", edit(func(t *Trace) { t.Devices[0].Events[2].Pool = 0 }), "t: device 2: entry 2: pool: pool 0 is not one of the trace's 0"},
		{"devices ascend", edit(func(t *Trace) { t.Devices = append(t.Devices, t.Devices[0]) }), "t: device 2 after device 2; devices must be in ascending order"},
		{"ordinal", edit(func(t *Trace) { t.Devices[0].Ordinal = -1 }), "t: device ordinal -1 is outside 0 to 32767"},
		{"annotation beyond", edit(func(t *Trace) { t.Devices[0].Annotations = []Annotation{{At: 4}} }), "t: device 2: annotation 0: placed before event 4, expected 0 to 3"},
		{"annotation order", edit(func(t *Trace) { t.Devices[0].Annotations = []Annotation{{At: 2}, {At: 1}} }),
			"t: device 2: annotation 1: placed before event 1, but the annotation before it before event 2"},
		{"annotation text", edit(func(t *Trace) { t.Devices[0].Annotations = []Annotation{{Name: "\xff"}} }), `t: device 2: annotation 0: "\xff" is not UTF-8`},
		{"string", edit(func(t *Trace) { t.Strings = []string{"\xff"} }), `t: string 0: "\xff" is not UTF-8`},
		{"note", edit(func(t *Trace) { t.Notes = []string{"\xff"} }), `t: note 0: "\xff" is not UTF-8`},
		{"frame", edit(func(t *Trace) { t.Stacks.Frames = []Frame{{File: "\xff"}} }), `t: frame 0: "\xff " is not UTF-8`},
		{"stack's frame", edit(func(t *Trace) { t.Stacks = Stacks{Index: []int32{0}, Bounds: []int32{0, 1}} }), "t: stack frame 0: frame 0 is not one of the trace's 0"},
		{"stack's bounds", edit(func(t *Trace) { t.Stacks = Stacks{Bounds: []int32{0, 1}} }), "t: stack 1: bound 1, expected 0 to 0"},
		{"gap in segment", edit(func(t *Trace) {
			t.Devices[0].Final = segment(Block{Address: 4096, Size: 512, Stack: None}, Block{Address: 4700, Size: 324, Stack: None})
		}), "t: device 2: final segment 0: block 1: starts at 0x125c, expected 0x1200: blocks must tile their segment"},
		{"segment without blocks", edit(func(t *Trace) { t.Devices[0].Final = segment() }),
			"t: device 2: final segment 0: block 0: missing: the blocks end at 0x1000, the segment at 0x1400"},
		{"segment size", edit(func(t *Trace) { t.Devices[0].Final = []Segment{{}} }), "t: device 2: final segment 0: size 0 B, expected 1 to 281474976710656 B"},
		{"overlap below", trial(at(alloc, 64), at(alloc, 128), at(alloc, 71)),
			"t: device 2: entry 2: addr: two live allocations overlap: 8 B at 0x47 and 8 B at 0x40, held by device 2: entry 0 (not freed since)"},
		{"overlap above", trial(at(alloc, 64), at(alloc, 57)),
			"t: device 2: entry 1: addr: two live allocations overlap: 8 B at 0x39 and 8 B at 0x40, held by device 2: entry 0 (not freed since)"},
		{"overlap pending", trial(at(alloc, 64), at(free, 64), at(alloc, 57), at(done, 64)),
			"t: device 2: entry 2: addr: two live allocations overlap: 8 B at 0x39 and 8 B at 0x40, held by device 2: entry 1 (the free there has not completed)"},
		{"overlap with exact initial state", edit(func(t *Trace) {
			t.Devices[0].Initial = segment(Block{Address: 4096, Size: 1024, Requested: 600, State: BlockAllocated, Stack: None})
			t.Devices[0].Events[0].Addr = 4096 + 599
		}), "t: device 2: entry 0: addr: two live allocations overlap: 8 B at 0x1257 and 600 B at 0x1000, held by the initial state (not freed since)"},
		{"segment taken twice", trial(at(ActionSegmentAlloc, 64), at(ActionSegmentAlloc, 128), at(ActionSegmentFree, 128), at(ActionSegmentAlloc, 60)),
			"t: device 2: entry 3: addr: segment_alloc of 8 B at 0x3c overlaps the 8 B at 0x40 of device 2: entry 0 (not released since)"},
		{"too much reserved", trial(many(ActionSegmentMap, 1<<14+1)...),
			"t: device 2: entry 16384: size: with these 281474976710656 B, segments take 4611967493404098560 B, expected at most 4611686018427387904 B"},
		{"too much live", trial(many(alloc, 1<<14+1)...),
			"t: device 2: entry 16384: size: with these 281474976710656 B, live allocations take 4611967493404098560 B, expected at most 4611686018427387904 B"},
		{"too much at the end", edit(func(t *Trace) {
			for _, e := range many(alloc, 1<<14+1) {
				t.Devices[0].Final = append(t.Devices[0].Final, Segment{Address: e.Addr, Size: e.Size, Blocks: []Block{{Address: e.Addr, Size: e.Size, Stack: None}}})
			}
		}), "t: device 2: final segment 16384: segments of 4611967493404098560 B so far, expected at most 4611686018427387904 B"},
		{"segment range", edit(func(t *Trace) { t.Devices[0].Final = []Segment{{Address: 1<<64 - 1, Size: 2}} }),
			"t: device 2: final segment 0: address 0xffffffffffffffff plus 2 B is beyond the 64-bit address space"},
		{"requested more", edit(func(t *Trace) {
			t.Devices[0].Initial = segment(Block{Address: 4096, Size: 1024, Requested: 1025, State: BlockPendingFree, Stack: None})
		}), "t: device 2: initial segment 0: block 0: requested size 1025 B, expected 0 to 1024 B, the block's size"},
		{"block state", edit(func(t *Trace) {
			t.Devices[0].Initial = segment(Block{Address: 4096, Size: 1024, State: 3, Stack: None})
		}), "t: device 2: initial segment 0: block 0: state 3 is unknown"},
		{"block stack", edit(func(t *Trace) {
			t.Devices[0].Initial = segment(Block{Address: 4096, Size: 1024, Stack: 0})
		}), "t: device 2: initial segment 0: block 0: stack 0 is not one of the trace's 0"},
	} {
		t.Run(c.name, func(t *testing.T) { wantProblem(t, validated(c.t), c.want) })
	}
}

// Recordings with skipped actions, or that began after the first allocation, are
// accepted.
func TestValidateAccepts(t *testing.T) {
	alloc, free, done := ActionAlloc, ActionFreeRequested, ActionFreeCompleted
	for name, tr := range map[string]*Trace{
		"freed twice in turn":        trial(at(alloc, 64), at(free, 64), at(done, 64), at(alloc, 64), at(free, 64), at(done, 64)),
		"completion skipped":         trial(at(alloc, 64), at(free, 64), at(alloc, 64)),
		"request skipped":            trial(at(alloc, 64), at(done, 64), at(alloc, 64)),
		"live before":                trial(at(free, 64), at(done, 64), at(alloc, 64)),
		"pending before":             trial(at(done, 64), at(alloc, 64), at(free, 64)),
		"oom holds no address":       trial(at(alloc, 64), Event{Action: ActionOOM, Addr: 1<<64 - 1, Size: 1 << 40}),
		"neighbours":                 trial(at(alloc, 64), at(alloc, 72), at(alloc, 56)),
		"released, then inside":      trial(at(alloc, 64), at(free, 64), at(done, 64), at(alloc, 66)),
		"segment_free skipped":       trial(at(alloc, 8), at(ActionSegmentAlloc, 64), at(ActionSegmentAlloc, 60)),
		"segments in turn":           trial(at(alloc, 8), at(ActionSegmentAlloc, 64), at(ActionSegmentFree, 64), at(ActionSegmentAlloc, 60)),
		"before the recording":       trial(at(ActionSegmentFree, 64), at(alloc, 8), at(ActionSegmentAlloc, 60)),
		"unknown kinds mean nothing": trial(at(alloc, 64), at(ActionOther, 64), at(ActionOther, 64)),
	} {
		t.Run(name, func(t *testing.T) {
			if err := validated(tr); err != nil {
				t.Error(err)
			}
		})
	}
}

// many makes n events of the largest size, at addresses side by side.
func many(a Action, n int) []Event {
	events := make([]Event, n)
	for i := range events {
		events[i] = Event{Action: a, Addr: uint64(i) * uint64(maxSize), Size: maxSize}
	}
	return events
}

// TestOccupied compares with a search of all ranges.
func TestOccupied(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for _, n := range []int{1, 2, 63, 64, 65, 300, 5000} {
		addresses := make([]uint64, n)
		for i := range addresses {
			addresses[i] = uint64(r.IntN(20 * n))
		}
		o := newOccupied(addresses)
		held := map[int]Bytes{}
		for range 4000 {
			k, size := o.find(addresses[r.IntN(n)]), Bytes(r.IntN(60))
			want := false
			for other, s := range held {
				a, b := o.addresses[k], o.addresses[other]
				want = want || a == b || a < b && b-a < uint64(size) || b < a && a-b < uint64(s)
			}
			got := o.overlap(k, size)
			if _, ok := held[got]; (got >= 0) != want || want && !ok {
				t.Fatalf("%d addresses: %d B at %d: overlap %d, want one: %v", n, size, o.addresses[k], got, want)
			}
			if got < 0 {
				o.take(k, size)
				held[k] = size
			} else if r.IntN(2) == 0 {
				o.release(got)
				delete(held, got)
			}
		}
	}
}

// naivePairs returns the first event that breaks the rules of allocs and frees, or
// -1. It looks back over the whole recording for each event.
func naivePairs(events []Event) int {
	has := map[Action]bool{}
	for _, e := range events {
		has[e.Action] = true
	}
	for i, e := range events {
		last := ActionOther // what happened to the address before
		for _, p := range events[:i] {
			if p.Addr == e.Addr && p.Action != ActionOther {
				last = p.Action
			}
		}
		released := last == ActionOther || last == ActionFreeCompleted || last == ActionFreeRequested && !has[ActionFreeCompleted]
		ok := true
		switch e.Action {
		case ActionAlloc:
			ok = released
		case ActionFreeRequested:
			ok = last == ActionAlloc || last == ActionOther
		case ActionFreeCompleted:
			ok = last == ActionFreeRequested || last == ActionOther || last == ActionAlloc && !has[ActionFreeRequested]
		}
		if !ok {
			return i
		}
	}
	return -1
}

func TestValidatePairsAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	verdicts := map[bool]int{}
	for range 20000 {
		kinds := [][]Action{{1, 2, 3}, {1, 2}, {1, 3}, {0, 1, 2, 3}}[r.IntN(4)]
		events := []Event{at(ActionAlloc, 1<<20)}
		for range r.IntN(7) {
			events = append(events, at(kinds[r.IntN(len(kinds))], uint64(64*r.IntN(3))))
		}
		want := naivePairs(events)
		err := validated(trial(events...))
		verdicts[err == nil]++
		switch {
		case want < 0 && err != nil:
			t.Fatalf("%v: %v, want no error", events, err)
		case want >= 0 && (err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("t: device 2: entry %d: addr: ", want))):
			t.Fatalf("%v: %v, want an error at %d", events, err, want)
		}
	}
	if verdicts[true] < 1000 || verdicts[false] < 1000 {
		t.Errorf("%d accepted, %d refused: not a test of both", verdicts[true], verdicts[false])
	}
}
