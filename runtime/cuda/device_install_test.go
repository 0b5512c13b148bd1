//go:build cgo

package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// A job is a program in a run: weights that it keeps, and iterations of requests each of
// which is freed before the next but one, so that two are live at a time.
type job struct {
	t       *testing.T
	device  *Device
	weights []uint64 // addresses
	live    map[uint64]uint64
}

// iteration are the sizes of an iteration, all different. A run is found in it after a few.
var iteration = func() (sizes []uint64) {
	for i := range uint64(24) {
		sizes = append(sizes, 3*mib+i*7%24*mib/2+512)
	}
	return sizes
}()

// planOf is a plan of the job: weights of 4 MiB, and an iteration whose blocks lie in turn in
// one of two places.
func planOf(weights int, sizes []uint64) planfile.Device {
	prologue := make([]uint64, weights)
	for i := range prologue {
		prologue[i] = 4 * mib
	}
	d := periodic(prologue, [][]uint64{sizes}, []uint32{1, 1})
	var largest [2]uint64
	for i, size := range sizes {
		largest[i%2] = max(largest[i%2], up(size))
	}
	base := uint64(weights) * 4 * mib
	for i := range sizes {
		s := &d.Slots[weights+i]
		s.Offset = base + uint64(i%2)*largest[0]
		s.RequestedEnd = min(s.Start+2, uint64(len(sizes)))
		s.CompletedEnd = s.RequestedEnd
	}
	d.ArenaBytes = base + largest[0] + largest[1]
	d.Certificate.Gap = d.ArenaBytes
	d.PeakAllocated, d.PeakActive = d.ArenaBytes, d.ArenaBytes
	return d
}

// beginJob begins a run, without a plan unless one was found, and keeps its history.
func beginJob(t *testing.T, weights int, found ...planfile.Device) *job {
	t.Helper()
	var plan []byte
	for _, d := range found {
		plan = encode(t, d)
	}
	device, err := Open(plan, 0, Options{Capacity: 1 << 40, Granularity: 2 * mib, Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Close)
	if err := device.KeepHistory(1 << 20); err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, device: device, live: map[uint64]uint64{}}
	for range weights {
		at, _ := j.malloc(4 * mib)
		j.weights = append(j.weights, at)
	}
	return j
}

// malloc allocates, and demands that no other block has any of the bytes.
func (j *job) malloc(size uint64) (uint64, Source) {
	j.t.Helper()
	at, source, err := j.device.Malloc(size, 0)
	if err != nil {
		j.t.Fatal(err)
	}
	for other, n := range j.live {
		if at < other+n && other < at+size {
			j.t.Fatalf("%d B at %#x overlap %d B at %#x", size, at, n, other)
		}
	}
	j.live[at] = size
	return at, source
}

func (j *job) free(at uint64) {
	j.t.Helper()
	if err := j.device.Free(at, 0); err != nil {
		j.t.Fatal(err)
	}
	delete(j.live, at)
}

// iterate runs an iteration and returns how many of its requests were on plan.
func (j *job) iterate(sizes []uint64) (planned int) {
	j.t.Helper()
	var last uint64
	for _, size := range sizes {
		at, source := j.malloc(size)
		if source == FromPlan {
			planned++
		}
		if last != 0 {
			j.free(last)
		}
		last = at
	}
	j.free(last)
	return planned
}

func (j *job) install(d planfile.Device) {
	j.t.Helper()
	if err := j.device.Install(encode(j.t, d), 0); err != nil {
		j.t.Fatal(err)
	}
}

// TestAPlanIsPutInPlaceInARun: it serves from the second iteration on after it came, wherever
// it came, and the first iteration that it has seen whole; what is live stays where it is, and
// no more is reserved than the run had, but the granules that zones begin.
func TestAPlanIsPutInPlaceInARun(t *testing.T) {
	for cut := range len(iteration) {
		j := beginJob(t, 3)
		weights := append([]uint64(nil), j.weights...)
		for range 3 {
			j.iterate(iteration)
		}
		var last uint64
		for i, size := range iteration { // it comes in the middle of an iteration
			if i == cut {
				j.install(planOf(3, iteration))
			}
			at, source := j.malloc(size)
			if source == FromPlan {
				t.Errorf("cut %d: request %d is on plan before an iteration has followed it", cut, i)
			}
			if last != 0 {
				j.free(last)
			}
			last = at
		}
		j.free(last)
		if n := j.iterate(iteration); cut > 0 && n != 0 {
			t.Errorf("cut %d: %d requests on plan in the iteration that follows the plan", cut, n)
		}
		before := j.device.Counters()
		for i := range 5 {
			if n := j.iterate(iteration); n != len(iteration) {
				t.Errorf("cut %d: iteration %d: %d of %d requests on plan", cut, i, n, len(iteration))
			}
		}
		c := j.device.Counters()
		if c.Installs != 1 || c.State != Body {
			t.Errorf("cut %d: %d plans put in place, state %d", cut, c.Installs, c.State)
		}
		if most := before.PeakReserved + 4*2*mib + planOf(3, iteration).ArenaBytes; c.ReservedBytes > most {
			t.Errorf("cut %d: %d B reserved, expected at most %d", cut, c.ReservedBytes, most)
		}
		for i, at := range weights {
			if at != j.weights[i] || j.live[at] != 4*mib {
				t.Errorf("cut %d: weight %d is gone from %#x", cut, i, at)
			}
			j.free(at)
		}
	}
}

// TestAPlanIsReplacedInARun: the program changes, and its next plan comes. Blocks that the
// first plan placed are freed under the second.
func TestAPlanIsReplacedInARun(t *testing.T) {
	j := beginJob(t, 3)
	j.install(planOf(3, iteration))
	for range 4 {
		j.iterate(iteration)
	}
	kept, source := j.malloc(iteration[0])
	if source != FromPlan {
		t.Fatal("the first plan does not serve")
	}
	other := []uint64{8 * mib, 2*mib + 512, 10 * mib, 6*mib + 512, 13 * mib, 5*mib + 512}
	j.install(planOf(3, other))
	for range 6 {
		j.iterate(other)
	}
	if n := j.iterate(other); n != len(other) {
		t.Errorf("%d of %d requests on the second plan", n, len(other))
	}
	j.free(kept)
	for range 3 {
		if n := j.iterate(other); n != len(other) {
			t.Errorf("%d of %d requests on the second plan, after a block of the first was freed", n, len(other))
		}
	}
	if c := j.device.Counters(); c.Installs != 2 || c.State != Body {
		t.Errorf("%d plans put in place, state %d", c.Installs, c.State)
	}
}

// churn asks for blocks of random sizes and frees others, `most` bytes of them at a time. The device has little more
// than the run allocates by that, so what is idle moves, whatever the run owes.
func (j *job) churn(requests int, most uint64) {
	const capacity, spare = 1 << 40, 6 * mib
	j.device.Occupy(capacity - j.device.Counters().AllocatedBytes - most - spare)
	r := rand.New(rand.NewPCG(1, 2))
	var blocks []uint64
	total := uint64(0)
	free := func(i int) {
		total -= j.live[blocks[i]]
		j.free(blocks[i])
		blocks = append(blocks[:i], blocks[i+1:]...)
	}
	for range requests {
		size := 2 * mib * (1 + r.Uint64N(10))
		for total+size > most {
			free(r.IntN(len(blocks)))
		}
		at, _ := j.malloc(size)
		blocks = append(blocks, at)
		total += size
	}
	for len(blocks) > 0 {
		free(0)
	}
	j.device.Occupy(0)
}

// TestAPlanOwesNothingForThePool: what the pool has moved is more than a run may owe that a plan serves, so with that
// nothing could move to a place of the plan, which would be given up.
func TestAPlanOwesNothingForThePool(t *testing.T) {
	const weights = 25
	var sizes []uint64
	for _, size := range iteration {
		sizes = append(sizes, 20*mib+size/4)
	}
	plan := planOf(weights, sizes)
	room := plan.ArenaBytes - weights*4*mib // of the blocks of an iteration that are live at a time
	apart := (plan.ArenaBytes + 2*mib - 1) / (2 * mib) * 2 * mib
	plan.Slots[weights+12].Offset = apart // where memory has to move from another place
	plan.ArenaBytes = apart + room/2
	plan.Certificate.Gap = plan.ArenaBytes
	j := beginJob(t, weights)
	j.churn(4000, room)
	if c := j.device.Counters(); c.MovedBytes < c.PeakReserved/2+32*room { // device_debt.c
		t.Fatalf("only %d MiB have moved", c.MovedBytes/mib)
	}
	j.install(plan)
	for range 3 {
		j.iterate(sizes)
	}
	for i := range 3 {
		if n := j.iterate(sizes); n != len(sizes) {
			t.Errorf("iteration %d: %d of %d requests on plan", i, n, len(sizes))
		}
	}
	if c := j.device.Counters(); c.Installs != 1 || c.State != Body || c.PeakReserved > plan.PeakAllocated+plan.PeakAllocated/33+6*mib {
		t.Errorf("%+v", c)
	}
}

// TestAPlanThatDoesNotFitIsNotPutInPlace: it follows the run for ever, and changes nothing.
func TestAPlanThatDoesNotFitIsNotPutInPlace(t *testing.T) {
	j, without := beginJob(t, 3), beginJob(t, 3)
	j.install(planOf(3, []uint64{20 * mib, 1 * mib, 30 * mib, 2 * mib}))
	for range 20 {
		if j.iterate(iteration) != 0 {
			t.Fatal("a request is on plan")
		}
		without.iterate(iteration)
	}
	got, want := j.device.Counters(), without.device.Counters()
	if got.FollowedBytes == 0 || got.FittingBytes != 0 {
		t.Errorf("%d of %d bytes fitted the plan", got.FittingBytes, got.FollowedBytes)
	}
	got.FollowedPlan, got.FollowedBytes = 0, 0
	if got != want {
		t.Errorf("with the plan %+v\nwithout it %+v", got, want)
	}
}

// TestAPlanOfARunThatMovesNothingWaits: the run reserves what it allocates, and nothing moves.
func TestAPlanOfARunThatMovesNothingWaits(t *testing.T) {
	j := beginJob(t, 100)
	even := []uint64{8 * mib, 8 * mib, 8 * mib}
	j.install(planOf(100, even))
	for range 20 {
		j.iterate(even)
	}
	if c := j.device.Counters(); c.Installs != 0 || c.MovedBytes != 0 || c.State != NoPlan {
		t.Errorf("%d plans put in place, %d B moved, state %d", c.Installs, c.MovedBytes, c.State)
	}
}

// TestPlansThatCannotBeginInARun are refused.
func TestPlansThatCannotBeginInARun(t *testing.T) {
	j := beginJob(t, 1)
	declined := planOf(1, iteration)
	declined.Advice = planfile.AdvicePool
	for name, d := range map[string]planfile.Device{"recorded": recorded([]uint64{4096}), "declined": declined} {
		if err := j.device.Install(encode(t, d), 0); !errors.Is(err, ErrNotInRun) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := j.device.Install(encode(t, planOf(1, iteration)), 3); err == nil {
		t.Error("a plan of another device is taken")
	}
	var refused *PlanError
	if err := j.device.Install([]byte("no plan"), 0); !errors.As(err, &refused) {
		t.Errorf("no plan: %v", err)
	}
	j.install(planOf(1, iteration)) // and memory stops moving before it is in place
	j.device.StopMoving()
	if err := j.device.Install(encode(t, planOf(1, iteration)), 0); err == nil || errors.Is(err, ErrNotInRun) {
		t.Errorf("memory does not move: %v", err)
	}
	for range 5 {
		j.iterate(iteration)
	}
	if c := j.device.Counters(); c.Installs != 0 || c.State != NoPlan {
		t.Errorf("%d plans put in place, state %d", c.Installs, c.State)
	}
}

// TestAWiderPlanIsAwaited: while a plan of more iterations is being made, the one of fewer is not put in place, but
// if none has come after as many iterations again, or the one that came does not pay.
func TestAWiderPlanIsAwaited(t *testing.T) {
	after := func(comes func(j *job)) (installed int) {
		j := beginJob(t, 3)
		for range 4 {
			j.iterate(iteration)
			j.device.LearnDue(4)
		}
		j.device.LearnMade()
		j.install(planOf(3, iteration))
		j.device.LearnMade() // at once, of the same 4 iterations
		for i := 1; i <= 20; i++ {
			if i == 2 {
				comes(j)
			}
			j.iterate(iteration)
			if j.device.Counters().Installs > 0 {
				return i
			}
			j.device.LearnDue(4)
		}
		return 0
	}
	declined := planOf(3, iteration)
	declined.Advice = planfile.AdvicePool
	refused := func(j *job) {
		if err := j.device.Install(encode(t, declined), 0); !errors.Is(err, ErrNotInRun) {
			t.Errorf("%v, expected %v", err, ErrNotInRun)
		}
	}
	for what, c := range map[string]struct {
		comes func(j *job)
		want  int
	}{
		"nothing":               {func(*job) {}, 5},
		"a wider one":           {func(j *job) { j.install(planOf(3, iteration)) }, 3},
		"one that does not pay": {refused, 2},
	} {
		if got := after(c.comes); got != c.want {
			t.Errorf("%s comes in iteration 2: a plan is in place in iteration %d, expected %d", what, got, c.want)
		}
	}
}

// due runs iterations until a plan is due, at most n, and says after how many.
func (j *job) due(n int, sizes []uint64) int {
	for i := 1; i <= n; i++ {
		j.iterate(sizes)
		if j.device.LearnDue(4) {
			return i
		}
	}
	return 0
}

// TestWhenAPlanIsMade: after the first iterations, and again only if the run goes beyond it,
// after three times as many, three times in all while it goes on, and once more when it ends.
func TestWhenAPlanIsMade(t *testing.T) {
	j := beginJob(t, 3)
	for i, want := range []int{4, 8, 24, 0} {
		if got := j.due(100, iteration); got != want {
			t.Fatalf("plan %d: due after %d iterations more, expected %d", i, got, want)
		}
		if want != 0 {
			j.device.LearnMade()
		}
	}
	if !j.device.LearnDueAtEnd(4) {
		t.Error("none is due at the end of a run that went beyond three plans")
	}
	fits := beginJob(t, 3)
	if got := fits.due(9, iteration); got != 4 {
		t.Fatalf("due after %d iterations, expected 4", got)
	}
	fits.device.LearnMade()
	fits.install(planOf(3, iteration))
	if got := fits.due(50, iteration); got != 0 {
		t.Errorf("due after %d iterations, although the plan fits", got)
	}
	wider := append([]uint64{33 * mib}, iteration...)
	if got := fits.due(50, wider); got == 0 || got > 4 {
		t.Errorf("due after %d iterations that go beyond the plan, expected 1 to 4", got)
	}
	waits := beginJob(t, 100) // its plan follows the run, and is not put in place
	even := []uint64{8 * mib, 8 * mib, 8 * mib}
	if got := waits.due(9, even); got != 4 {
		t.Fatalf("due after %d iterations, expected 4", got)
	}
	waits.device.LearnMade()
	waits.install(planOf(100, even))
	if got := waits.due(50, even); got != 0 || waits.device.Counters().Installs != 0 {
		t.Errorf("due after %d iterations, although the plan that follows the run fits", got)
	}
	if got := waits.due(50, wider); got == 0 || got > 4 {
		t.Errorf("due after %d iterations that go beyond the plan that follows the run, expected 1 to 4", got)
	}
	if got := beginJob(t, 3, planOf(3, iteration)).due(50, iteration); got != 0 {
		t.Errorf("due after %d iterations, although the plan that was found fits", got)
	}
	if got := beginJob(t, 3, planOf(3, []uint64{mib, 2 * mib})).due(50, iteration); got != 4 {
		t.Errorf("due after %d iterations of a plan that was found and does not fit, expected 4", got)
	}
}

// TestWhatComesNowAndThenIsPlannedToo: an evaluation, of which the plan of the first iterations knows nothing, has
// another one made although nearly all fits; of a hundredth of the bytes while the run goes on, and of less when it ends.
func TestWhatComesNowAndThenIsPlannedToo(t *testing.T) {
	for _, c := range []struct {
		name  string
		extra uint64 // bytes for 1,000 of an iteration, in every fourth one
		due   int    // iterations until a plan is due, 0 for never
		atEnd bool
	}{
		{"nothing", 0, 0, false},
		{"4 of 1,000", 16, 0, true},
		{"3 of 100", 120, 8, true},
	} {
		j := beginJob(t, 3)
		var all uint64
		for _, size := range iteration {
			all += size
		}
		if got := j.due(9, iteration); got != 4 {
			t.Fatalf("%s: due after %d iterations, expected 4", c.name, got)
		}
		j.device.LearnMade()
		j.install(planOf(3, iteration))
		due := 0
		for i := 1; i <= 19 && due == 0; i++ {
			sizes := iteration
			if i%4 == 0 && c.extra > 0 {
				sizes = append(append([]uint64{}, iteration...), c.extra*all/1000)
			}
			j.iterate(sizes)
			if j.device.LearnDue(4) {
				due = i
			}
		}
		if due != c.due || j.device.LearnDueAtEnd(4) != c.atEnd {
			t.Errorf("%s: due after %d iterations and at the end %t, expected %d and %t", c.name, due, !c.atEnd, c.due, c.atEnd)
		}
	}
}

// TestARunThatLeftItsPlanHasOneAtTheEnd: of all of its iterations, if there are more than those of the last plan, and none if it follows that. If
// it follows it nearly, there have to be a quarter more. A plan that has just come has not been followed yet.
func TestARunThatLeftItsPlanHasOneAtTheEnd(t *testing.T) {
	var all uint64
	for _, size := range iteration {
		all += size
	}
	for _, c := range []struct {
		name  string
		later []uint64
		due   []bool // at the end, by iterations since the plan of 8
		pays  bool
		found []planfile.Device // what serves the run already
	}{
		{"follows", iteration, []bool{false, true, false, false, false}, true, nil},
		{"leaves", []uint64{33 * mib, 7 * mib, 5 * mib}, []bool{false, true, true, true, true}, true, nil},
		{"follows nearly", append(append([]uint64{}, iteration...), all/250), []bool{false, true, false, true, true}, true, nil},
		{"follows another one", iteration, []bool{false, true, true, true, true}, false, []planfile.Device{planOf(3, iteration)}},
	} {
		j := beginJob(t, 3, c.found...)
		for range 8 {
			j.iterate(iteration)
			j.device.LearnDue(8)
		}
		j.device.LearnMade()
		for i, want := range c.due {
			if i > 0 {
				j.iterate(c.later)
				if j.device.LearnDue(8) {
					t.Errorf("%s: due %d iterations after the plan, while the run goes on", c.name, i)
				}
			}
			if i == 0 {
				came := planOf(3, iteration)
				if !c.pays {
					came.Advice = planfile.AdvicePool
				}
				if err := j.device.Install(encode(t, came), 0); (err == nil) != c.pays {
					t.Fatal(err)
				}
			}
			if due := j.device.LearnDueAtEnd(8); due != want {
				t.Errorf("%s: due at the end %d iterations after the plan: %t", c.name, i, due)
			}
		}
	}
}
