package replay

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// cell is the unit of memory of the naive judge, and of the addresses it is asked about, in
// bytes. It is less than the unit of sizes, so that addresses are also between two blocks'.
const cell = 128

// naive judges as judge does, with an entry for each cell of memory and a list of everything
// that happened, which it searches each time.
type naive struct {
	cells []int // by cell: request that had it last, -1 if none had
	log   []happened
}

// happened is one thing that happened: an operation, or a free or its completion.
type happened struct {
	step      int
	operation *Operation
	freed     int // request, -1
	completed int // request, -1
}

// alloc returns the number of earlier requests that the memory must not be taken from yet.
func (n *naive) alloc(p *Program, other uint64, request int, address uint64) map[int]bool {
	bad := map[int]bool{}
	from, bytes := int(address)/cell, int(trace.RoundUp(p.Requests[request].Requested))
	for c := from; c < from+bytes/cell; c++ {
		if last := n.cells[c]; last >= 0 && !n.free(p, other, last, p.Requests[request].Stream) {
			bad[last] = true
		}
		n.cells[c] = request
	}
	return bad
}

// free says whether a stream may have the memory of a request.
func (n *naive) free(p *Program, other uint64, last int, stream uint64) bool {
	freed, completed := -1, !p.Requests[last].Pending
	for _, h := range n.log {
		if h.freed == last {
			freed = h.step
		}
		completed = completed || h.completed == last
	}
	if freed < 0 {
		return false
	}
	if n.hostWaited(freed) || n.waited(freed, stream, func(o *Operation) bool { return o.Kind == RecordWhole }) {
		return true
	}
	beside := func(o *Operation) bool { return o.Kind == Record && o.Stream == other }
	return p.Requests[last].Stream == stream && (completed || n.waited(freed, stream, beside))
}

// carry has cells follow the memory of others, and says whether nothing in either is live.
func (n *naive) carry(o *Operation) bool {
	from, to, size := int(o.From)/cell, int(o.To)/cell, int(o.Bytes)/cell
	for _, last := range append(slices.Clone(n.cells[from:from+size]), n.cells[to:to+size]...) {
		if last >= 0 && !slices.ContainsFunc(n.log, func(h happened) bool { return h.freed == last }) {
			return false
		}
	}
	copy(n.cells[to:to+size], n.cells[from:from+size])
	return true
}

// waited says whether a stream has waited for an event that was recorded in such an
// operation, at a step or later.
func (n *naive) waited(step int, stream uint64, such func(*Operation) bool) bool {
	covers := map[uint64]bool{}
	for _, h := range n.log {
		switch o := h.operation; {
		case o == nil:
		case o.Kind == Record || o.Kind == RecordWhole:
			covers[o.Event] = such(o) && h.step >= step
		case o.Kind == Wait && o.Stream == stream && covers[o.Event]:
			return true
		}
	}
	return false
}

// hostWaited says whether the host has waited for the device since a step, or has seen an
// event done that was recorded on the whole device since then.
func (n *naive) hostWaited(since int) bool {
	covers := map[uint64]bool{}
	for _, h := range n.log {
		switch o := h.operation; {
		case o == nil:
		case o.Kind == Record || o.Kind == RecordWhole:
			covers[o.Event] = o.Kind == RecordWhole && h.step >= since
		case o.Kind == Settled && h.step >= since || o.Kind == Done && covers[o.Event]:
			return true
		}
	}
	return false
}

// careless is an allocator that answers at random, and asks the device for things at random.
type careless struct {
	rng       *rand.Rand
	memory    int // cells that it hands out
	streams   []uint64
	addresses []uint64      // as handed out
	asked     [][]Operation // by call of Operations
}

func (c *careless) Malloc(size, _ uint64) (uint64, int, error) {
	room := c.memory - int(trace.RoundUp(trace.Bytes(size)))/cell
	address := uint64(c.rng.IntN(room+1)) * cell
	if len(c.addresses) > 0 && c.rng.IntN(3) == 0 { // a place that had an owner, from its first byte on
		address = min(address, c.addresses[c.rng.IntN(len(c.addresses))])
	}
	c.addresses = append(c.addresses, address)
	return address, 0, nil
}

func (c *careless) Free(uint64, uint64) error         { return nil }
func (c *careless) RecordStream(uint64, uint64) error { return nil }

func (c *careless) Operations(into []Operation) []Operation {
	var now []Operation
	for range c.rng.IntN(4) {
		o := Operation{Stream: c.streams[c.rng.IntN(len(c.streams))], Event: c.rng.Uint64N(4)}
		o.Kind = []Kind{Record, RecordWhole, Wait, Wait}[c.rng.IntN(4)]
		if c.rng.IntN(40) == 0 {
			o = Operation{Kind: []Kind{Settled, Done}[c.rng.IntN(2)], Event: o.Event}
		}
		if c.rng.IntN(20) == 0 {
			size := 1 + c.rng.IntN(c.memory)
			from, to := c.rng.IntN(c.memory-size+1), c.rng.IntN(c.memory-size+1)
			o = Operation{Kind: Carried, From: uint64(from) * cell, To: uint64(to) * cell, Bytes: uint64(size) * cell}
		}
		now = append(now, o)
	}
	c.asked = append(c.asked, now)
	return append(into, now...)
}

// randomJob has n buffers on three streams, of up to size bytes, some of whose frees are
// delayed.
func randomJob(rng *rand.Rand, n int, size int64) *lifespan.Timeline {
	tl := &lifespan.Timeline{Events: trace.Time(4 * n)}
	for i := range trace.Time(n) {
		b := lifespan.Buffer{Start: 4 * i, Requested: trace.Bytes(1 + rng.Int64N(size)), Stream: rng.Uint64N(3)}
		b.Size = trace.RoundUp(b.Requested)
		b.RequestedEnd = 4*i + 1 + trace.Time(rng.IntN(60))
		b.CompletedEnd = b.RequestedEnd
		if rng.IntN(3) == 0 {
			b.CompletedEnd += trace.Time(rng.IntN(20))
		}
		b.RequestedEnd, b.CompletedEnd = min(b.RequestedEnd, tl.Events), min(b.CompletedEnd, tl.Events)
		b.Resident = b.RequestedEnd == tl.Events
		tl.Buffers = append(tl.Buffers, b)
	}
	return tl
}

// replayNaively judges the answers of an allocator once more.
func replayNaively(p *Program, a *careless) (overlaps int, bad []map[int]bool) {
	n := &naive{cells: make([]int, a.memory)}
	for i := range n.cells {
		n.cells[i] = -1
	}
	other, addresses, asked := side(p.Requests), a.addresses, a.asked
	operations := func(at int) {
		for i := range asked[0] {
			n.log = append(n.log, happened{at, &asked[0][i], -1, -1})
			if asked[0][i].Kind == Carried && !n.carry(&asked[0][i]) {
				overlaps++
			}
		}
		asked = asked[1:]
	}
	for at, s := range p.steps {
		switch s.kind {
		case stepFree:
			n.log = append(n.log, happened{at, nil, int(s.request), -1})
			operations(at)
		case stepComplete:
			n.log = append(n.log, happened{at, nil, -1, int(s.request)})
		case stepAlloc:
			operations(at)
			of := n.alloc(p, other, int(s.request), addresses[0])
			addresses = addresses[1:]
			bad = append(bad, of)
			if len(of) > 0 {
				overlaps++
			}
		}
	}
	return overlaps, bad
}

// TestJudgeIsTheNaiveOne compares the verdicts on random answers to random programs with
// those of a judge that has an entry for each cell of memory.
func TestJudgeIsTheNaiveOne(t *testing.T) {
	seen := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		memory := 64 << rng.IntN(8)
		p := NewProgram(randomJob(rng, 120, int64(min(memory*cell, 40<<10))))
		a := &careless{rng: rng, memory: memory, streams: []uint64{0, 1, 2, side(p.Requests)}}
		r, err := Run(p, a)
		if err != nil {
			t.Fatal(err)
		}
		overlaps, bad := replayNaively(p, a)
		if r.Overlaps != overlaps {
			t.Fatalf("seed %d: %d overlaps, the naive judge has %d", seed, r.Overlaps, overlaps)
		}
		checkFirst(t, r, bad)
		seen += overlaps
		if !slices.ContainsFunc(bad, func(of map[int]bool) bool { return len(of) == 0 }) {
			t.Fatalf("seed %d: every request overlaps, which compares nothing", seed)
		}
	}
	if seen == 0 {
		t.Fatal("no overlaps at all")
	}
}

// checkFirst checks the request and the earlier one that the first overlap is told of.
func checkFirst(t *testing.T, r *Result, bad []map[int]bool) {
	t.Helper()
	if strings.HasPrefix(r.First, "memory was carried") {
		return
	}
	for k, of := range bad {
		if len(of) == 0 {
			continue
		}
		var request, last int
		var low, high uint64
		if _, err := fmt.Sscanf(r.First, "request %d was given [0x%x, 0x%x), in part of request %d at", &request, &low, &high, &last); err != nil {
			t.Fatalf("%q: %v", r.First, err)
		}
		if request != r.Placements[k].Request || !of[last] {
			t.Fatalf("%s; the naive judge says request %d in part of %v", r.First, r.Placements[k].Request, of)
		}
		return
	}
}

// TestRangesAreCells compares owners of ranges with an owner for each address, over enough
// changes that chunks are split and removed.
func TestRangesAreCells(t *testing.T) {
	const size = 1 << 13
	rng := rand.New(rand.NewPCG(1, 2))
	r, cells := newRanges(), make([]int, size)
	for i := range cells {
		cells[i] = nobody
	}
	chunks := 0
	for owner := range 20_000 {
		low := rng.Uint64N(size)
		most := uint64(4)
		if rng.IntN(500) == 0 {
			most = size
		}
		high := low + 1 + rng.Uint64N(min(size-low, most))
		var found []int
		r.own(low, high, owner, func(last int) { found = append(found, last) })
		var expected []int
		for i := low; i < high; i++ {
			if cells[i] != nobody && (len(expected) == 0 || expected[len(expected)-1] != cells[i]) {
				expected = append(expected, cells[i])
			}
			cells[i] = owner
		}
		if fmt.Sprint(slices.Compact(found)) != fmt.Sprint(expected) {
			t.Fatalf("[%d, %d) had owners %v, expected %v", low, high, found, expected)
		}
		for k, c := range r.chunks { // as copies leave them too
			if len(c) == 0 || len(c) > chunkLen {
				t.Fatalf("chunk %d has %d pieces", k, len(c))
			}
		}
		if owner%10 == 0 { // also over one another
			n := 1 + rng.Uint64N(64)
			from, to := rng.Uint64N(size-n), rng.Uint64N(size-n)
			r.copy(from, to, n)
			copy(cells[to:to+n], cells[from:from+n])
		}
		chunks = max(chunks, len(r.chunks))
	}
	if chunks < 4 {
		t.Errorf("at most %d chunks, which tests little", chunks)
	}
}

// TestJudgeCostsByTheNumberOfAllocations: the largest block that a recording may have costs
// no more than a small one.
func TestJudgeCostsByTheNumberOfAllocations(t *testing.T) {
	tl := &lifespan.Timeline{Events: 2, Buffers: []lifespan.Buffer{
		{Start: 0, RequestedEnd: 2, CompletedEnd: 2, Requested: 1 << 48, Size: 1 << 48, Resident: true},
		{Start: 1, RequestedEnd: 2, CompletedEnd: 2, Requested: 1 << 47, Size: 1 << 47, Resident: true},
	}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := Run(NewProgram(tl), &scripted{addresses: []uint64{512, 1 << 46}})
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if r.Overlaps != 1 {
		t.Errorf("%d overlaps, expected 1", r.Overlaps)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<10 {
		t.Errorf("%d B allocated for two requests", used)
	}
}

// TestAddressesBeyondTheSpace: an allocator that answers with an address at which the block
// does not end below 2^64 ends the run.
func TestAddressesBeyondTheSpace(t *testing.T) {
	_, err := Run(NewProgram(job()), &scripted{addresses: []uint64{^uint64(0) - 511}})
	const expected = "entry 0: allocating 1048576 B: the address 0xfffffffffffffe00 is too high for them"
	if err == nil || err.Error() != expected {
		t.Errorf("%v, expected %s", err, expected)
	}
}
