package lifespan

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

var bothEnds = []End{EndRequested, EndCompleted}

// steadyJobs are jobs with a steady state. exact says that the envelope costs nothing,
// optional is the number of slots that not every pass has.
var steadyJobs = []struct {
	job
	exact         bool
	bodies        int
	optional      int
	cells, strays bool
}{
	{job: job{name: "dense", layers: 12, micro: 1, steps: 4}, exact: true, bodies: 1},
	{job: job{name: "accumulation", layers: 8, micro: 4, steps: 5}, exact: true, bodies: 1},
	{job: job{name: "recorded later", layers: 6, micro: 2, steps: 7, recordedFromStep: 2}, exact: true, bodies: 1},
	{job: job{name: "extra tensor", layers: 8, micro: 2, steps: 6, extraIn: 4}, exact: true, bodies: 1, optional: 1},
	{job: job{name: "variable length", layers: 12, micro: 1, steps: 6, variableSizes: true}, exact: true, bodies: 1},
	{job: job{name: "lengths that recur", layers: 6, micro: 40, steps: 5, variableSizes: true}, exact: true, bodies: 1},
	{job: job{name: "little jitter", layers: 8, micro: 6, steps: 6, jitter: 3}, bodies: 1},
	{job: job{name: "much jitter", layers: 8, micro: 6, steps: 6, jitter: 30}, bodies: 1},
	{job: job{name: "jitter and an extra tensor", layers: 8, micro: 6, steps: 6, jitter: 30, extraIn: 4}, bodies: 1, optional: 1},
	{job: job{name: "experts", layers: 16, micro: 2, steps: 5, skips: 20}, bodies: 1, optional: many},
	{job: job{name: "evaluation every second step", layers: 8, micro: 4, steps: 7, evaluateEvery: 2, evaluations: 3}, exact: true, bodies: 2},
	{job: job{name: "losses kept for ever", layers: 8, micro: 2, steps: 5, keepLosses: true}, exact: true, bodies: 1, strays: true},
	{job: job{name: "prefetched inputs", layers: 8, micro: 2, steps: 5, prefetched: 1}, exact: true, bodies: 1, cells: true},
	{job: job{name: "inputs two steps ahead", layers: 8, micro: 2, steps: 6, prefetched: 2}, exact: true, bodies: 1, strays: true},
	{job: job{name: "double buffers", layers: 8, micro: 2, steps: 5, prefetched: 1, doubleBuffers: true}, exact: true, bodies: 1, strays: true},
	{job: job{name: "large double buffers", layers: 8, micro: 2, steps: 9, prefetched: 1, inputSize: 64 << 20, doubleBuffers: true}, exact: true, bodies: 1, cells: true},
	{job: job{name: "large inputs two steps ahead", layers: 8, micro: 2, steps: 10, prefetched: 2, inputSize: 64 << 20}, exact: true, bodies: 1, cells: true},
	{job: job{name: "copy stream", layers: 8, micro: 2, steps: 5, prefetched: 1, copyStream: true}, exact: true, bodies: 1, cells: true},
	{job: job{name: "late frees", layers: 8, micro: 2, steps: 5, late: 6}, exact: true, bodies: 1},
	{job: job{name: "late frees and prefetching", layers: 8, micro: 2, steps: 5, late: 20, prefetched: 1, copyStream: true}, exact: true, bodies: 1, cells: true},
}

// many stands for any number of optional slots.
const many = -1

// TestPeriodicJobs finds the steady state of made-up jobs and checks everything that a
// plan relies on.
func TestPeriodicJobs(t *testing.T) {
	for _, j := range steadyJobs {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", j.name, seed), func(t *testing.T) {
				d := j.record(seed).d
				tl := build(t, d)
				for _, end := range bothEnds {
					p, why := FindPeriodic(tl, find(t, d, tl), end)
					if p == nil {
						t.Fatalf("end %d: %s", end, why)
					}
					checkPeriodic(t, tl, p, end)
					if len(p.Bodies) != j.bodies {
						t.Errorf("%d bodies, expected %d", len(p.Bodies), j.bodies)
					}
					if got := optional(p.Bodies...); got != j.optional && j.optional != many {
						t.Errorf("%d optional slots, expected %d", got, j.optional)
					}
					if end == EndCompleted {
						continue
					}
					if (p.StrayBytes > 0) != j.strays || (len(p.Cells) > 0) != j.cells {
						t.Errorf("%d stray bytes, %d cells", p.StrayBytes, len(p.Cells))
					}
					if got, want := largest(p.Envelope(tl, end)), p.PeakRecorded(tl, end).Bytes; got < want || j.exact && got > want {
						t.Errorf("envelope %d, recorded %d", got, want)
					}
				}
			})
		}
	}
}

// steady is the steady state of the job, which is checked.
func (j job) steady(t *testing.T, seed uint64) (*Timeline, *Periodic) {
	t.Helper()
	d := j.record(seed).d
	tl := build(t, d)
	p, why := FindPeriodic(tl, find(t, d, tl), EndRequested)
	if p == nil {
		t.Fatalf("seed %d: %s", seed, why)
	}
	checkPeriodic(t, tl, p, EndRequested)
	return tl, p
}

func optional(bodies ...Body) int {
	n := 0
	for _, b := range bodies {
		for _, s := range b.Slots {
			if s.Occurrences < b.Occurrences {
				n++
			}
		}
	}
	return n
}

func largest(peaks []PhasePeak) trace.Bytes {
	return slices.MaxFunc(peaks, func(x, y PhasePeak) int { return int(x.Bytes - y.Bytes) }).Bytes
}

// TestEvaluationAmongSteps: with recomputation the forward pass of a step is that of an evaluation, but for
// what it keeps. Steps behind an evaluation are still the same as those before it, so none has slots of
// its own. Two evaluations may differ in a layer, which is less than 2 % of one.
func TestEvaluationAmongSteps(t *testing.T) {
	for _, j := range []job{
		{layers: 20, micro: 2, steps: 24, recompute: true, variableSizes: true, evaluateEvery: 10, evaluations: 4},
		{layers: 20, micro: 1, steps: 12, recompute: true, variableSizes: true, evaluateEvery: 4, evaluations: 2},
		{layers: 8, micro: 4, steps: 16, recompute: true, variableSizes: true, evaluateEvery: 5, evaluations: 12},
	} {
		for seed := range uint64(10) {
			_, p := j.steady(t, seed)
			for i, body := range p.Bodies {
				if longest := longestPass(p, i); body.Length > longest+longest/50 || i == 0 && body.Length > longest {
					t.Errorf("%d layers, seed %d: body %d has %d slots, its longest pass %d", j.layers, seed, i, body.Length, longest)
				}
			}
		}
	}
}

// TestVarietyBehindEvaluation: long inputs make more tensors. Steps of such inputs come behind evaluations too, and are
// not matched with parts of these, and all evaluations are alike, whatever the lengths of their batches are. So a step and one with an evaluation are the only bodies.
func TestVarietyBehindEvaluation(t *testing.T) {
	j := job{layers: 10, micro: 1, steps: 24, variableSizes: true, paddedFrom: 700, evaluateEvery: 4, evaluations: 4, lean: true}
	mistaken := 0
	for seed := range uint64(20) {
		_, p := j.steady(t, seed)
		if len(p.Bodies) > 2 {
			mistaken++
			continue
		}
		for i, body := range p.Bodies {
			if longest := longestPass(p, i); body.Length > longest+longest/2 || i == 0 && body.Length > longest {
				t.Errorf("seed %d: body %d has %d slots, its longest pass %d", seed, i, body.Length, longest)
			}
		}
	}
	// Two of these have one evaluation whose batches are matched with those beside them.
	if mistaken > 2 {
		t.Errorf("%d of 20 jobs have more than two bodies, expected 2 at most", mistaken)
	}
}

// TestEvaluationInOnePiece: no cut is in the middle of an evaluation, which would make two bodies of it.
func TestEvaluationInOnePiece(t *testing.T) {
	j := job{layers: 10, micro: 1, steps: 16, variableSizes: true, paddedFrom: 700, evaluateEvery: 5, evaluations: 4}
	for seed := range uint64(4) {
		if _, p := j.steady(t, seed); len(p.Bodies) != 2 {
			t.Errorf("seed %d: %d bodies, expected a step, and one with an evaluation", seed, len(p.Bodies))
		}
	}
}

func TestEpisodesLast(t *testing.T) {
	for _, c := range []struct {
		lengths []int32
		want    []int
	}{
		{[]int32{80, 80, 200, 84, 200, 80}, []int{0, 1, 3, 5, 2, 4}},
		{[]int32{200, 80, 90, 91, 72}, []int{1, 4, 0, 2, 3}},
		{[]int32{80, 80}, []int{0, 1}},
		{[]int32{0, 5}, []int{0, 1}},
	} {
		starts := []int32{7}
		for _, n := range c.lengths {
			starts = append(starts, starts[len(starts)-1]+n)
		}
		if got := episodesLast(starts); !slices.Equal(got, c.want) {
			t.Errorf("lengths %d: %d, expected %d", c.lengths, got, c.want)
		}
	}
}

// TestCutAtAnyElement: at every allocation that all iterations have something large is live, and nothing is at one whose stream
// alternates. The passes begin there.
func TestCutAtAnyElement(t *testing.T) {
	d := &trace.Device{}
	next := uint64(1 << 32)
	alloc := func(stream uint64) (addr uint64) {
		next += 1 << 32
		d.Events = append(d.Events, trace.Event{Action: trace.ActionAlloc, Addr: next, Size: 64 << 20, Stream: stream})
		return next
	}
	free := func(addr uint64) {
		d.Events = append(d.Events, trace.Event{Action: trace.ActionFreeCompleted, Addr: addr})
	}
	var begins []trace.Time
	for i := range uint64(8) {
		begins = append(begins, trace.Time(len(d.Events)))
		last := alloc(1 + i%2)
		for k := range 20 {
			if k == 10 {
				at := trace.Time(len(d.Events))
				d.Annotations = append(d.Annotations, trace.Annotation{Name: "Optimizer.step#SGD.step", At: at}, trace.Annotation{Name: "Optimizer.step#SGD.step", At: at, End: true})
			}
			b := alloc(0)
			free(last)
			last = b
		}
		free(last)
	}
	tl := build(t, d)
	p, why := FindPeriodic(tl, find(t, d, tl), EndRequested)
	if p == nil {
		t.Fatal(why)
	}
	checkPeriodic(t, tl, p, EndRequested)
	if len(p.Cells) > 0 || p.StrayBytes > 0 {
		t.Errorf("%d cells and %d bytes of strays, expected none", len(p.Cells), p.StrayBytes)
	}
	for i := range p.Passes {
		if !slices.Contains(begins, p.Passes[i].First) {
			t.Errorf("pass %d begins with event %d, expected one of %d", i, p.Passes[i].First, begins)
		}
	}
}

// TestCost: what costs less has fewer bytes, or hardly more for fewer slots, and an optional slot counts for several.
func TestCost(t *testing.T) {
	all := cost{bytes: 100_000, slots: 2000, optional: 100}
	for _, c := range []struct {
		cost
		want bool
	}{
		{all, false},
		{cost{99_999, 2000, 100}, true},
		{cost{100_000, 1999, 100}, true},
		{cost{100_000, 2000, 99}, true},
		{cost{100_190, 1880, 100}, true},
		{cost{100_230, 1880, 100}, false},
		{cost{102_700, 1000, 50}, true},
		{cost{102_900, 1000, 50}, false},
		{cost{99_000, 4000, 100}, false},
		{cost{100_000, 1000, 400}, false},
	} {
		if got := c.less(all); got != c.want {
			t.Errorf("%+v is less than %+v: %v, expected %v", c.cost, all, got, c.want)
		}
	}
}

// TestEvaluationFarFromThePeak: what an evaluation keeps for two layers is as large as an activation of a step, and no part of
// the peak. Were it taken for one, the step behind the evaluation would have activations of its own in the envelope, which
// would take up to 1.1 times what is recorded.
func TestEvaluationFarFromThePeak(t *testing.T) {
	for _, j := range []job{
		{layers: 8, evaluateEvery: 4, evaluations: 4},
		{layers: 20, evaluateEvery: 4, evaluations: 1},
		{layers: 20, evaluateEvery: 8, evaluations: 12},
	} {
		j.micro, j.steps, j.variableSizes, j.lean, j.evaluated = 1, 12, true, true, 500
		for seed := range uint64(6) {
			tl, p := j.steady(t, seed)
			if got, want := largest(p.Envelope(tl, EndRequested)), p.PeakRecorded(tl, EndRequested).Bytes; got > want+want/100 {
				t.Errorf("%d layers, seed %d: envelope %d, recorded %d", j.layers, seed, got, want)
			}
		}
	}
}

// TestCutKeepsPasses makes inputs one step ahead, so that only in the middle of an iteration
// nothing crosses. For a small input the third pass is not given up, but one of more is.
func TestCutKeepsPasses(t *testing.T) {
	for _, c := range []struct {
		steps, passes int
		input         trace.Bytes
	}{{4, 3, 4 << 10}, {4, 2, 64 << 20}, {5, 3, 4 << 10}, {3, 2, 64 << 20}} {
		d := job{layers: 8, micro: 2, steps: c.steps, keepGradients: true, prefetched: 1, inputSize: c.input}.record(0).d
		tl := build(t, d)
		p, why := FindPeriodic(tl, find(t, d, tl), EndRequested)
		if p == nil {
			t.Fatal(why)
		}
		if len(p.Passes) != c.passes {
			t.Errorf("%d steps, inputs of %d bytes: %d passes, expected %d", c.steps, c.input, len(p.Passes), c.passes)
		}
	}
}

// TestPeriodicTooFew wants a reason.
func TestPeriodicTooFew(t *testing.T) {
	d := job{layers: 8, micro: 1, steps: 2}.record(0).d
	tl := build(t, d)
	const want = "0 steady iterations of 2, expected at least 2"
	if p, why := FindPeriodic(tl, find(t, d, tl), EndRequested); p != nil || why != want {
		t.Errorf("%v, %q, expected %q", p, why, want)
	}
}

// TestPeriodicFuzz repeats random iterations with random changes: skips, additions, other
// sizes, buffers that cross the seam and late frees.
func TestPeriodicFuzz(t *testing.T) {
	found := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		d, starts := randomIterations(r)
		tl := build(t, d)
		steady := len(starts) - 2
		it := Iterations{Starts: starts, Count: len(starts) - 1, SteadyStart: starts[1], SteadyCount: steady}
		for _, end := range bothEnds {
			p, why := FindPeriodic(tl, it, end)
			if p == nil {
				if why == "" {
					t.Errorf("seed %d: no reason", seed)
				}
				continue
			}
			found++
			checkPeriodic(t, tl, p, end)
			if t.Failed() {
				t.Fatalf("seed %d, end %d", seed, end)
			}
		}
	}
	if found < 300 {
		t.Errorf("%d of 400 have a steady state", found)
	}
}

// randomIterations repeats one random sequence with changes. The times are the starts of
// the iterations, and the first one is the building of the model.
func randomIterations(r *rand.Rand) (*trace.Device, []trace.Time) {
	type step struct {
		size  trace.Bytes
		life  int
		block bool
	}
	x := &run{d: &trace.Device{}, job: job{late: r.IntN(4) * r.IntN(10)}}
	var steps []step
	for range 30 + r.IntN(300) {
		steps = append(steps, step{size: trace.Bytes(1 + r.IntN(1<<(4+r.IntN(16)))), life: r.IntN(1 << r.IntN(9))})
	}
	for i, n := r.IntN(len(steps)), r.IntN(len(steps)); i < len(steps) && n > 0; i, n = i+1, n-1 {
		steps[i].block = true
	}
	noise, alternate, vary := r.IntN(2)*(20+r.IntN(100)), r.IntN(2) == 0, r.IntN(3) == 0
	due := map[int][]uint64{}
	now := 0
	starts := []trace.Time{0}
	for k := range 4 + r.IntN(5) {
		for _, s := range steps {
			if alternate && s.block && k%2 == 0 || noise > 0 && r.IntN(noise) == 0 {
				continue
			}
			for range 1 + r.IntN(max(1, noise))/max(1, noise-1) {
				if vary {
					s.size = trace.Bytes(1 + r.IntN(int(s.size)))
				}
				x.stream = uint64(s.size % 3 / 2)
				a := x.alloc(s.size)
				if s.life < 250 {
					due[now+s.life] = append(due[now+s.life], a)
				}
				x.release(due[now]...)
				now++
			}
		}
		starts = append(starts, trace.Time(len(x.d.Events)))
	}
	if r.IntN(2) == 0 { // a piece that belongs to no iteration
		x.temporaries(5, 1<<12)
	}
	return x.d, starts
}

// TestPeriodicShift adds events other than allocations. Only the times of passes may
// change.
func TestPeriodicShift(t *testing.T) {
	for _, j := range steadyJobs {
		x := j.record(1)
		tl := build(t, x.d)
		it := find(t, x.d, tl)
		shifted := &trace.Device{Initial: x.d.Initial}
		moved := make([]trace.Time, 0, len(x.d.Events)+1)
		r := rand.New(rand.NewPCG(4, 4))
		for i, e := range x.d.Events {
			// Nothing comes before the first event: a recording that begins with a
			// pass has that pass as its prologue.
			for range min(i, 1+r.IntN(3)) {
				shifted.Events = append(shifted.Events, trace.Event{Action: trace.ActionOther})
			}
			moved = append(moved, trace.Time(len(shifted.Events)))
			shifted.Events = append(shifted.Events, e)
		}
		moved = append(moved, trace.Time(len(shifted.Events)))
		later := it
		later.Starts = nil
		for _, s := range it.Starts {
			later.Starts = append(later.Starts, moved[s])
		}
		before, _ := FindPeriodic(tl, it, EndRequested)
		after, _ := FindPeriodic(build(t, shifted), later, EndRequested)
		if !reflect.DeepEqual(before.Bodies, after.Bodies) || !reflect.DeepEqual(before.Cells, after.Cells) || before.StrayBytes != after.StrayBytes {
			t.Errorf("%s: other bodies after a shift", j.name)
		}
		for i := range before.Passes {
			if got, want := after.Passes[i].First, moved[before.Passes[i].First]; got != want {
				t.Errorf("%s: pass %d begins at %d, expected %d", j.name, i, got, want)
			}
		}
	}
}

// judge checks a Periodic against the recording by definition. It shares no code with
// what made it.
type judge struct {
	t   *testing.T
	tl  *Timeline
	p   *Periodic
	end End
	// ranges[j] are the buffers of pass j, and slots the slot of each.
	ranges [][2]int
	slots  [][]int
}

func checkPeriodic(t *testing.T, tl *Timeline, p *Periodic, end End) {
	t.Helper()
	g := &judge{t: t, tl: tl, p: p, end: end}
	g.locate()
	if t.Failed() {
		return
	}
	g.checkEnvelopes()
	g.checkLives()
	g.checkCells()
	g.checkPrologue()
	if len(tl.Buffers) < 3000 {
		g.checkLoad()
	}
}

// until is the time at which pass j ends. Pass -1 is the prologue.
func (g *judge) until(j int) trace.Time {
	if j+1 < len(g.p.Passes) {
		return g.p.Passes[j+1].First
	}
	return g.p.End
}

// steps is the number of passes without an interlude, which only the last may be.
func (g *judge) steps() int {
	n := len(g.p.Passes)
	if g.p.Bodies[g.p.Passes[n-1].Body].Interlude {
		n--
	}
	return n
}

// locate finds the buffers of each pass and reads their slots off the bits.
func (g *judge) locate() {
	if len(g.p.Passes) < 2 || g.p.Passes[0].First != g.p.Cut {
		g.t.Errorf("cut at %d, %d passes", g.p.Cut, len(g.p.Passes))
		return
	}
	at := len(g.p.Prologue)
	for j, pass := range g.p.Passes {
		from := at
		for at < len(g.tl.Buffers) && g.tl.Buffers[at].Start < g.until(j) {
			if g.tl.Buffers[at].Start < pass.First {
				g.t.Errorf("buffer %d begins before pass %d", at, j)
			}
			at++
		}
		var slots []int
		for word, w := range pass.Present {
			for ; w != 0; w &= w - 1 {
				slots = append(slots, word*64+bits.TrailingZeros64(w))
			}
		}
		if len(slots) != at-from {
			g.t.Errorf("pass %d has %d allocations, %d slots", j, at-from, len(slots))
		}
		g.ranges, g.slots = append(g.ranges, [2]int{from, at}), append(g.slots, slots)
	}
}

// passOf is the pass that a time lies in, len(Passes) after the last. The time at which a
// pass begins counts to the pass before, since a buffer that ends then ended before it.
func (g *judge) passOf(t trace.Time) int {
	if t >= g.tl.Events {
		return len(g.p.Passes)
	}
	for j := -1; j < len(g.p.Passes); j++ {
		if t <= g.until(j) {
			return j
		}
	}
	return len(g.p.Passes)
}

// ordinal translates a time within pass j into the body's: one more than the slot of the
// allocation before it.
func (g *judge) ordinal(j int, t trace.Time) int {
	buffers := g.tl.Buffers[g.ranges[j][0]:g.ranges[j][1]]
	before := sort.Search(len(buffers), func(i int) bool { return buffers[i].Start >= t })
	if before == 0 {
		return 0
	}
	return g.slots[j][before-1] + 1
}

// checkEnvelopes recomputes the sizes and occurrences of slots.
func (g *judge) checkEnvelopes() {
	seen := make([][]Slot, len(g.p.Bodies))
	passes := make([]int, len(g.p.Bodies))
	for x, b := range g.p.Bodies {
		seen[x] = make([]Slot, b.Length)
		if len(b.Slots) != b.Length {
			g.t.Errorf("body %d has %d slots, length %d", x, len(b.Slots), b.Length)
		}
	}
	var strays trace.Bytes
	for j, pass := range g.p.Passes {
		passes[pass.Body]++
		var stray trace.Bytes
		for i, slot := range g.slots[j] {
			b, s := &g.tl.Buffers[g.ranges[j][0]+i], &seen[pass.Body][slot]
			if s.Occurrences == 0 || b.Requested < s.Least {
				s.Least = b.Requested
			}
			s.Requested, s.Size = max(s.Requested, b.Requested), max(s.Size, b.Size)
			s.Occurrences++
			if got := g.p.Bodies[pass.Body].Slots[slot]; got.Stream != b.Stream {
				g.t.Errorf("pass %d, slot %d: stream %d, buffer's %d", j, slot, got.Stream, b.Stream)
			} else if got.Stray {
				stray += b.Size
			}
		}
		strays = max(strays, stray)
	}
	if strays != g.p.StrayBytes {
		g.t.Errorf("%d stray bytes, expected %d", g.p.StrayBytes, strays)
	}
	for x, b := range g.p.Bodies {
		if b.Occurrences != passes[x] {
			g.t.Errorf("body %d: %d occurrences, expected %d", x, b.Occurrences, passes[x])
		}
		for i, got := range b.Slots {
			want := seen[x][i]
			if got.Cell >= 0 {
				want.Size = g.p.Cells[got.Cell].Size
			}
			if got.Start != i || got.Size != want.Size || got.Requested != want.Requested || got.Least != want.Least || got.Occurrences != want.Occurrences || got.Occurrences == 0 {
				g.t.Errorf("body %d, slot %d: %+v, expected %+v", x, i, got, want)
			}
		}
	}
}

// checkLives follows every buffer of the passes to its ends.
func (g *judge) checkLives() {
	for j, pass := range g.p.Passes {
		body := &g.p.Bodies[pass.Body]
		for i, slot := range g.slots[j] {
			b, s := &g.tl.Buffers[g.ranges[j][0]+i], &body.Slots[slot]
			crossed := g.passOf(b.Until(g.end)) - j
			if j < g.steps() { // a free in an interlude may as well come after the end
				crossed = min(crossed, g.steps()-j)
			}
			switch {
			case s.Stray && s.Cell < 0:
			case crossed == 1 && s.Cell < 0 && s.Occurrences == 1 && len(g.p.Bodies) == 1:
				g.t.Errorf("pass %d, slot %d: nothing shows that it is freed in time, %+v", j, slot, *s)
			case s.Stray, crossed > 1, crossed == 1 && s.Cell < 0 && j+1 < g.steps():
				g.t.Errorf("pass %d, slot %d: crosses %d seams, %+v", j, slot, crossed, *s)
			case crossed == 1 && j+1 < g.steps():
				g.checkEntering(j+1, s.Cell, b)
			}
			g.inside(j, b, s, fmt.Sprintf("pass %d, slot %d", j, slot))
			if s.Cell >= 0 && s.RequestedEnd != body.Length {
				g.t.Errorf("pass %d, slot %d leaves and ends at %d of %d", j, slot, s.RequestedEnd, body.Length)
			}
		}
	}
}

// inside checks that neither end of a buffer that is live in pass j is after the slot's.
func (g *judge) inside(j int, b *Buffer, s *Slot, what string) {
	length := g.p.Bodies[g.p.Passes[j].Body].Length
	requested, completed := length, length
	if g.passOf(b.RequestedEnd) == j {
		requested = g.ordinal(j, b.RequestedEnd)
	} else if b.RequestedEnd <= g.p.Passes[j].First {
		requested = 0
	}
	if g.passOf(b.CompletedEnd) == j {
		completed = g.ordinal(j, b.CompletedEnd)
	}
	if next := j + 1; next < len(g.p.Passes) && g.p.Passes[next].Body == g.p.Passes[j].Body && g.passOf(b.CompletedEnd) == next {
		completed = length + g.ordinal(next, b.CompletedEnd)
	}
	if requested > s.RequestedEnd || completed > s.CompletedEnd || s.RequestedEnd > length || s.CompletedEnd > 2*length || s.Until(g.end, length) <= s.Start {
		g.t.Errorf("%s: ends %d and %d of %d, in %+v", what, requested, completed, length, *s)
	}
}

// checkEntering wants pass j to have an entering slot for b in a cell.
func (g *judge) checkEntering(j int, cell int32, b *Buffer) {
	for i := range g.p.Bodies[g.p.Passes[j].Body].Entering {
		s := &g.p.Bodies[g.p.Passes[j].Body].Entering[i]
		if s.Cell == cell {
			if b.Size > s.Size || b.Requested > s.Requested || b.Requested < s.Least || b.Stream != s.Stream {
				g.t.Errorf("pass %d, cell %d: %+v in %+v", j, cell, *b, *s)
			}
			g.inside(j, b, s, fmt.Sprintf("pass %d, cell %d", j, cell))
			return
		}
	}
	g.t.Errorf("pass %d does not expect cell %d", j, cell)
}

// checkCells wants each body to have one leaving slot per cell and at most one entering
// slot, which ends before the leaving one starts, all of the cell's size. An interlude
// has none, and occurs only as the last pass.
func (g *judge) checkCells() {
	for x, b := range g.p.Bodies {
		if b.Interlude {
			crosses := func(s Slot) bool { return s.Cell >= 0 || s.Stray }
			if len(b.Entering) > 0 || slices.ContainsFunc(b.Slots, crosses) || b.Occurrences != 1 || g.p.Passes[len(g.p.Passes)-1].Body != x {
				g.t.Errorf("interlude %d: %d enter, %d passes, or slots that cross the seam", x, len(b.Entering), b.Occurrences)
			}
			continue
		}
		leaving, filled := make([]int, len(g.p.Cells)), make([]int, len(g.p.Cells))
		last := int32(-1)
		for _, s := range b.Slots {
			if s.Cell >= 0 {
				leaving[s.Cell]++
				filled[s.Cell] = s.Start
			}
		}
		for cell, n := range leaving {
			if n != 1 {
				g.t.Errorf("body %d has %d slots that leave cell %d", x, n, cell)
			}
		}
		for _, s := range b.Entering {
			if s.Cell <= last || s.Start != 0 || s.Stray || s.Occurrences > b.Occurrences {
				g.t.Errorf("body %d: %+v enters after cell %d", x, s, last)
			}
			if s.Occurrences == 0 && (s.Requested != 0 || s.Least != 0 || s.RequestedEnd != filled[s.Cell] || s.CompletedEnd != filled[s.Cell]) {
				g.t.Errorf("body %d: %+v was never seen to enter, and is not kept until the cell is filled at %d", x, s, filled[s.Cell])
			}
			last = s.Cell
			if s.Until(g.end, b.Length) > filled[s.Cell] {
				g.t.Errorf("body %d: %+v enters and is refilled at %d", x, s, filled[s.Cell])
			}
			if s.Size != g.p.Cells[s.Cell].Size {
				g.t.Errorf("body %d: %+v enters from a cell of %d", x, s, g.p.Cells[s.Cell].Size)
			}
		}
	}
}

// checkLoad compares the envelope's peaks with the sum over all live slots at the start
// of each slot.
func (g *judge) checkLoad() {
	type live struct {
		start, end int
		size       trace.Bytes
	}
	phases := make([][]live, 1+len(g.p.Bodies))
	for i, s := range g.p.Prologue {
		b := &g.tl.Buffers[i]
		l := live{int(b.Start), min(int(b.Until(g.end)), int(g.p.Cut)), b.Size}
		if s.Cell >= 0 {
			l.size = g.p.Cells[s.Cell].Size
		}
		phases[0] = append(phases[0], l)
		for x := range g.p.Bodies {
			if s.Resident {
				phases[1+x] = append(phases[1+x], live{0, g.p.Bodies[x].Length, b.Size})
			}
		}
	}
	for x, b := range g.p.Bodies {
		for _, c := range g.p.Cells {
			if b.Interlude {
				phases[1+x] = append(phases[1+x], live{0, b.Length, c.Size})
			}
		}
		for _, s := range append(slices.Clone(b.Slots), b.Entering...) {
			if !s.Stray {
				phases[1+x] = append(phases[1+x], live{s.Start, s.Until(g.end, b.Length), s.Size})
			}
		}
	}
	for i, peak := range g.p.Envelope(g.tl, g.end) {
		var want PhasePeak
		for _, at := range phases[i] {
			var sum trace.Bytes
			for _, l := range phases[i] {
				if l.start <= at.start && at.start < l.end {
					sum += l.size
				}
			}
			if sum > want.Bytes || sum == want.Bytes && at.start < want.At {
				want = PhasePeak{Bytes: sum, At: at.start}
			}
		}
		if peak != want && len(phases[i]) > 0 {
			g.t.Errorf("phase %d peaks with %+v, expected %+v", i, peak, want)
		}
	}
}

// checkPrologue follows the buffers before the cut.
func (g *judge) checkPrologue() {
	taken := map[int32]bool{}
	for i, s := range g.p.Prologue {
		b := &g.tl.Buffers[i]
		pass := g.passOf(b.Until(g.end))
		switch {
		case int(s.Buffer) != i || !b.Initial && b.Start >= g.p.Cut || s.Cell >= 0 && (taken[s.Cell] || s.Resident):
			g.t.Errorf("prologue slot %d: %+v of %+v", i, s, *b)
		case s.Cell >= 0:
			g.checkEntering(0, s.Cell, b)
			taken[s.Cell] = true
			if pass != 0 || s.RequestedEnd != g.p.Cut || b.Size > g.p.Cells[s.Cell].Size {
				g.t.Errorf("prologue slot %d, freed in pass %d, leaves: %+v", i, pass, s)
			}
		case s.Resident != (pass >= 0) || s.Resident && (s.RequestedEnd != g.p.Cut || s.CompletedEnd != g.p.Cut):
			g.t.Errorf("prologue slot %d, freed in pass %d: %+v", i, pass, s)
		case !s.Resident && s.RequestedEnd != min(b.RequestedEnd, g.p.Cut):
			g.t.Errorf("prologue slot %d ends at %d: %+v", i, b.RequestedEnd, s)
		}
	}
}

func BenchmarkFindPeriodic(b *testing.B) {
	for _, j := range []job{
		{name: "dense", layers: 32, micro: 4, steps: 40},
		{name: "variable length", layers: 32, micro: 4, steps: 40, variableSizes: true},
		{name: "experts", layers: 32, micro: 4, steps: 40, skips: 20},
	} {
		d := j.record(0).d
		tl := build(b, d)
		it, err := FindIterations(&trace.Stacks{}, d, tl, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(j.name, func(b *testing.B) {
			for b.Loop() {
				if p, why := FindPeriodic(tl, it, EndRequested); p == nil {
					b.Fatal(why)
				}
			}
			b.ReportMetric(float64(len(d.Events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}
