//go:build cgo

package cuda

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// TestRecordedPlanIsServedOnce serves a recorded plan as it was recorded, then goes on:
// after its end its memory is part of the pool.
func TestRecordedPlanIsServedOnce(t *testing.T) {
	sizes := distinct(100, rand.New(rand.NewPCG(1, 0)))
	plan := recorded(sizes)
	d := open(t, plan, Options{})
	for i, at := range serve(t, d, sizes) {
		if at != int64(plan.Slots[i].Offset) {
			t.Fatalf("request %d is at %d, expected %d", i, at, plan.Slots[i].Offset)
		}
	}
	c := d.Counters()
	if c.State != Ended || c.PlannedAllocations != 100 || c.PeakReserved != plan.ArenaBytes || c.DriftEvents != 0 {
		t.Errorf("after the plan: %+v", c)
	}
	if _, source, err := d.Malloc(1<<20, 0); err != nil || source == FromPlan {
		t.Errorf("after the plan's end: source %d, %v", source, err)
	}
	if got := d.Counters().PeakReserved; got != plan.ArenaBytes {
		t.Errorf("%d B are reserved for what fits into the plan's memory", got)
	}
}

// TestBodiesGoOnForEver serves a prologue and then passes of two bodies that begin
// alike, in another order than the recorded one.
func TestBodiesGoOnForEver(t *testing.T) {
	sizes := distinct(90, rand.New(rand.NewPCG(2, 0)))
	prologue, a := sizes[:10], sizes[10:50]
	b := slices.Concat(a[:5], sizes[50:])
	plan := periodic(prologue, [][]uint64{a, b}, []uint32{1, 2, 1, 1})
	d := open(t, plan, Options{})
	serve(t, d, prologue)
	for pass, body := range [][]uint64{a, b, a, a, b, b, a, b, a} {
		served := serve(t, d, body)
		off := 0
		for _, at := range served {
			if at < 0 {
				off++
			}
		}
		// If the other body was expected, it takes three requests after what the
		// two have in common to find out.
		if off > 3 {
			t.Errorf("pass %d: %d requests off plan", pass, off)
		}
		if last := served[len(served)-1]; last < 0 {
			t.Errorf("pass %d: its last request is off plan", pass)
		}
	}
	if c := d.Counters(); c.State != Body {
		t.Errorf("state %d, expected a body", c.State)
	}
}

// TestMarkFindsTheStep leaves the plan in the middle of a step, and comes back at a mark.
func TestMarkFindsTheStep(t *testing.T) {
	sizes := distinct(600, rand.New(rand.NewPCG(3, 0)))
	prologue, body := sizes[:10], sizes[10:]
	for _, marks := range []bool{false, true} {
		d := open(t, periodic(prologue, [][]uint64{body}, []uint32{1}), Options{})
		mark := func() {
			if marks {
				d.Mark()
			}
		}
		hold(t, d, sizes) // as much as was recorded
		mark()
		serve(t, d, body[:300])
		serve(t, d, []uint64{1, 2, 3}) // and the rest of the step never comes
		mark()
		if served := serve(t, d, body[:3]); (served[0] >= 0) != marks {
			t.Errorf("marks %v: the first requests of the step are at %v", marks, served)
		}
	}
}

// TestPlannedPlacesAreCheckedFirst keeps every block: if the plan's place for a request
// has live bytes, it is served elsewhere.
func TestPlannedPlacesAreCheckedFirst(t *testing.T) {
	body := []uint64{4096, 8192, 512, 1 << 20}
	d := open(t, periodic([]uint64{512}, [][]uint64{body}, []uint32{1}), Options{})
	type block struct{ low, high uint64 }
	var live []block
	for i := range 40 {
		size := uint64(512)
		if i > 0 {
			size = body[(i-1)%len(body)]
		}
		at, _, err := d.Malloc(size, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range live {
			if at < b.high && b.low < at+up(size) {
				t.Fatalf("request %d is given [%#x, %#x), of which [%#x, %#x) is live", i, at, at+up(size), b.low, b.high)
			}
		}
		live = append(live, block{at, at + up(size)})
	}
	if c := d.Counters(); c.PlannedAllocations != 5 || c.Clashes == 0 {
		t.Errorf("%d requests on plan, expected 5: the first pass; %d clashes", c.PlannedAllocations, c.Clashes)
	}
}

// TestPlanThatDoesNotFit has a device that is smaller than the plan. The plan is given up
// once the device has no memory left, or at once if memory comes in one piece.
func TestPlanThatDoesNotFit(t *testing.T) {
	sizes := []uint64{1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}
	for _, partial := range []bool{true, false} {
		d := open(t, recorded(sizes), Options{Capacity: 2 << 20, Granularity: 2 << 20, Partial: partial})
		for i, at := range serve(t, d, sizes[:4]) {
			if (at >= 0) != (partial && i < 2) {
				t.Errorf("partial %v: request %d is at %d", partial, i, at)
			}
		}
		if c := d.Counters(); c.State != Off || c.Failed != 0 {
			t.Errorf("partial %v: %+v", partial, c)
		}
	}
}

// TestPlanComesInParts asks for a place in the middle of the plan: that place has memory
// then, and the granule at the plan's beginning.
func TestPlanComesInParts(t *testing.T) {
	const granule = 2 << 20
	plan := recorded([]uint64{granule, granule, granule, granule})
	plan.Slots[0].Offset, plan.Slots[2].Offset = plan.Slots[2].Offset, plan.Slots[0].Offset
	d := open(t, plan, Options{})
	for i, want := range []uint64{2 * granule, 3 * granule, 3 * granule, 4 * granule} {
		if _, source, err := d.Malloc(granule, 0); err != nil || source != FromPlan {
			t.Fatalf("request %d: from %d, %v", i, source, err)
		}
		if c := d.Counters(); c.ReservedBytes != want {
			t.Errorf("after request %d: %d B reserved, expected %d", i, c.ReservedBytes, want)
		}
	}
}

// TestIdleMemoryOfThePlanMoves has a plan of small requests and of one large place that
// is asked for at the end of each pass. What the program needs besides takes the memory of
// that place, and the plan stays.
func TestIdleMemoryOfThePlanMoves(t *testing.T) {
	const large, besides = 1 << 30, 100 << 20
	small := distinct(200, rand.New(rand.NewPCG(6, 0)))
	d := open(t, periodic([]uint64{1}, [][]uint64{append(small, large)}, []uint32{1}), Options{})
	serve(t, d, []uint64{1})
	pass := func() {
		for _, at := range hold(t, d, append(small, large)) {
			if at < 0 {
				t.Error("a request is off plan")
			}
		}
	}
	pass()
	reserved := d.Counters().ReservedBytes
	serve(t, d, small)
	at, source, err := d.Malloc(besides, 0)
	if c := d.Counters(); err != nil || source == FromPlan || c.ReservedBytes > reserved+large/100 || c.State != Body {
		t.Fatalf("%d B besides: from %d, %v; %+v", uint64(besides), source, err, c)
	}
	if err := d.Free(at, 0); err != nil {
		t.Fatal(err)
	}
	serve(t, d, []uint64{large})
	pass()
	if c := d.Counters(); c.PeakReserved > reserved+large/100 || c.State != Body {
		t.Errorf("%+v", c)
	}
}

// TestMemoryThatIsLentStopsMoving asks for more than one idle place has, once in a long
// pass, while the place between two idle ones is in use. The plan lends the memory of both
// as long as the run can afford to move it, and then is given up.
func TestMemoryThatIsLentStopsMoving(t *testing.T) {
	const mib, besides, passes = 1 << 20, 100 << 20, 60
	small := make([]uint64, 3000)
	for i := range small {
		small[i] = uint64(i + 1)
	}
	large := []uint64{600 * mib, 64 * mib, 66 * mib, 68 * mib}
	d := open(t, periodic([]uint64{1}, [][]uint64{slices.Concat(small, large)}, []uint32{1}), Options{})
	malloc := func(size uint64) uint64 {
		at, _, err := d.Malloc(size, 0)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	free := func(blocks ...uint64) {
		for _, at := range blocks {
			if err := d.Free(at, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	free(malloc(1))
	var moved [passes]uint64
	for pass := range moved {
		serve(t, d, small)
		most, low, middle := malloc(large[0]), malloc(large[1]), malloc(large[2])
		free(low)
		if pass > 0 { // before, the last place has no memory to lend
			free(malloc(besides))
		}
		free(malloc(large[3]), most, middle)
		moved[pass] = d.Counters().MovedBytes
	}
	if moved[3] == 0 || moved[passes/2] != moved[passes-1] {
		t.Errorf("bytes moved, after each pass: %d; expected some, and none after half of them", moved)
	}
	if c := d.Counters(); c.State != Off || c.PeakReserved > c.PeakAllocated+c.PeakAllocated/16 {
		t.Errorf("%+v", c)
	}
}

// TestPlanThatIsNotWorthIt frees every second block, so that idle memory lies in pieces
// that do not move. The memory of a place would have to be added: the plan is given up.
func TestPlanThatIsNotWorthIt(t *testing.T) {
	const mib, pieces = 1 << 20, 60
	sizes := make([]uint64, pieces)
	for i := range sizes {
		sizes[i] = 3 * mib
	}
	plan := recorded(append(sizes, 100*mib, 512))
	plan.PeakAllocated = pieces * 3 * mib // fewer bytes than the plan takes
	plan.PeakActive = plan.PeakAllocated
	d := open(t, plan, Options{})
	var blocks []uint64
	for _, n := range sizes {
		at, source, err := d.Malloc(n, 0)
		if err != nil || source != FromPlan {
			t.Fatalf("from %d, %v", source, err)
		}
		blocks = append(blocks, at)
	}
	for i := 0; i < pieces; i += 2 {
		if err := d.Free(blocks[i], 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, source, err := d.Malloc(100*mib, 0); err != nil || source == FromPlan {
		t.Errorf("from %d, %v", source, err)
	}
	serve(t, d, []uint64{512})
	if c := d.Counters(); c.State != Off {
		t.Errorf("%+v", c)
	}
}

// TestPlanOfABiggerJob serves a job that asks for what was recorded, in that order, and
// keeps nothing, although the recording kept all of it. The plan's places would cost many
// times what the job needs, so no more may be reserved than by the pool alone.
func TestPlanOfABiggerJob(t *testing.T) {
	const mib, granule = 1 << 20, 2 << 20
	var sizes []uint64
	for i := range uint64(60) {
		sizes = append(sizes, (40+i)*mib)
	}
	reserved := func(d *Device) uint64 {
		for range 100 {
			serve(t, d, sizes)
		}
		return d.Counters().PeakReserved
	}
	options := Options{Capacity: 1 << 40, Granularity: granule, Partial: true}
	pool, err := Open(nil, 0, options)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	least := reserved(pool)
	for name, plan := range map[string]planfile.Device{
		"recorded": recorded(sizes), "periodic": periodic(sizes[:30], [][]uint64{sizes[30:]}, []uint32{1}),
	} {
		// Each zone begins a granule.
		if got := reserved(open(t, plan, options)); got > least+least/100+3*granule {
			t.Errorf("%s: %d MiB are reserved, the pool alone takes %d", name, got/mib, least/mib)
		}
	}
}

// TestOneBlockIsLeftOut serves runs that have less allocated than the recording, by more than a
// tenth, as they lack one block or two, and that have idle memory which does not move. That one block
// is missing does not say that the run is of another job.
func TestOneBlockIsLeftOut(t *testing.T) {
	const mib, pieces = 1 << 20, 12
	for lacks, state := range []State{Prologue, Prologue, Off} {
		sizes := []uint64{500 * mib, 160 * mib, 250 * mib, 170 * mib, 240 * mib}
		for range pieces {
			sizes = append(sizes, 3*mib)
		}
		sizes = append(sizes, 100*mib, 512)
		d := open(t, recorded(sizes), Options{})
		var blocks []uint64
		for i, n := range sizes {
			if i == 1 && lacks > 0 || i == 3 && lacks > 1 {
				continue
			}
			if i == 5+pieces {
				for k := len(blocks) - pieces; k < len(blocks); k += 2 {
					mustFree(t, d, blocks[k])
				}
			}
			blocks = append(blocks, mustMalloc(t, d, n))
		}
		if c := d.Counters(); c.State != state && !(state == Prologue && c.State == Ended) {
			t.Errorf("%d blocks are left out: %+v", lacks, c)
		}
	}
}

// TestStreamsOfAnotherRun has other stream handles than the recording.
func TestStreamsOfAnotherRun(t *testing.T) {
	plan := recorded(distinct(50, rand.New(rand.NewPCG(4, 0))))
	plan.Streams = []uint64{0, 0x100, 0x200}
	for i := range plan.Slots {
		plan.Slots[i].Stream = uint32(i % 3)
	}
	d := open(t, plan, Options{})
	for i := range plan.Slots {
		s := &plan.Slots[i]
		at, source, err := d.Malloc(s.Requested, []uint64{7, 0x55, 0x33}[s.Stream])
		if err != nil || source != FromPlan || at-Base != s.Offset {
			t.Fatalf("request %d: at %#x from %d, %v", i, at, source, err)
		}
	}
}

// TestPlanIsSuspendedAndResumed keeps the blocks of one pass, which take the places of
// all later passes, and frees them in the end.
func TestPlanIsSuspendedAndResumed(t *testing.T) {
	sizes := distinct(110, rand.New(rand.NewPCG(5, 0)))
	prologue, body := sizes[:10], sizes[10:]
	d := open(t, periodic(prologue, [][]uint64{body}, []uint32{1}), Options{})
	serve(t, d, prologue)
	var kept []uint64
	for _, n := range body {
		at, _, err := d.Malloc(n, 0)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, at)
	}
	passes := func(n int) Counters {
		for range n {
			serve(t, d, body)
		}
		return d.Counters()
	}
	if c := passes(100); c.State != Off || c.Clashes == 0 || c.Clashes > 5000 {
		t.Errorf("while all places are taken: %+v", c)
	}
	for _, at := range kept {
		if err := d.Free(at, 0); err != nil {
			t.Fatal(err)
		}
	}
	before := d.Counters().PlannedAllocations
	if c := passes(200); c.State != Body || c.PlannedAllocations < before+100*uint64(len(body)) {
		t.Errorf("after they were freed: %+v", c)
	}
}

func TestErrors(t *testing.T) {
	d := open(t, recorded([]uint64{512}), Options{Capacity: 1 << 20, Granularity: 512, Partial: true, Limit: 4096})
	if _, _, err := d.Malloc(8192, 0); !errors.Is(err, ErrNoMemory) {
		t.Errorf("above the limit: %v", err)
	}
	if err := d.Free(Base+12345, 0); !errors.Is(err, ErrBadPointer) {
		t.Errorf("a foreign free: %v", err)
	}
	if _, err := Open(encode(t, recorded([]uint64{512})), 3, Options{}); err == nil {
		t.Error("a plan without device 3 serves it")
	}
}
