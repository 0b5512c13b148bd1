package baseline

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// recorder makes a recording of a random program that runs on naive, and counts its
// peaks.
type recorder struct {
	rand   *rand.Rand
	a      *naive
	driver *ladder
	events []trace.Event
	live   map[int32]placed
	order  []int32 // of live, for choosing
	late   []int32 // freed, not completed
	next   int32

	peaks         Recorded
	now           Usage       // in aligned bytes
	pending       trace.Bytes // counted in Allocated until the second entry
	emptied, full int
}

type placed struct {
	Request
	addr uint64
}

func newRecorder(seed uint64, c Config) *recorder {
	r := &recorder{
		rand: rand.New(rand.NewPCG(seed, 2)), driver: &ladder{}, live: make(map[int32]placed),
	}
	r.a = newNaive(c, r.driver, r.segment)
	r.a.completed = func(n int32) { r.complete(n) }
	return r
}

func (r *recorder) emit(e trace.Event) {
	e.Pool = -1
	if len(r.events) == 1 {
		r.now.Allocated -= r.pending
	}
	r.events = append(r.events, e)
}

func (r *recorder) segment(e segmentEvent) {
	r.emit(trace.Event{Action: e.action, Addr: e.addr, Size: e.size, Stream: e.stream})
	raise(&r.now.Reserved, segmentDelta(&r.events[len(r.events)-1]), &r.peaks.PeakReserved)
}

// raise changes a sum and its peak.
func raise(sum *trace.Bytes, by trace.Bytes, most *trace.Bytes) {
	*sum += by
	*most = max(*most, *sum)
}

func (r *recorder) alloc(q Request) {
	q.Pool = trace.PoolID{}
	n := r.next
	r.next++
	addr, ok := r.a.alloc(n, q)
	if !ok {
		r.full++
		r.emit(trace.Event{Action: trace.ActionOOM, Size: r.a.roundNaive(q.Size), Stream: q.Stream})
		return
	}
	r.live[n] = placed{q, addr}
	r.order = append(r.order, n)
	r.emit(trace.Event{Action: trace.ActionAlloc, Addr: addr, Size: q.Size, Stream: q.Stream})
	size := max((q.Size+511)/512*512, 512)
	raise(&r.now.Allocated, size, &r.peaks.PeakAllocated)
	raise(&r.now.Active, size, &r.peaks.PeakActive)
}

func (r *recorder) free(late bool) {
	i := r.rand.IntN(len(r.order))
	n := r.order[i]
	r.order = slices.Delete(r.order, i, i+1)
	b := r.live[n]
	r.a.free(n)
	r.emit(trace.Event{Action: trace.ActionFreeRequested, Addr: b.addr, Size: b.Size, Stream: b.Stream})
	r.now.Allocated -= max((b.Size+511)/512*512, 512)
	r.late = append(r.late, n)
	if !late {
		r.a.complete(n)
		r.complete(n)
	}
}

// complete writes the entry. The allocator completes the free before or afterwards.
func (r *recorder) complete(n int32) {
	b := r.live[n]
	delete(r.live, n)
	r.late = slices.DeleteFunc(r.late, func(x int32) bool { return x == n })
	r.emit(trace.Event{Action: trace.ActionFreeCompleted, Addr: b.addr, Size: b.Size, Stream: b.Stream})
	r.now.Active -= max((b.Size+511)/512*512, 512)
}

// run records a number of operations. One free in lateness completes later, none if
// lateness is 0.
func (r *recorder) run(acts, lateness int) {
	for range acts {
		switch k := r.rand.IntN(200); {
		case k < 105 || len(r.order) == 0:
			r.alloc(randomRequest(r.rand))
		case k < 180:
			r.free(lateness > 0 && r.rand.IntN(lateness) == 0)
		case k < 197 && len(r.late) > 0:
			n := r.late[0]
			r.a.complete(n)
			r.complete(n)
		case k == 199:
			r.emptied++
			r.a.emptyCache(nil)
		}
	}
}

// segments is the allocator's state as a snapshot shows it. known is false if an
// expandable segment begins with unmapped space, which a snapshot does not show.
func (r *recorder) segments() (all []trace.Segment, known bool) {
	known = true
	for _, g := range r.a.regions {
		known = known && g.pieces[0].state != '-'
		addr := g.addr
		open := false
		for _, p := range g.pieces {
			if p.state == '-' {
				open = false
			} else {
				if !open {
					all = append(all, trace.Segment{Address: addr, Stream: g.stream, Small: g.half.small, Expandable: g.expandable})
				}
				open = true
				s := &all[len(all)-1]
				b := trace.Block{Address: addr, Size: p.size, State: trace.BlockInactive}
				if p.state != 'f' {
					b.Requested, b.State = r.live[p.owner].Size, trace.BlockAllocated
				}
				if p.state == 'w' {
					b.State = trace.BlockPendingFree
				}
				s.Blocks = append(s.Blocks, b)
				s.Size += p.size
			}
			addr += uint64(p.size)
		}
	}
	slices.SortFunc(all, func(a, b trace.Segment) int { return cmp.Compare(a.Address, b.Address) })
	return all, known
}

// asRecorded is c as if it came from a recording that ran under c. A recording does
// not hold the limits.
func asRecorded(c Config) Config {
	c.recorded = trace.Settings{
		Known: true, ExpandableSegments: c.Expandable, MaxSplitSize: c.MaxSplitSize,
		GarbageCollectionThreshold: c.GCThreshold, RoundupPower2Divisions: c.Divisions,
	}
	if c.MaxSplitSize == 0 {
		c.recorded.MaxSplitSize = -1
	}
	return c
}

// TestRandomRecordings reproduces recordings of another implementation. It leaves out
// those that do not say who released memory: an expandable allocator on a full card
// may retry without taking any, and selective releases among delayed frees look like
// calls of empty_cache.
func TestRandomRecordings(t *testing.T) {
	emptied, full := 0, 0
	for seed := range uint64(120) {
		c := randomConfig(rand.New(rand.NewPCG(seed, 5)))
		c.LargeSegmentSize, c.MaxNonSplitRounding, c.MaxSplitSize = 0, 0, max(c.MaxSplitSize, defaultLargeSegment)*trace.Bytes(seed%2)
		lateness := int(seed % 5)
		if c.Expandable {
			c.DeviceMemory, c.UsableMemory, c.MemoryFraction, c.GCThreshold = 0, 0, 0, 0
		}
		if c.GCThreshold > 0 || c.MaxSplitSize > 0 {
			lateness = 0
		}
		c = asRecorded(c)
		r := newRecorder(seed, c)
		r.run(400, lateness)
		emptied, full = emptied+r.emptied, full+r.full
		final, _ := r.segments()
		d := &trace.Device{Events: r.events, Final: final}

		if got := FromRecording(d); got != r.peaks {
			t.Errorf("seed %d: recorded %+v, expected %+v", seed, got, r.peaks)
		}
		checkExact(t, d, c)
		sim, err := simulate(d, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Selective releases may be mistaken for a call of empty_cache, and the other
		// way round. That matters only here, without the recorded driver.
		selective := c.GCThreshold > 0 || c.Expandable && c.MaxSplitSize > 0
		if !selective && (sim.PeakReserved != r.peaks.PeakReserved || sim.final != r.a.usage() || sim.OOM != nil) {
			t.Errorf("seed %d: simulated %+v, reference %+v, peak reserved %d", seed, sim, r.a.usage(), r.peaks.PeakReserved)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, c)
		}
	}
	if emptied < 20 || full < 20 {
		t.Errorf("only %d calls of empty_cache and %d refusals: the programs are too tame", emptied, full)
	}
}

// TestInitialState reproduces recordings that begin in the middle.
func TestInitialState(t *testing.T) {
	checked := 0
	for seed := range uint64(60) {
		c := asRecorded(Config{Expandable: seed%2 == 0, DeviceMemory: 4096 * mib})
		r := newRecorder(seed, c)
		r.run(200, 3)
		initial, known := r.segments()
		if !known {
			continue
		}
		checked++
		before := len(r.events)
		r.pending = r.now.Active - r.now.Allocated
		r.now.Allocated = r.now.Active
		r.peaks = Recorded{r.now.Reserved, r.now.Allocated, r.now.Active}
		r.events = nil
		r.run(200, 3)
		d := &trace.Device{Events: r.events, Initial: initial}
		if got := FromRecording(d); got != r.peaks {
			t.Fatalf("seed %d: recorded %+v, expected %+v (after %d entries)", seed, got, r.peaks, before)
		}
		checkExact(t, d, c)
		checkOtherKind(t, d, c, r)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if checked < 40 {
		t.Errorf("checked only %d recordings", checked)
	}
}

// checkOtherKind simulates the allocator of the other kind, which cannot adopt the
// recorded segments and allocates the buffers in them anew.
func checkOtherKind(t *testing.T, d *trace.Device, c Config, r *recorder) {
	t.Helper()
	c.Expandable = !c.Expandable
	got, err := simulate(d, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.OOM != nil || got.final.Active < r.now.Active || got.final.Active > r.now.Active+trace.Bytes(len(r.live))*mib {
		t.Errorf("other kind: %+v, active in the recording %d", got, r.now.Active)
	}
}

// TestAdoptedState expects an adopted initial state to be sound and complete.
func TestAdoptedState(t *testing.T) {
	for seed := range uint64(40) {
		r := newRecorder(seed, Config{Expandable: seed%2 == 0, DeviceMemory: 4096 * mib})
		r.run(200, 3)
		initial, _ := r.segments()
		rules, err := r.a.c.rules()
		if err != nil {
			t.Fatal(err)
		}
		a := newCaching(rules, &ladder{}, playedBuffers, func(segmentEvent) {})
		if err := a.adoptSegments(initial); err != nil {
			t.Fatal(err)
		}
		if err := sound(a); err != nil || a.Stats().Usage != r.a.usage() {
			t.Errorf("seed %d: %v, %+v, expected %+v", seed, err, a.Stats().Usage, r.a.usage())
		}
	}
}
