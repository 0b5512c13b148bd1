//go:build cgo

package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

func open(t *testing.T, plan planfile.Device, opt Options) *Device {
	t.Helper()
	if opt.Capacity == 0 {
		opt = Options{Capacity: 1 << 40, Granularity: 2 << 20, Partial: true}
	}
	d, err := Open(encode(t, plan), 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := d.Misplaced(); n > 0 {
			t.Errorf("memory was asked for within a granule %d times", n)
		}
		d.Close()
	})
	return d
}

// serve frees each block at once, so that every place is always free and the matcher
// alone decides. It returns the offset at which each request was served, -1 if off plan.
func serve(t *testing.T, d *Device, sizes []uint64) []int64 {
	t.Helper()
	served := make([]int64, len(sizes))
	for i, n := range sizes {
		address, source, err := d.Malloc(n, 0)
		if err != nil {
			t.Fatal(err)
		}
		served[i] = -1
		if source == FromPlan {
			served[i] = int64(address - Base)
		}
		if err := d.Free(address, 0); err != nil {
			t.Fatal(err)
		}
	}
	return served
}

// hold serves requests as serve does, but frees all of them after the last one.
func hold(t *testing.T, d *Device, sizes []uint64) []int64 {
	t.Helper()
	served, blocks := make([]int64, len(sizes)), make([]uint64, len(sizes))
	for i, n := range sizes {
		address, source, err := d.Malloc(n, 0)
		if err != nil {
			t.Fatal(err)
		}
		blocks[i], served[i] = address, -1
		if source == FromPlan {
			served[i] = int64(address - Base)
		}
	}
	for _, address := range blocks {
		if err := d.Free(address, 0); err != nil {
			t.Fatal(err)
		}
	}
	return served
}

// distinct are n different sizes, shuffled.
func distinct(n int, rng *rand.Rand) []uint64 {
	sizes := make([]uint64, n)
	for i := range sizes {
		sizes[i] = 512 * uint64(i+1)
	}
	rng.Shuffle(n, func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

// randomJob is a periodic plan with few distinct sizes, optional slots, slots whose size
// follows a length, and ends anywhere. Either every slot has bytes of its own, or slots
// that do not live at the same time share them.
func randomJob(rng *rand.Rand) planfile.Device {
	d := planfile.Device{
		Rank: -1, Mode: planfile.ModePeriodic, End: planfile.EndRequested, Alignment: 512,
		Streams: []uint64{0}, Certificate: planfile.Certificate{Kind: planfile.BoundLoad},
	}
	several := rng.IntN(2) == 0
	varying := []float64{0, 0.2, 0.8}[rng.IntN(3)]
	optional := []float64{0, 0, 0.05, 0.3}[rng.IntN(4)]
	alphabet := 3 + rng.IntN(40)
	apart := rng.IntN(2) == 0
	add := func(n int, bodyPasses int, first uint64, like []planfile.Slot) planfile.Phase {
		p := planfile.Phase{Kind: planfile.PhasePrologue, Occurrences: 1, Length: uint64(n), FirstSlot: uint64(len(d.Slots)), SlotCount: uint64(n)}
		if bodyPasses > 0 {
			p.Kind, p.Occurrences = planfile.PhaseBody, uint32(bodyPasses)
		}
		for _, s := range like {
			s.Occurrences = p.Occurrences
			d.Slots = append(d.Slots, s)
		}
		for i := len(like); i < n; i++ {
			s := planfile.Slot{Start: uint64(i), RequestedEnd: uint64(min(n, i+1+rng.IntN(8))), Occurrences: p.Occurrences, Cell: planfile.NoCell}
			if rng.IntN(8) == 0 {
				s.RequestedEnd = uint64(i + 1 + rng.IntN(n-i))
			}
			s.Requested = 512 * uint64(1+rng.IntN(alphabet))
			s.Least = s.Requested
			if bodyPasses > 1 && rng.Float64() < varying {
				s.Least, s.Requested = s.Requested, s.Requested*3
			}
			if several && i > 0 && rng.IntN(6) == 0 {
				s.Stream = 1
			}
			s.CompletedEnd, s.Size, s.Offset = s.RequestedEnd, up(s.Requested), d.ArenaBytes
			if !apart {
				s.Offset = lowest(d.Slots[p.FirstSlot:], &s, first)
			}
			d.ArenaBytes = max(d.ArenaBytes, s.Offset+s.Size)
			d.Slots = append(d.Slots, s)
		}
		return p
	}
	d.Phases = append(d.Phases, add(20+rng.IntN(60), 0, 0, nil))
	d.SteadyStart = d.Phases[0].Length
	passes := make([]uint32, 3+rng.IntN(4))
	bodies := 1 + rng.IntN(2)
	for i := range passes {
		passes[i] = uint32(1 + i%bodies)
	}
	for b := range bodies {
		n := 0
		for _, p := range passes {
			if p == uint32(b+1) {
				n++
			}
		}
		length, like := 100+rng.IntN(200), []planfile.Slot(nil)
		if b > 0 && rng.IntN(2) == 0 { // as a step with an evaluation begins as one without
			like = slices.Clone(d.Slots[d.Phases[1].FirstSlot:])
			length += len(like)
		}
		d.Phases = append(d.Phases, add(length, n, d.ArenaBytes, like))
	}
	seen := make([]uint32, bodies+1)
	for i, body := range passes {
		p := &d.Phases[body]
		present := make([]uint64, (p.Length+63)/64)
		for k := range p.Length {
			s := &d.Slots[p.FirstSlot+k]
			if seen[body] > 0 && s.Occurrences > 1 && rng.Float64() < optional {
				s.Occurrences--
				continue
			}
			present[k/64] |= 1 << (k % 64)
		}
		seen[body]++
		d.Passes = append(d.Passes, planfile.Pass{FirstEvent: d.SteadyStart + uint64(i), Phase: body, Present: present})
	}
	d.SteadyEnd = d.SteadyStart + uint64(len(passes))
	d.Events = d.SteadyEnd
	d.Certificate.Gap = d.ArenaBytes
	d.PeakAllocated, d.PeakActive = 1<<39, 1<<39
	if several && slices.ContainsFunc(d.Slots, func(s planfile.Slot) bool { return s.Stream == 1 }) {
		d.Streams = []uint64{0, 7}
	}
	return d
}

// lowest is the first offset from `from` on at which a slot overlaps none of these slots,
// which start before it, while they live.
func lowest(slots []planfile.Slot, s *planfile.Slot, from uint64) uint64 {
	at := from
	for i := 0; i < len(slots); i++ {
		if o := &slots[i]; o.RequestedEnd > s.Start && o.Offset < at+s.Size && at < o.Offset+o.Size {
			at, i = o.Offset+o.Size, -1
		}
	}
	return at
}

// jobRequest is one request of a run, and how long its block lives.
type jobRequest struct {
	slot         int // that it comes from, -1 if it was added
	size, stream uint64
	lives        int // requests until it is freed
}

// randomRun is a run of the job, of n requests: passes like the recorded ones, whose sizes
// follow any length, with disturbances.
func randomRun(d *planfile.Device, n int, rng *rand.Rand) []jobRequest {
	var run []jobRequest
	noise := []float64{0, 0.002, 0.02, 0.1}[rng.IntN(4)]
	late := []float64{0, 0, 0.1}[rng.IntN(3)]
	phase, pass := 0, rng.IntN(len(d.Passes))
	for len(run) < n {
		p := &d.Phases[phase]
		length := rng.Float64()*1.4 - 0.1
		for k := range p.SlotCount {
			s := &d.Slots[p.FirstSlot+k]
			if phase > 0 && d.Passes[pass].Phase == uint32(phase) && d.Passes[pass].Present[k/64]>>(k%64)&1 == 0 {
				continue
			}
			r := jobRequest{int(p.FirstSlot + k), uint64(max(1, float64(s.Least)+length*float64(s.Requested-s.Least))), 100 + d.Streams[s.Stream], int(s.RequestedEnd - k)}
			if rng.Float64() < late {
				r.lives += rng.IntN(4)
			}
			if rng.Float64() >= noise {
				run = append(run, r)
				continue
			}
			switch rng.IntN(4) {
			case 0: // left out
			case 1:
				run = append(run, r, jobRequest{-1, 512 * uint64(1+rng.IntN(40)), r.stream, 1 + rng.IntN(50)})
			case 2:
				run = append(run, r, jobRequest{-1, r.size, r.stream, r.lives})
			case 3:
				if len(run) > 0 {
					run = append(run[:len(run)-1], r, run[len(run)-1])
				}
			}
		}
		pass = (pass + 1) % len(d.Passes)
		if phase = int(d.Passes[pass].Phase); rng.IntN(8) == 0 {
			phase = rng.IntN(len(d.Phases)) // 0: the job begins anew
		}
	}
	return run[:n]
}

// TestMatcherModel compares each answer of the runtime with the model's.
func TestMatcherModel(t *testing.T) {
	var planned, off, displaced, missed int
	for seed := range uint64(700) {
		rng := rand.New(rand.NewPCG(seed, 0))
		plan := randomJob(rng)
		run := randomRun(&plan, 1500, rng)
		p, o, d, m := compareWithModel(t, seed, plan, run)
		planned, off, displaced, missed = planned+p, off+o, displaced+d, missed+m
	}
	t.Logf("%d requests at their places, %d off plan; of those whose place was taken, %d in other memory of the plan and %d not", planned, off, displaced, missed)
	if off < planned/100 || planned < off || displaced < missed || missed == 0 {
		t.Errorf("%d requests at their places, %d off plan, %d and %d whose place was taken are no test of all", planned, off, displaced, missed)
	}
}

// compareWithModel serves a run. A request whose place is taken may get other memory of
// the plan that no step needs meanwhile.
func compareWithModel(t *testing.T, seed uint64, plan planfile.Device, run []jobRequest) (planned, off, displaced, taken int) {
	t.Helper()
	type block struct {
		address, size, stream uint64
		step, until           int
	}
	d, m := open(t, plan, Options{}), newMatchModel(&plan)
	// With that much allocated all the time, the plan is worth any memory.
	m.request(plan.PeakAllocated, run[0].stream)
	if _, _, err := d.Malloc(plan.PeakAllocated, run[0].stream); err != nil {
		t.Fatal(err)
	}
	var live []block
	base := uint64(0) // of the plan: it has memory from the first place on that it serves
	for i, r := range run {
		live = slices.DeleteFunc(live, func(b block) bool {
			if b.until > i {
				return false
			}
			if b.step >= 0 {
				m.free(b.step)
			}
			if err := d.Free(b.address, b.stream); err != nil {
				t.Fatal(err)
			}
			return true
		})
		step, unsure := m.request(r.size, r.stream)
		address, source, err := d.Malloc(r.size, r.stream)
		if err != nil {
			t.Fatal(err)
		}
		b := block{address, up(r.size), r.stream, nowhere, i + r.lives}
		place := int64(-1)
		if step != nowhere && !unsure && up(r.size) <= up(m.steps[step].most) {
			place = m.steps[step].offset
		}
		if base == 0 && source == FromPlan {
			base = address - uint64(place)
		}
		at := base + uint64(place)
		switch {
		case d.Counters().State == Off: // on trial: what is allocated all the time is not in the plan
			if source == FromPlan {
				t.Fatalf("seed %d: request %d of %d B is served at %d by a plan that is off", seed, i, r.size, address-base)
			}
		case place < 0:
			off++
			if source == FromPlan {
				t.Fatalf("seed %d: request %d of %d B is served at %d, expected off plan (step %d)", seed, i, r.size, address-base, step)
			}
		case slices.ContainsFunc(live, func(o block) bool { return o.address < at+b.size && at < o.address+o.size }):
			if source != FromPlan {
				taken++
				break
			}
			displaced++
			if k := m.inTheWay(step, int64(address-base), int64(b.size)); k != nowhere {
				t.Fatalf("seed %d: request %d of %d B, in place of step %d, is served at %d, which step %d needs", seed, i, r.size, step, address-base, k)
			}
		default:
			planned++
			if source != FromPlan || address != at {
				t.Fatalf("seed %d: request %d of %d B is served at %d (source %d), expected step %d at %d", seed, i, r.size, address-base, source, step, place)
			}
			b.step = step
			m.placed(step)
		}
		live = append(live, b)
	}
	return planned, off, displaced, taken
}

// TestTakenPlace keeps a block of one pass, so that its place is taken in the next one.
// The step then gets memory of the plan that no step needs while it lives, if there is
// any, and in a later pass its own place again.
func TestTakenPlace(t *testing.T) {
	type slot struct{ size, offset, end uint64 } // MiB, but the end
	cases := []struct {
		name  string
		body  []slot
		kept  int   // this one's block is
		other int64 // where it is served in the next pass, MiB; -1 off plan
	}{
		{"one that is gone has room", []slot{{5, 7, 1}, {4, 12, 3}, {3, 16, 3}}, 1, 7},
		{"beside what a later one needs", []slot{{5, 7, 1}, {4, 12, 4}, {1, 7, 3}, {1, 16, 4}}, 1, 8},
		{"between what later ones need", []slot{{6, 7, 1}, {4, 13, 4}, {1, 12, 3}, {1, 7, 4}}, 1, 8},
		{"only smaller ones", []slot{{3, 7, 1}, {4, 10, 3}, {3, 14, 3}}, 1, -1},
		{"a later one needs it all", []slot{{5, 7, 1}, {4, 12, 3}, {5, 7, 3}}, 1, -1},
		{"a later one needs the middle", []slot{{5, 7, 1}, {4, 12, 3}, {3, 8, 3}}, 1, -1},
		{"after it has gone another one needs it", []slot{{5, 7, 1}, {4, 12, 2}, {5, 7, 3}}, 1, 7},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sizes := make([]uint64, len(c.body))
			for i, s := range c.body {
				sizes[i] = s.size << 20
			}
			plan := periodic([]uint64{7 << 20}, [][]uint64{sizes}, []uint32{1})
			plan.ArenaBytes = 0
			for i, s := range c.body {
				p := &plan.Slots[1+i]
				p.Offset, p.RequestedEnd, p.CompletedEnd = s.offset<<20, s.end, s.end
				plan.ArenaBytes = max(plan.ArenaBytes, p.Offset+p.Size)
			}
			plan.Certificate.Gap = plan.ArenaBytes
			d := open(t, plan, Options{})
			keep := func(n uint64) uint64 {
				address, _, err := d.Malloc(n, 0)
				if err != nil {
					t.Fatal(err)
				}
				return address
			}
			keep(7 << 20)
			first := serve(t, d, sizes[:c.kept])
			kept := keep(sizes[c.kept])
			first = append(first, int64(kept-Base))
			first = append(first, serve(t, d, sizes[c.kept+1:])...)

			second := serve(t, d, sizes)
			want := slices.Clone(first)
			if want[c.kept] = c.other; c.other >= 0 {
				want[c.kept] <<= 20
			}
			if !slices.Equal(second, want) {
				t.Errorf("with a place taken, served at %d, expected %d", second, want)
			}
			displaced := uint64(0)
			if c.other >= 0 {
				displaced = 1
			}
			if c := d.Counters(); c.Clashes != 1 || c.DisplacedAllocations != displaced || c.PlannedAllocations != c.Allocations-1+displaced {
				t.Errorf("%d clashes, %d displaced, %d of %d on plan", c.Clashes, c.DisplacedAllocations, c.PlannedAllocations, c.Allocations)
			}
			if err := d.Free(kept, 0); err != nil {
				t.Fatal(err)
			}
			if third := serve(t, d, sizes); !slices.Equal(third, first) {
				t.Errorf("with its place free again, served at %d, expected %d", third, first)
			}
		})
	}
}

// TestStepsLeftOutBeforeASeam leaves out what clipping allocates: a tensor for each
// gradient, unless their norm is small enough. The optimizer's tensors have the same sizes
// and follow, so they are taken for those of clipping, and the next pass begins before the
// pointer is at its end. Scalars like its first ones were requested shortly before.
func TestStepsLeftOutBeforeASeam(t *testing.T) {
	scalars := slices.Repeat([]uint64{4}, 8)
	gradients := distinct(25, rand.New(rand.NewPCG(1, 0)))
	clipped := slices.Concat(scalars[:3], []uint64{1, 4}, distinct(400, rand.New(rand.NewPCG(2, 0))), scalars, gradients, gradients)
	n := len(clipped) - len(gradients)
	small := slices.Concat(clipped[:n-len(gradients)], gradients)
	d := open(t, periodic([]uint64{7 << 20}, [][]uint64{clipped}, []uint32{1}), Options{})
	if _, _, err := d.Malloc(7<<20, 0); err != nil {
		t.Fatal(err)
	}
	first := hold(t, d, clipped)
	serve(t, d, small)
	for pass := range 3 {
		got := serve(t, d, small)
		lost := 0
		for i := range got[:n-len(gradients)] {
			if got[i] != first[i] {
				lost++
			}
		}
		if lost > 5 {
			t.Errorf("pass %d: %d of %d requests are not at their places, expected some scalars at its beginning", pass, lost, n)
		}
	}
}

// TestDeclinedPlan opens a plan whose advice is that it does not pay: it is not served.
func TestDeclinedPlan(t *testing.T) {
	plan := recorded([]uint64{1 << 30, 2 << 20})
	plan.Advice = planfile.AdvicePool
	d := open(t, plan, Options{})
	if _, source, err := d.Malloc(2<<20, 0); err != nil || source == FromPlan {
		t.Errorf("source %d, %v", source, err)
	}
	if c := d.Counters(); c.State != Declined || c.PeakReserved != 2<<20 {
		t.Errorf("state %d, %d B reserved", c.State, c.PeakReserved)
	}
}

// withEvaluation is the plan of a job whose steps go with an evaluation and without in turn. Both
// begin alike for 18 requests, as a forward pass does with and without a backward pass behind it.
func withEvaluation() (plan planfile.Device, step, evaluation []uint64) {
	for i := range uint64(200) {
		step = append(step, (i+1)*4096)
	}
	evaluation = slices.Clone(step[:18])
	for i := range uint64(100) {
		evaluation = append(evaluation, (i+1)*4096+512)
	}
	return brief(periodic([]uint64{64 * mib}, [][]uint64{step, slices.Concat(step, evaluation)}, []uint32{1, 2, 1, 2})), step, evaluation
}

// varying is the plan of a job whose bodies were recorded with sizes from `least` to `most`.
func varying(least, most [][]uint64, passes []uint32) planfile.Device {
	plan := brief(periodic([]uint64{64 * mib}, most, passes))
	for b, sizes := range least {
		first := plan.Phases[b+1].FirstSlot
		for i, size := range sizes {
			plan.Slots[first+uint64(i)].Least = size
		}
	}
	return plan
}

// TestEvaluationsOfAnyLength: likewise, if every third size follows the length of a batch. The few steps with an
// evaluation that were recorded had other lengths than those without. Where another length begins one request is held off plan.
func TestEvaluationsOfAnyLength(t *testing.T) {
	_, step, evaluation := withEvaluation()
	at := func(sizes []uint64, length uint64) []uint64 {
		sizes = slices.Clone(sizes)
		for i := 0; i < len(sizes); i += 3 {
			sizes[i] = length << 16
		}
		return sizes
	}
	both := func(length uint64) []uint64 { return slices.Concat(at(step, length), at(evaluation, length)) }
	plan := varying([][]uint64{at(step, 40), both(60)}, [][]uint64{at(step, 100), both(90)}, []uint32{1, 2, 1, 2})
	d, rng := open(t, plan, Options{}), rand.New(rand.NewPCG(1, 0))
	if _, _, err := d.Malloc(64*mib, 0); err != nil {
		t.Fatal(err)
	}
	lengths := uint64(0)
	for range 40 {
		serve(t, d, at(step, 60+rng.Uint64N(31)))
		lengths++
		if rng.IntN(2) == 0 {
			serve(t, d, at(evaluation, 60+rng.Uint64N(31)))
			lengths++
		}
	}
	if c := d.Counters(); c.PlannedAllocations+lengths < c.Allocations || c.DriftEvents > lengths {
		t.Errorf("%d of %d requests of %d lengths are on plan, and the sequence was left %d times", c.PlannedAllocations, c.Allocations, lengths, c.DriftEvents)
	}
}

// stepOf is the requests of a step nearly all of whose sizes follow the length of a batch.
func stepOf(length uint64) (sizes []uint64) {
	for i := range uint64(400) {
		size := (1 + i%7) * length << 12
		if i%20 == 19 {
			size = (i + 1) << 9
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// TestEvaluationsLikeSteps: an evaluation does what a step's forward pass does, but for one request. Nearly all sizes follow the
// length of a batch. What tells it from a step is that a step with an evaluation begins with one without, whatever
// lengths the two had in the recording.
func TestEvaluationsLikeSteps(t *testing.T) {
	evaluation := func(length uint64) []uint64 { return slices.Delete(stepOf(length), 45, 46)[:300] }
	least := [][]uint64{stepOf(40), slices.Concat(stepOf(60), evaluation(50))}
	plan := varying(least, [][]uint64{stepOf(100), slices.Concat(stepOf(90), evaluation(95))}, []uint32{1, 2, 1, 2})
	d, rng := open(t, plan, Options{}), rand.New(rand.NewPCG(1, 0))
	if _, _, err := d.Malloc(64*mib, 0); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		serve(t, d, stepOf(60+rng.Uint64N(31)))
		if i%4 == 3 {
			serve(t, d, evaluation(50+rng.Uint64N(46)))
		}
	}
	if c := d.Counters(); c.PlannedAllocations < c.Allocations/100*99 {
		t.Errorf("%d of %d requests are on plan, and the sequence was left %d times", c.PlannedAllocations, c.Allocations, c.DriftEvents)
	}
}

// TestEvaluationsInAnotherOrder: a run may evaluate after any step, though the plan's body of a
// step with an evaluation begins with all of the one without.
func TestEvaluationsInAnotherOrder(t *testing.T) {
	plan, step, evaluation := withEvaluation()
	d, rng := open(t, plan, Options{}), rand.New(rand.NewPCG(1, 0))
	serve := func(sizes []uint64) {
		for _, size := range sizes {
			address, _, err := d.Malloc(size, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Free(address, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, err := d.Malloc(64*mib, 0); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		serve(step)
		if rng.IntN(2) == 0 {
			serve(evaluation)
		}
	}
	if c := d.Counters(); c.PlannedAllocations < c.Allocations/1000*999 || c.DriftEvents > 0 {
		t.Errorf("%d of %d requests are on plan, and the sequence was left %d times", c.PlannedAllocations, c.Allocations, c.DriftEvents)
	}
}

// TestEvaluationsBehindShorterSteps: the steps without an evaluation were all recorded with one length, and the one with an evaluation
// with another. So no size varies within a body. A step of the other length need not have an evaluation behind it, and one of
// the first length may.
func TestEvaluationsBehindShorterSteps(t *testing.T) {
	evaluation := slices.Delete(stepOf(90), 45, 46)[:300]
	plan := brief(periodic([]uint64{64 * mib}, [][]uint64{stepOf(100), slices.Concat(stepOf(90), evaluation)}, []uint32{1, 1, 1, 2}))
	d, rng := open(t, plan, Options{}), rand.New(rand.NewPCG(1, 0))
	if _, _, err := d.Malloc(64*mib, 0); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		serve(t, d, stepOf(90+10*rng.Uint64N(2)))
		if rng.IntN(3) == 0 {
			serve(t, d, evaluation)
		}
	}
	if c := d.Counters(); c.PlannedAllocations < c.Allocations/1000*999 {
		t.Errorf("%d of %d requests are on plan, and the sequence was left %d times", c.PlannedAllocations, c.Allocations, c.DriftEvents)
	}
}

// TestALengthOfItsOwn: most of a pass alternates between two lengths, and a part of it follows a third one, which is half of any
// that was recorded. So one of its requests has the size that was recorded for the next step. The requests before it say
// which of the two it is: they are of one length, though most before these were not.
func TestALengthOfItsOwn(t *testing.T) {
	pass := func(a, b, c uint64) (sizes []uint64) {
		for i := range uint64(40) {
			sizes = append(sizes, (1+i%5)*a<<9, (2+i%3)*b<<9)
		}
		for i := range uint64(14) {
			sizes = append(sizes, (20+i)*c<<9)
		}
		for range 6 {
			sizes = append(sizes, 16*c<<9, 8*c<<9, 8*c<<9, 8*c<<9)
		}
		return append(sizes, 4096, 512, 8192)
	}
	rng := rand.New(rand.NewPCG(1, 0))
	plan := varying([][]uint64{pass(40, 30, 80)}, [][]uint64{pass(100, 90, 100)}, []uint32{1, 1})
	d := open(t, plan, Options{Capacity: 1 << 40, Granularity: 2 << 20})
	if _, _, err := d.Malloc(64*mib, 0); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		serve(t, d, pass(40+rng.Uint64N(61), 30+rng.Uint64N(61), 42+rng.Uint64N(7)))
	}
	if c := d.Counters(); c.PlannedAllocations < c.Allocations || c.DriftEvents > 0 {
		t.Errorf("%d of %d requests are on plan, and the sequence was left %d times", c.PlannedAllocations, c.Allocations, c.DriftEvents)
	}
}

// TestRoundedSizes: all sizes follow one length, but every thirtieth is rounded up, by as much as an eightieth of how far the
// recorded ones are apart. None is held off plan for that.
func TestRoundedSizes(t *testing.T) {
	const unit = 4096
	pass := func(length uint64) (sizes []uint64) {
		for i := range uint64(150) {
			size := (1 + i%3) * length * 512
			if i%30 == 29 {
				size = (length*2048 + unit - 1) / unit * unit
			}
			sizes = append(sizes, size)
		}
		return sizes
	}
	d, rng := open(t, varying([][]uint64{pass(30)}, [][]uint64{pass(110)}, []uint32{1, 1}), Options{}), rand.New(rand.NewPCG(1, 0))
	if _, _, err := d.Malloc(64*mib, 0); err != nil {
		t.Fatal(err)
	}
	const passes = 40
	for range passes {
		serve(t, d, pass(30+rng.Uint64N(81)))
	}
	// The first request of another length may be held.
	if c := d.Counters(); c.PlannedAllocations+passes < c.Allocations || c.DriftEvents > passes {
		t.Errorf("%d of %d requests are on plan, and the sequence was left %d times", c.PlannedAllocations, c.Allocations, c.DriftEvents)
	}
}
