package trace

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// arena is a simplified native allocator on one stream: it maps or allocates segments,
// places blocks first fit, and splits blocks as the native allocator does.
type arena struct {
	segments []Segment
	next     uint64
	mapped   bool // expandable segments
	events   []Event
}

func (a *arena) log(action Action, addr uint64, size Bytes) {
	a.events = append(a.events, Event{Action: action, Addr: addr, Size: size, Stack: None, UserMetadata: None, CompileContext: None, Pool: -1})
}

func (a *arena) alloc(request Bytes) {
	size := (&Divisions{}).Round(request)
	small := size <= smallLimit
	for i := range a.segments {
		s := &a.segments[i]
		for k, b := range s.Blocks {
			if s.Small == small && b.State == BlockInactive && b.Size >= size {
				a.take(s, k, size, request)
				return
			}
		}
	}
	a.grow(small, size)
	a.alloc(request)
}

func (a *arena) take(s *Segment, k int, size, request Bytes) {
	b := s.Blocks[k]
	rest := b.Size - size
	if s.Small || s.Expandable || rest > smallLimit {
		if rest > 0 {
			s.Blocks = slices.Insert(s.Blocks, k+1, Block{Address: b.Address + uint64(size), Size: rest, Stack: None})
		}
		b.Size = size
	}
	b.State, b.Requested = BlockAllocated, request
	s.Blocks[k] = b
	a.log(ActionAlloc, b.Address, request)
}

func (a *arena) grow(small bool, size Bytes) {
	n := max(20<<20, (size+2<<20-1)&^(2<<20-1))
	if small {
		n = 2 << 20
	}
	action := ActionSegmentAlloc
	if a.mapped {
		action = ActionSegmentMap
	}
	a.log(action, a.next, n)
	a.segments = append(a.segments, Segment{Address: a.next, Size: n, Small: small, Expandable: a.mapped,
		Blocks: []Block{{Address: a.next, Size: n, Stack: None}}})
	a.next += uint64(n) + 4096 // so that no segments are neighbours
}

// free frees a random block, or completes a free that was delayed.
func (a *arena) free(r *rand.Rand) {
	var live [][2]int
	for i, s := range a.segments {
		for k, b := range s.Blocks {
			if b.State != BlockInactive {
				live = append(live, [2]int{i, k})
			}
		}
	}
	if len(live) == 0 {
		return
	}
	at := live[r.IntN(len(live))]
	b := &a.segments[at[0]].Blocks[at[1]]
	if b.State == BlockAllocated {
		a.log(ActionFreeRequested, b.Address, b.Requested)
		b.State = BlockPendingFree
		if r.IntN(4) == 0 {
			return
		}
	}
	a.log(ActionFreeCompleted, b.Address, b.Requested)
	b.State, b.Requested = BlockInactive, 0
	a.segments[at[0]].merge()
}

// merge joins neighbouring free blocks.
func (s *Segment) merge() {
	for k := len(s.Blocks) - 2; k >= 0; k-- {
		if a, b := &s.Blocks[k], s.Blocks[k+1]; a.State == BlockInactive && b.State == BlockInactive {
			a.Size += b.Size
			s.Blocks = slices.Delete(s.Blocks, k+1, k+2)
		}
	}
}

// release gives the free segments back.
func (a *arena) release() {
	a.segments = slices.DeleteFunc(a.segments, func(s Segment) bool {
		idle := len(s.Blocks) == 1 && s.Blocks[0].State == BlockInactive
		if idle {
			a.log(map[bool]Action{false: ActionSegmentFree, true: ActionSegmentUnmap}[s.Expandable], s.Address, s.Size)
		}
		return idle
	})
}

func (a *arena) run(r *rand.Rand, steps int) {
	for range steps {
		switch n := r.IntN(100); {
		case n < 50:
			a.alloc(1 + Bytes(r.Int64N(int64([]Bytes{2000, 1 << 20, 8 << 20, 30 << 20}[r.IntN(4)]))))
		case n < 98:
			a.free(r)
		default:
			a.release()
		}
	}
}

func (a *arena) state() []Segment {
	state := slices.Clone(a.segments)
	for i := range state {
		state[i].Blocks = slices.Clone(state[i].Blocks)
	}
	slices.SortFunc(state, func(x, y Segment) int { return cmp.Compare(x.Address, y.Address) })
	return state
}

// TestInitialFromTheMiddle cuts random runs in two and infers the state at the cut from
// the second half. Everything that the second half determines must be right: the memory,
// the live blocks, their requests and states. Sizes must be right within the slack of a
// block that the allocator does not split.
func TestInitialFromTheMiddle(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		a := &arena{next: start, mapped: seed%2 == 1}
		a.run(r, r.IntN(150))
		want := a.state()
		a.events = nil
		a.run(r, 1+r.IntN(300))
		dev := Device{Events: a.events, Final: a.state()}
		got, guessed := inferInitial(&dev, pastOf(dev.Events), &Settings{})
		compareStates(t, seed, got, want)
		dev.Initial, dev.InitialInferred = got, guessed > 0
		tr := Trace{Devices: []Device{dev}}
		if err := tr.validate(true, entryOf); err != nil && !strings.Contains(err.Error(), "trace without allocations") {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if untouched := len(pastOf(dev.Events).frees) == 0 && sameSegments(want, dev.Final); untouched && guessed != 0 {
			t.Errorf("seed %d: %d guesses, although Final has everything", seed, guessed)
		}
	}
}

func sameSegments(a, b []Segment) bool {
	return slices.EqualFunc(a, b, func(x, y Segment) bool { return x.Address == y.Address && x.Size == y.Size })
}

func compareStates(t *testing.T, seed uint64, got, want []Segment) {
	t.Helper()
	if !sameSegments(got, want) {
		t.Fatalf("seed %d: segments\n%+v, want\n%+v", seed, got, want)
	}
	for i := range got {
		if got[i].Expandable != want[i].Expandable {
			t.Errorf("seed %d: segment %#x expandable: %v", seed, got[i].Address, got[i].Expandable)
		}
		g, w := live(got[i]), live(want[i])
		if !slices.Equal(slices.Sorted(maps.Keys(g)), slices.Sorted(maps.Keys(w))) {
			t.Fatalf("seed %d: live in segment %#x:\n%v, want\n%v", seed, got[i].Address, g, w)
		}
		for address, b := range g {
			o := w[address]
			hidden := max(b.Size, o.Size) - min(b.Size, o.Size)
			exact := got[i].Small || got[i].Expandable
			if b.Requested != o.Requested || b.State != o.State || hidden > smallLimit || exact && hidden > 0 {
				t.Fatalf("seed %d: block %#x: %+v, want %+v", seed, address, b, o)
			}
		}
	}
}

func live(s Segment) map[uint64]Block {
	m := map[uint64]Block{}
	for _, b := range s.Blocks {
		if b.State != BlockInactive {
			m[b.Address] = b
		}
	}
	return m
}

// TestPaint compares painted pieces with an owner for every address.
func TestPaint(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 500 {
		claims := make([]segmentClaim, r.IntN(12))
		owner := map[uint64]int32{}
		for i := range claims {
			claims[i].Address, claims[i].Size = uint64(r.IntN(40)), Bytes(1+r.IntN(15))
		}
		p := newPainter(claims)
		for i := range claims {
			p.paint(claims[i].Address, claims[i].end(), int32(i))
			for x := claims[i].Address; x < claims[i].end(); x++ {
				if _, ok := owner[x]; !ok {
					owner[x] = int32(i)
				}
			}
		}
		visited := map[uint64]int32{}
		p.each(func(lo, hi uint64, o int32) {
			for x := lo; x < hi; x++ {
				visited[x] = o
			}
		})
		if !maps.Equal(visited, owner) {
			t.Fatalf("claims %+v: %v, want %v", claims, visited, owner)
		}
		for x := range uint64(60) {
			want, ok := owner[x]
			if !ok {
				want = None
			}
			if got := p.at(x); got != want {
				t.Fatalf("claims %+v: %d belongs to %d, want %d", claims, x, got, want)
			}
		}
	}
}

// TestRound has the cases of torch's CUDACachingAllocator rounding.
func TestRound(t *testing.T) {
	four := Settings{}
	for i := range four.RoundupPower2Divisions {
		four.RoundupPower2Divisions[i] = 4
	}
	tests := []struct {
		s       Settings
		in, out Bytes
	}{
		{Settings{}, 0, 512}, {Settings{}, 1, 512}, {Settings{}, 512, 512}, {Settings{}, 513, 1024}, {Settings{}, 5_000_001, 5_000_192},
		{four, 2048, 2048}, {four, 2049, 2560}, {four, 2560, 2560}, {four, 4096, 4096}, {four, 5000, 5120}, {four, 1200 << 20, 1280 << 20},
		{Settings{RoundupPower2Divisions: [16]int64{1 << 62}}, 1000, 1024},
	}
	for _, test := range tests {
		if got := test.s.RoundupPower2Divisions.Round(test.in); got != test.out {
			t.Errorf("round(%d) with %v: %d, want %d", test.in, test.s.RoundupPower2Divisions[:2], got, test.out)
		}
	}
}

// middle is a recording that begins with a segment of 20 MiB and three blocks, of which
// it frees the first two.
func middle(more ...any) *pyDict {
	s := segmentDict(0, start, 20<<20, 0, "large",
		blockDict(start, 10<<20, 0, "inactive", newList()),
		blockDict(start+10<<20, 5<<20, 5<<20, "active_allocated", newList(newDict("filename", "m.py", "line", 1, "name", "f"))),
		blockDict(start+15<<20, 5<<20, 0, "inactive", newList()))
	entries := append([]any{
		entryDict("free_requested", start, 3<<20, 0, 1),
		entryDict("free_completed", start, 3<<20, 0, 1),
		entryDict("free_completed", start+4<<20, 6<<20-700, 0, 1),
	}, more...)
	return snapshotDict(newList(s), newList(newList(entries...)), newList())
}

func TestInitialSizes(t *testing.T) {
	alloc := func(addr int64) *pyDict { return entryDict("alloc", addr, 512, 0, 9) }
	block := func(at, size, requested Bytes, state BlockState) Block {
		return Block{Address: start + uint64(at), Size: size, Requested: requested, State: state, Stack: None}
	}
	kept := block(10<<20, 5<<20, 5<<20, BlockAllocated)
	kept.Stack = 0
	rest := []Block{block(4<<20, 6<<20, 6<<20-700, BlockPendingFree), kept, block(15<<20, 5<<20, 0, BlockInactive)}
	tests := []struct {
		name string
		v    *pyDict
		want []Block
	}{
		// The allocator does not split off a rest of 1 MiB.
		{"slack", middle(alloc(start + 18<<20)), append([]Block{block(0, 4<<20, 3<<20, BlockAllocated)}, rest...)},
		{"freed before", middle(alloc(start + 3<<20)), append([]Block{block(0, 4<<20, 3<<20, BlockAllocated)}, rest...)},
	}
	for _, test := range tests {
		set(test.v, "allocator_settings", nil)
		tr := mustRead(t, test.v, Options{})
		if got := tr.Devices[0].Initial; len(got) != 1 || !reflect.DeepEqual(got[0].Blocks, test.want) || !tr.Devices[0].InitialInferred {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	// An allocation in the block's room while it lived proves that the rest was split off.
	v := middle()
	list := v.items[3].(*pyList).items[0].(*pyList)
	list.items = append([]any{alloc(start + 3<<20)}, list.items...)
	set(v, "allocator_settings", nil)
	want := append([]Block{block(0, 3<<20, 3<<20, BlockAllocated), block(3<<20, 1<<20, 0, BlockInactive)}, rest...)
	if got := mustRead(t, v, Options{}).Devices[0].Initial; len(got) != 1 || !reflect.DeepEqual(got[0].Blocks, want) {
		t.Errorf("split: %+v, want %+v", got, want)
	}
}

// TestPartsOfExpandable infers one range from memory that was unmapped in parts.
func TestPartsOfExpandable(t *testing.T) {
	unmap := func(at, size int64) *pyDict { return entryDict("segment_unmap", start+at, size, 0, 1) }
	final := segmentDict(0, start+40<<20, 20<<20, 0, "large", blockDict(start+40<<20, 20<<20, 0, "inactive", newList()))
	set(final, "is_expandable", true)
	tr := mustRead(t, snapshotDict(newList(final), newList(newList(unmap(20<<20, 20<<20), unmap(0, 20<<20),
		entryDict("segment_map", start+80<<20, 20<<20, 0, 1), entryDict("alloc", start+80<<20, 5, 0, 1), unmap(60<<20, 10<<20))), newList()), Options{})
	want := []Segment{{Address: start, Size: 70 << 20, Expandable: true, Blocks: []Block{{Address: start, Size: 70 << 20, Stack: None}}}}
	if got := tr.Devices[0].Initial; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestContradictions infers the state of a recording without alloc entries: the block that
// was freed first counts, blocks that overlap it do not.
func TestContradictions(t *testing.T) {
	free := func(addr, size int64) *pyDict { return entryDict("free_completed", addr, size, 3, 1) }
	tr := mustRead(t, snapshotDict(newList(), newList(newList(
		free(start+4096, 8192), free(start+8192, 8192), free(start, 8192), free(start+1<<20, 100),
		entryDict("segment_alloc", start+1<<30, 2<<20, 0, 2), free(start+1<<30, 100), entryDict("alloc", 1<<20, 4, 0, 2),
	)), newList()), Options{})
	var got []string
	for _, s := range tr.Devices[0].Initial {
		for _, b := range s.Blocks {
			got = append(got, fmt.Sprintf("%#x+%d of stream %d", b.Address-start, b.Size, s.Stream))
		}
	}
	if want := []string{"0x1000+8192 of stream 3", "0x100000+512 of stream 3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBase(t *testing.T) {
	alloc := entryDict("alloc", start+18<<20, 512, 0, 9)
	state := func(block2 string, entries ...any) *pyDict {
		return snapshotDict(newList(segmentDict(0, start, 20<<20, 0, "large",
			blockDict(start, 3<<20, 3<<20, "active_allocated", newList()),
			blockDict(start+3<<20, 1<<20, 0, "inactive", newList()),
			blockDict(start+4<<20, 6<<20, 6<<20-700, block2, newList(newDict("filename", "b.py", "line", 2, "name", "g"))),
			blockDict(start+10<<20, 5<<20, 5<<20, "active_allocated", newList()),
			blockDict(start+15<<20, 5<<20, 0, "inactive", newList()))), newList(newList(entries...)), newList())
	}
	empty := mustRead(t, state("active_pending_free"), Options{AllowNoEvents: true})
	run := middle(alloc)
	tr := mustRead(t, run, Options{Base: empty})
	got := tr.Devices[0]
	if got.InitialInferred || len(tr.Notes) != 0 || len(got.Initial) != 1 || len(got.Initial[0].Blocks) != 5 || got.Initial[0].Blocks[0].Size != 3<<20 {
		t.Errorf("inferred %v, notes %q, initial %+v", got.InitialInferred, tr.Notes, got.Initial)
	}
	if s := stackText(tr, got.Initial[0].Blocks[2].Stack); s != "{b.py 2 g};" {
		t.Errorf("the stack of a base's block: %s", s)
	}
	if empty.Devices[0].Final[0].Blocks[2].Stack != 0 {
		t.Error("the base was changed")
	}

	only, err := readBytes((&pickler{protocol: 4}).pickle(state("active_pending_free").items[1]), Options{AllowNoEvents: true})
	if err != nil || !reflect.DeepEqual(only.Devices, empty.Devices) {
		t.Errorf("a list of segments as a base: %v", err)
	}

	// A base that was taken a moment later has an entry for its own snapshot, no allocs.
	marked := mustRead(t, state("active_pending_free", entryDict("snapshot", 0, 0, 0, 1)), Options{AllowNoEvents: true})
	if len(marked.Devices[0].Events) != 1 || !reflect.DeepEqual(marked.Devices[0].Final, empty.Devices[0].Final) {
		t.Errorf("a base with a mark: %+v", marked.Devices[0])
	}

	lacking := mustRead(t, state("inactive"), Options{AllowNoEvents: true})
	lacking.Name = "base.pickle"
	_, err = readBytes((&pickler{protocol: 4}).pickle(run), Options{Base: lacking})
	want := "run.pickle: device 0: entry 2: free_completed of 0x7f0000400000, which no entry allocated and the base does not hold: " +
		"the base snapshot base.pickle is not of this recording, or was not taken at its beginning"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestLateBase uses a base that was taken after some entries of the recording: these are
// undone.
func TestLateBase(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	a := &arena{next: start}
	a.run(r, 60)
	want := a.state()
	a.events = nil
	for range 10 {
		a.alloc(3000)
	}
	base := &Trace{Name: "base", Devices: []Device{{Events: slices.Clone(a.events), Final: a.state()}}}
	a.run(r, 200)
	dev := Device{Events: a.events, Final: a.state()}
	b := newBuilder("run")
	got, guessed, err := b.fromBase(&dev, pastOf(dev.Events), base)
	if err != nil || guessed != 0 {
		t.Fatalf("%d guesses, %v", guessed, err)
	}
	compareStates(t, 0, got, want)
	// Entries of an earlier recording do not count.
	base.Devices[0].Events[3].TimeUS++
	base.Devices[0].Final = want
	got, _, err = b.fromBase(&dev, pastOf(dev.Events), base)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("an unrelated past: %v", err)
	}
}

// TestBaseOfAnotherRecording gives random runs their own first state, which must be
// accepted, then the first state of another run and states with a single change, which
// contradict the run and must be refused.
func TestBaseOfAnotherRecording(t *testing.T) {
	type run struct {
		first []Segment
		d     Device
	}
	record := func(seed uint64) run {
		r := rand.New(rand.NewPCG(seed, 3))
		a := &arena{next: start, mapped: seed%2 == 1}
		a.run(r, 20+r.IntN(150))
		first := a.state()
		a.events = nil
		a.run(r, 1+r.IntN(300))
		return run{first, Device{Events: a.events, Final: a.state()}}
	}
	problem := func(r run, initial []Segment) string {
		_, problem := newBaseCheck(&r.d, pastOf(r.d.Events), initial).run()
		return problem
	}
	found := map[string]int{}
	for seed := range uint64(300) {
		r := record(seed)
		if p := problem(r, r.first); p != "" {
			t.Fatalf("seed %d: its own beginning: %s", seed, p)
		}
		if other := record(seed + 1000); len(r.first)+len(other.first) > 0 && problem(r, other.first) == "" && !reflect.DeepEqual(other.first, r.first) {
			t.Errorf("seed %d: the beginning of another recording is accepted", seed)
		}
		for i := range r.first {
			for k, b := range r.first[i].Blocks {
				if b.State == BlockInactive {
					continue
				}
				changed := (&arena{segments: r.first}).state()
				changed[i].Blocks[k].State = BlockInactive
				p := problem(r, changed)
				if p == "" {
					t.Errorf("seed %d: a base without the block at %#x is accepted", seed, b.Address)
				}
				found[strings.Join(strings.FieldsFunc(p, func(r rune) bool { return r < 'a' || r > 'z' }), " ")]++
			}
		}
	}
	if len(found) < 3 {
		t.Errorf("kinds of contradictions: %v", found)
	}
}

// TestBaseContradictions has one base per contradiction, with its message.
func TestBaseContradictions(t *testing.T) {
	const at uint64 = start
	block := func(at uint64, size Bytes, state BlockState) Block {
		return Block{Address: at, Size: size, Requested: size, State: state, Stack: None}
	}
	segment := func(at uint64, blocks ...Block) Segment {
		s := Segment{Address: at, Blocks: blocks}
		for _, b := range blocks {
			s.Size += b.Size
		}
		return s
	}
	base := []Segment{segment(at, block(at, 1024, BlockAllocated), block(at+1024, 1024, BlockInactive))}
	e := func(a Action, addr uint64, size Bytes) Event {
		return Event{Action: a, Addr: addr, Size: size, Pool: -1}
	}
	later := segment(at+4096, block(at+4096, 512, BlockAllocated))
	for _, test := range []struct {
		name   string
		events []Event
		final  []Segment
		want   string
	}{
		{"nothing happens", nil, base, ""},
		{"no end", nil, nil, ""},
		{"freed", []Event{e(ActionFreeRequested, at, 1000), e(ActionAlloc, at+8, 8)}, []Segment{segment(at, block(at, 2048, BlockInactive))}, ""},
		{"released", []Event{e(ActionFreeRequested, at, 1000), e(ActionSegmentFree, at, 2048), e(ActionSegmentAlloc, at+4096, 512), e(ActionAlloc, at+4096, 512)}, []Segment{later}, ""},
		{"alloc inside", []Event{e(ActionAlloc, at+512, 8)}, nil,
			"alloc of 8 B at 0x7f0000000200 overlaps the base's block of 1024 B at 0x7f0000000000, which was not freed"},
		{"alloc across", []Event{e(ActionAlloc, at-512, 513)}, nil,
			"alloc of 513 B at 0x7efffffffe00 overlaps the base's block of 1024 B at 0x7f0000000000, which was not freed"},
		{"not completed", []Event{e(ActionFreeRequested, at, 1000), e(ActionAlloc, at+512, 8), e(ActionFreeCompleted, at, 1000)}, nil,
			"alloc of 8 B at 0x7f0000000200 overlaps the base's block of 1024 B at 0x7f0000000000, which was not freed"},
		{"larger free", []Event{e(ActionFreeRequested, at, 1025)}, nil, "free_requested of 1025 B at 0x7f0000000000, but the base has a block of 1024 B there"},
		{"segment again", []Event{e(ActionSegmentAlloc, at+1024, 4096)}, nil,
			"segment_alloc of 4096 B at 0x7f0000000400 overlaps the base's segment of 2048 B at 0x7f0000000000, which was not released"},
		{"block gone", nil, []Segment{segment(at, block(at, 512, BlockAllocated), block(at+512, 1536, BlockInactive))},
			"the base has a block of 1024 B at 0x7f0000000000 that no entry frees and the end of the recording does not hold"},
		{"segment gone", []Event{e(ActionFreeRequested, at, 1000)}, []Segment{later},
			"the base has a segment of 2048 B at 0x7f0000000000 that no entry releases and the end of the recording does not hold"},
		{"segment from nowhere", []Event{e(ActionSegmentAlloc, at+1<<20, 512)}, append(slices.Clone(base), later),
			"the recording ends with a segment of 512 B at 0x7f0000001000 that no entry takes and the base does not hold"},
		{"block from nowhere", nil, []Segment{segment(at, block(at, 1024, BlockAllocated), block(at+1024, 1024, BlockAllocated))},
			"the recording ends with a block of 1024 B at 0x7f0000000400 that no entry allocates and the base does not hold"},
	} {
		d := Device{Events: test.events, Final: test.final}
		if _, got := newBaseCheck(&d, pastOf(d.Events), base).run(); got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
	}
}

func TestNotes(t *testing.T) {
	const inferred = "; this state is inferred, and blocks that were freed later may be up to 1 MiB larger than assumed. " +
		"To know it exactly, take a snapshot right after recording begins and give it as --base"
	entries := func(n int, lead ...any) *pyDict {
		list := newList(append([]any{entryDict("segment_alloc", start, 2<<20, 0, 1)}, lead...)...)
		for i := 0; len(list.items) < n; i++ {
			list.items = append(list.items, entryDict("alloc", start+1<<30+int64(i)*512, 1, 0, 1))
		}
		return snapshotDict(newList(), newList(list), newList())
	}
	before := []any{entryDict("free_requested", start+1<<29, 600, 0, 1), entryDict("free_completed", start+1<<29, 600, 0, 1)}
	one := "device 0: when recording began, 0.00 MiB were allocated already (blocks: 1) and 0.00 MiB reserved" + inferred
	full := func(place string, v any) *pyDict {
		s := entries(50)
		if place == "settings" {
			set(s, "allocator_settings", newDict("trace_alloc_overflowed", v))
		} else {
			set(s, place, v)
		}
		return s
	}
	const lost = "device 0: the oldest entries were overwritten, 50 are left; record with a larger max_entries, which is unlimited by default"
	kept := snapshotDict(newList(segmentDict(0, start, 2<<20, 0, "small", blockDict(start, 2<<20, 1<<20, "active_allocated", newList()))),
		newList(newList(entryDict("alloc", start+1<<30, 1, 0, 1))), newList())
	tests := []struct {
		v    *pyDict
		want []string
	}{
		{entries(2000), nil},
		{entries(2001, before...), []string{one}},
		{entries(2000, before...), []string{"device 0: exactly 2000 entries, the first of which free what none of them allocated: " +
			"older ones were probably overwritten; record with a larger max_entries, which is unlimited by default", one}},
		{entries(1024, before...), []string{"device 0: exactly 1024 entries, the first of which free what none of them allocated: " +
			"older ones were probably overwritten; record with a larger max_entries, which is unlimited by default", one}},
		{full("trace_alloc_overflowed", true), []string{lost}},
		{full("trace_alloc_overflowed", newList(true)), []string{lost}},
		{full("trace_alloc_overflowed", newList(false)), nil},
		{full("trace_alloc_overflowed", newList()), nil},
		{full("settings", true), []string{lost}},
		{entries(9, before[0]), []string{"device 0: no free_completed entries among 9: they were skipped (skip_actions); memory counts as free from free_requested on", one}},
		{entries(9, before[1]), []string{"device 0: no free_requested entries among 9: they were skipped (skip_actions); memory counts as held until free_completed", one}},
		{entries(9, newDict("action", "user_defined"), newDict("action", "mark")), []string{"device 0: 2 entries of unknown kinds are ignored (in this file: user_defined, mark)"}},
		{kept, []string{
			"device 0: no segment entries among 1: either all memory was reserved before recording began, or they were skipped (skip_actions)",
			"device 0: when recording began, 2.00 MiB were allocated already (blocks: 1) and 2.00 MiB reserved; they are all still there at its end"}},
	}
	for i, test := range tests {
		if got := mustRead(t, test.v, Options{}).Notes; !slices.Equal(got, test.want) {
			t.Errorf("test %d:\n got %q\nwant %q", i, got, test.want)
		}
	}
}
