//go:build cgo

package cuda

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// inTheWay is a plan whose passes first ask for a small block, which is freed at once, then for two
// places of 300 MiB, then for one of 600 in the same bytes and another one behind it.
func inTheWay() (planfile.Device, []uint64) { return inTheWayOf(64*mib, false) }

// inTheWayOf is that plan with a weight of another size. If it shares, two blocks at the end of a pass have one place.
func inTheWayOf(weight uint64, shares bool) (planfile.Device, []uint64) {
	const small = 64 << 10
	body := []uint64{small, 300 * mib, 301 * mib, 602 * mib, 603 * mib}
	if shares {
		body = append(body, small/2, small/4)
	}
	d := periodic([]uint64{weight}, [][]uint64{body}, []uint32{1})
	base := d.Slots[0].Size
	d.ArenaBytes = base + 1205*mib
	for i, at := range []struct{ offset, end uint64 }{{10 * mib, 1}, {0, 3}, {301 * mib, 3}, {0, 5}, {602 * mib, 5}} {
		s := &d.Slots[1+i]
		s.Offset, s.RequestedEnd, s.CompletedEnd = base+at.offset, at.end, at.end
	}
	for i := 6; i < len(d.Slots); i++ {
		s := &d.Slots[i]
		s.Offset, s.Size, s.Least = base, small, s.Requested/2
		if i == 7 {
			s.Flags, s.Cell = planfile.SlotShares, 6
		}
	}
	d.Certificate.Gap, d.PeakAllocated, d.PeakActive = d.ArenaBytes, d.ArenaBytes, d.ArenaBytes
	return d, body
}

// detoured is a run of that plan.
type detoured struct {
	t    *testing.T
	d    *Device
	body []uint64
}

func beginDetoured(t *testing.T) detoured {
	t.Helper()
	plan, body := inTheWay()
	d := open(t, plan, Options{})
	mustMalloc(t, d, 64*mib)
	return detoured{t, d, body}
}

// pass serves a pass, and returns its small block, which is not freed, and the address of the
// first place of 600 MiB.
func (r detoured) pass() (small, large uint64) {
	r.t.Helper()
	small = mustMalloc(r.t, r.d, r.body[0])
	first, second := mustMalloc(r.t, r.d, r.body[1]), mustMalloc(r.t, r.d, r.body[2])
	mustFree(r.t, r.d, first)
	mustFree(r.t, r.d, second)
	large = mustMalloc(r.t, r.d, r.body[3])
	behind := mustMalloc(r.t, r.d, r.body[4])
	mustFree(r.t, r.d, large)
	mustFree(r.t, r.d, behind)
	for _, n := range r.body[5:] {
		mustFree(r.t, r.d, mustMalloc(r.t, r.d, n))
	}
	return small, large
}

// freed serves a pass as it was planned.
func (r detoured) freed() (large uint64) {
	r.t.Helper()
	mustFree(r.t, r.d, mustMalloc(r.t, r.d, r.body[0]))
	for i := 1; i < len(r.body); i += 2 {
		a, b := mustMalloc(r.t, r.d, r.body[i]), mustMalloc(r.t, r.d, r.body[i+1])
		mustFree(r.t, r.d, a)
		mustFree(r.t, r.d, b)
		if i == 3 {
			large = a
		}
	}
	return large
}

// TestPlacesMakeADetour has a small block stay in the way of a large place, whose bytes are those of
// others in another part of the pass. Their memory moves once, and not in every pass, and once more when the
// block is gone.
func TestPlacesMakeADetour(t *testing.T) {
	r := beginDetoured(t)
	home := r.freed()
	stays, large := r.pass()
	if large == home {
		t.Fatalf("the place lies at %#x although a block is in the way", large)
	}
	for range 50 {
		if again := r.freed(); again != large {
			t.Fatalf("the place lies at %#x and at %#x", large, again)
		}
	}
	c := r.d.Counters()
	if c.MovedBytes > 610*mib || c.PeakReserved > c.PeakAllocated+8*mib || c.State != Body || c.PlannedAllocations != c.Allocations {
		t.Errorf("while a block is in the way: %+v", c)
	}
	mustFree(t, r.d, stays)
	for range 50 {
		if again := r.freed(); again != home {
			t.Fatalf("the place lies at %#x, expected %#x: nothing is in the way", again, home)
		}
	}
	if c := r.d.Counters(); c.MovedBytes > 1220*mib || c.PeakReserved > c.PeakAllocated+8*mib || c.PlannedAllocations != c.Allocations {
		t.Errorf("after it was freed: %+v", c)
	}
}

// TestSmallPlacesMakeNoDetour has granules of which the large place has 18, and 9.
func TestSmallPlacesMakeNoDetour(t *testing.T) {
	plan, body := inTheWay()
	for granule, detour := range map[uint64]bool{32 * mib: true, 64 * mib: false} {
		r := detoured{t, open(t, plan, Options{Capacity: 1 << 40, Granularity: granule, Partial: true}), body}
		mustMalloc(t, r.d, 64*mib)
		r.freed()
		r.pass()
		if c := r.d.Counters(); (c.PlannedAllocations == c.Allocations) != detour {
			t.Errorf("granules of %d MiB: %d of %d blocks on plan, expected all: %v", granule/mib, c.PlannedAllocations, c.Allocations, detour)
		}
	}
}

// TestDetoursGoOn has a block stay in each of some passes, at the place or where it lies then, each of
// them for some passes.
func TestDetoursGoOn(t *testing.T) {
	r := beginDetoured(t)
	home := r.freed()
	var stay []uint64
	for range 40 {
		small, _ := r.pass()
		stay = append(stay, small)
		if len(stay) > 3 {
			mustFree(t, r.d, stay[0])
			stay = stay[1:]
		}
		r.freed()
	}
	for _, at := range stay {
		mustFree(t, r.d, at)
	}
	for range 3 {
		if large := r.freed(); large != home {
			t.Errorf("the place lies at %#x, expected %#x", large, home)
		}
	}
	if c := r.d.Counters(); c.PeakReserved > c.PeakAllocated+c.PeakAllocated/33 {
		t.Errorf("%+v", c)
	}
}

// TestNoDetourOfWhatIsNotInStep: a run that has just done something else, and has not been in step for
// long after it, has no place make a detour. What is in its way may be gone soon.
func TestNoDetourOfWhatIsNotInStep(t *testing.T) {
	r := beginDetoured(t)
	for range 30 {
		r.freed()
	}
	for i := range uint64(50) {
		mustFree(t, r.d, mustMalloc(t, r.d, 5*mib+512*i))
	}
	home := r.freed()
	small, large := r.pass()
	mustFree(t, r.d, small)
	if plan, _ := inTheWay(); large == home || large-Base > plan.ArenaBytes {
		t.Errorf("the place lies at %#x, expected other addresses of the plan than %#x", large, home)
	}
}

// TestNoAddressesForDetours: a device on which there are no addresses behind the plan's serves the plan, and
// a place that is taken is served elsewhere.
func TestNoAddressesForDetours(t *testing.T) {
	plan, body := inTheWay()
	const capacity = 900 * mib // of which a device has four times as many addresses, and the plan with detours takes more
	if 3*plan.ArenaBytes < 4*capacity {
		t.Fatalf("the plan has %d B: too few for this test", plan.ArenaBytes)
	}
	d := open(t, plan, Options{Capacity: capacity, Granularity: 2 * mib, Partial: true})
	mustMalloc(t, d, 64*mib)
	for range 3 {
		stays := mustMalloc(t, d, body[0])
		first, second := mustMalloc(t, d, body[1]), mustMalloc(t, d, body[2])
		mustFree(t, d, first)
		mustFree(t, d, second)
		large := mustMalloc(t, d, body[3])
		if large < stays+body[0] && stays < large+body[3] {
			t.Fatalf("%#x is given twice", stays)
		}
		mustFree(t, d, large)
		mustFree(t, d, stays)
	}
	if c := d.Counters(); c.Failed != 0 || c.PlannedAllocations == 0 || c.PeakReserved > capacity {
		t.Errorf("%+v", c)
	}
}

// TestNoDetourWithoutThePlansAddresses: if nothing lives and all memory is given to others, the plan's
// addresses go as well. Then a place that is taken makes no detour to those behind them.
func TestNoDetourWithoutThePlansAddresses(t *testing.T) {
	plan, body := inTheWay()
	d := open(t, plan, Options{})
	weights := mustMalloc(t, d, 64*mib)
	small := mustMalloc(t, d, body[0])
	mustFree(t, d, weights)
	mustFree(t, d, small)
	if _, err := d.Pause(); err != nil {
		t.Fatal(err)
	}
	live := map[uint64]uint64{}
	ask := func(size uint64) uint64 {
		at := mustMalloc(t, d, size)
		for other, bytes := range live {
			if at < other+bytes && other < at+size {
				t.Fatalf("%d B at %#x overlap %d B at %#x", size, at, bytes, other)
			}
		}
		live[at] = size
		return at
	}
	for range 3 {
		var pass []uint64
		for _, size := range body[1:] {
			pass = append(pass, ask(size))
		}
		for _, at := range pass {
			mustFree(t, d, at)
			delete(live, at)
		}
		ask(body[0])
	}
}

// TestDetoursAtRandom: whatever is left in the way, freed late, asked for in between, given to others and taken
// back, no two blocks overlap, and what is counted is what lives. With some seeds the device is too small for detours.
func TestDetoursAtRandom(t *testing.T) {
	detours := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		plan, body := inTheWay()
		opt := Options{Capacity: 1 << 40, Granularity: 2 * mib, Partial: true}
		if seed%4 == 3 {
			opt.Capacity = plan.ArenaBytes + plan.ArenaBytes/8
		}
		d := open(t, plan, opt)
		live, bytes := map[uint64]uint64{}, uint64(0)
		free := func(at uint64) {
			mustFree(t, d, at)
			bytes -= up(live[at])
			delete(live, at)
		}
		ask := func(size uint64) {
			at, _, err := d.Malloc(size, 0)
			if err != nil {
				return // the device is full
			}
			for other, n := range live {
				if at < other+n && other < at+size {
					t.Fatalf("seed %d: %d B at %#x overlap %d B at %#x", seed, size, at, n, other)
				}
			}
			live[at] = size
			bytes += up(size)
			if at >= Base+plan.ArenaBytes && at < Base+3*plan.ArenaBytes {
				detours++ // the plan's first addresses are the device's
			}
		}
		ask(64 * mib)
		for range 60 {
			for _, size := range body {
				if rng.IntN(20) > 0 {
					ask(size)
				}
				if rng.IntN(40) == 0 {
					ask((1 + rng.Uint64N(200)) * mib)
				}
				for _, at := range slices.Sorted(maps.Keys(live)) {
					if n := live[at]; n != 64*mib && (n >= 20*mib && rng.IntN(2) == 0 || rng.IntN(30) == 0) {
						free(at)
					}
				}
			}
			switch rng.IntN(30) {
			case 0:
				if _, err := d.Pause(); err != nil {
					t.Fatal(err)
				}
			case 1:
				if _, err := d.Resume(1 << 62); err != nil {
					t.Fatal(err)
				}
			}
		}
		if c := d.Counters(); c.AllocatedBytes != bytes || c.RefusedFrees != 0 {
			t.Errorf("seed %d: %d B live, %+v", seed, bytes, c)
		}
	}
	if detours < 100 {
		t.Errorf("%d blocks lay on a detour: too few for this test", detours)
	}
}

// TestNothingMovesForADetourWithoutMoving: places stay where they are if memory does.
func TestNothingMovesForADetourWithoutMoving(t *testing.T) {
	r := beginDetoured(t)
	r.d.StopMoving()
	r.freed()
	stays, _ := r.pass()
	r.freed()
	mustFree(t, r.d, stays)
	r.freed()
	if c := r.d.Counters(); c.MovedBytes != 0 {
		t.Errorf("%+v", c)
	}
}

// TestOffPlanWhatIsNeededLatest asks for a block off plan that fits into either of two places. It is
// served where the plan needs it later, not in the place that comes next.
func TestOffPlanWhatIsNeededLatest(t *testing.T) {
	body := []uint64{300 * mib}
	for i := range uint64(100) {
		body = append(body, 4096+512*i)
	}
	body = append(body, 310*mib)
	d := open(t, brief(periodic([]uint64{1}, [][]uint64{body}, []uint32{1})), Options{})
	serve(t, d, []uint64{1})
	serve(t, d, body)
	next := serve(t, d, body)[0]
	if at := mustMalloc(t, d, 290*mib); at < Base+uint64(next)+300*mib {
		t.Errorf("served at offset %d of the plan, where 300 MiB from %d are needed next", at-Base, next)
	}
}

// TestOffPlanWhatIsNeededMuchLater asks for a block off plan that fits into a place that the plan needs in 6,000
// steps, and into another one behind it that it needs in 9,000. Many blocks live for more than the 2,048 steps after which any
// place would do.
func TestOffPlanWhatIsNeededMuchLater(t *testing.T) {
	size := func(i int) uint64 { return uint64(1+i%10) * 512 }
	body := []uint64{300 * mib}
	for i := range 3000 {
		body = append(body, size(i))
	}
	body = append(body, 310*mib)
	for i := range 6000 {
		body = append(body, size(7*i))
	}
	d := open(t, brief(periodic([]uint64{1}, [][]uint64{body}, []uint32{1})), Options{})
	mustMalloc(t, d, 1)
	serve(t, d, body)
	next := serve(t, d, body[:3002])[0]
	if next < 0 {
		t.Fatal("the run does not follow its own plan")
	}
	if at := mustMalloc(t, d, 290*mib); at < Base+uint64(next)+300*mib {
		t.Errorf("served at offset %d of the plan, where 300 MiB from %d are needed first", at-Base, next)
	}
}

// TestSmallBlocksOffPlan asks for small blocks that a plan of 6 GiB does not know, in the midst of which there is room for 3,000 steps.
// They get memory of their own until that is 1/2048 of the plan's, three megabytes. From then on they have the plan's: what is
// reserved grows no more. In a plan of 2 GiB they have it once a granule is full.
func TestSmallBlocksOffPlan(t *testing.T) {
	const off = 3584 // no step is of this size
	for _, c := range []struct{ weight, own uint64 }{{6 << 30, 4 * mib}, {2 << 30, 2 * mib}} {
		body := []uint64{64 * mib}
		for i := range 3000 {
			body = append(body, 4096+512*uint64(i%100))
		}
		plan := brief(periodic([]uint64{c.weight}, [][]uint64{body}, []uint32{1}))
		d := open(t, plan, Options{})
		mustMalloc(t, d, c.weight)
		serve(t, d, body)
		serve(t, d, body[:10])
		within, outside := uint64(0), uint64(0)
		for range 2 * c.own / off {
			if at := mustMalloc(t, d, off); at >= Base && at < Base+plan.ArenaBytes {
				within += off
			} else if outside += off; within > 0 {
				t.Fatalf("plan of %d GiB: %d bytes have memory of their own after %d of the plan's", c.weight>>30, outside, within)
			}
		}
		if outside > c.own || outside < c.own-off {
			t.Errorf("plan of %d GiB: %d bytes of small blocks have memory of their own, %d the plan's; expected %d of their own", c.weight>>30, outside, within, c.own)
		}
	}
}

// TestDetoursIfStepsShare has a place of 600 MiB in plans in which other steps share one, and makes the plans larger by a weight: the
// place makes a detour only if it is an eighth of the plan.
func TestDetoursIfStepsShare(t *testing.T) {
	for weight, detour := range map[uint64]bool{64 * mib: true, 6 << 30: false} {
		for _, shares := range []bool{true, false} {
			plan, body := inTheWayOf(weight, shares)
			r := detoured{t, open(t, plan, Options{}), body}
			mustMalloc(t, r.d, weight)
			home := r.freed()
			r.freed()
			if _, large := r.pass(); large == home {
				t.Fatalf("weight of %d MiB, shares %v: the place lies at %#x although a block is in the way", weight/mib, shares, large)
			}
			first := r.freed()
			if c := r.d.Counters(); (c.PlannedAllocations == c.Allocations) != (detour || !shares) {
				t.Errorf("weight of %d MiB, shares %v: %d of %d blocks on plan, the place lies at %#x and %#x", weight/mib, shares, c.PlannedAllocations, c.Allocations, home, first)
			}
		}
	}
}

// TestMemoryBehindAPlansLastGranule: the plan ends within a granule, and addresses for detours go on behind it. Once the
// plan is suspended, and not on trial any more, its memory is part of the pool, which asks for no memory from the midst of a
// granule on: no device gives that, and the pool took new memory instead.
func TestMemoryBehindAPlansLastGranule(t *testing.T) {
	r := beginDetoured(t)
	for range 1000 {
		r.freed()
	}
	stays, _ := r.pass()
	mustFree(t, r.d, stays)
	for i := uint64(0); r.d.Counters().State == Body; i++ {
		if i == 100000 {
			t.Fatal("the plan is still served")
		}
		mustFree(t, r.d, mustMalloc(t, r.d, 50*mib+512*(i%1000)))
	}
	if plan, _ := inTheWay(); plan.ArenaBytes%(2*mib) == 0 {
		t.Fatal("the plan ends with a granule, so this is no test")
	}
	for _, size := range []uint64{650 * mib, 900 * mib, 1150 * mib, 1240 * mib, 1260 * mib} {
		mustFree(t, r.d, mustMalloc(t, r.d, size))
		if c := r.d.Counters(); c.PeakReserved > c.PeakAllocated+c.PeakAllocated/50 {
			t.Errorf("%d MiB: %d B reserved for %d B", size/mib, c.PeakReserved, c.PeakAllocated)
		}
	}
}
