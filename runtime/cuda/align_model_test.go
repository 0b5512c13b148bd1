//go:build cgo

package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// This is the alignment of match_align.c, written to be read: the whole row, without a beam and without a
// bound of cells, over the plan unrolled, of which a loop comes once. The two are compared request by request.

// alignCosts are those of match_align.c, which ctest/align.c prints: they are stated there only.
type alignCosts struct {
	extra, omitted, omittedDecided, omittedOptional int
	first, perOctave                                int
	other, otherInPrologue                          int
	again, early                                    int
	beam, lost, strained, octave, cells             int
	landmark                                        uint64
	off                                             float64 // octaves by which logarithms are off at most
}

func readAlignCosts(t testing.TB, program string) alignCosts {
	t.Helper()
	out, err := exec.Command(program, "costs").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var c alignCosts
	if _, err := fmt.Sscan(string(out), &c.extra, &c.omitted, &c.omittedDecided, &c.omittedOptional, &c.first, &c.perOctave,
		&c.other, &c.otherInPrologue, &c.again, &c.early, &c.beam, &c.lost, &c.strained, &c.octave, &c.cells, &c.landmark, &c.off); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	return c
}

// logarithm is that of base 2, in 64ths: the first six bits behind the leading one, and a parabola.
func logarithm(n uint64) int {
	if n == 0 {
		return 0
	}
	k := 0
	for n>>k > 1 {
		k++
	}
	x := int(n<<(63-k)>>57) - 64
	return k*64 + x + 22*x*(64-x)/4096
}

// alignLine is a step, or those of the rounds of a loop that are the same line of the program.
type alignLine struct {
	steps       []int // of each round
	k, period   int   // which line of how many of its loop
	leaves      int   // the line of the loop behind which the run goes on
	decided     bool  // data decide its size
	sure        bool  // they do not, as other steps show
	omitted     int   // what it costs without a request
	least, most uint64
}

// loops says whether a line is one of a loop.
func (l *alignLine) loops() bool { return l.period > 1 }

// step is that of a round, or the last one.
func (l *alignLine) step(round int) int { return l.steps[min(round, len(l.steps)-1)] }

// alignCell is a place at which the run may be.
type alignCell struct {
	cost    int
	round   int
	ratio   int // in 64ths of an octave
	scaled  bool
	matched bool
	cut     bool // the runtime may have another way there, as it has forgotten what costs too much
	least   int  // what it costs there at least, whatever the way
}

type alignModel struct {
	costs  alignCosts
	d      *planfile.Device
	m      *matchModel
	loops  int
	lines  []*alignLine // the plan unrolled: the line of each cell but the first
	row    []alignCell
	other  []alignCell // that of the request before
	steps  uint64      // a bit for each of the last requests: whether it was a step
	strain int
	again  bool // the last request is a step of a round that the plan does not have
}

// newAlignModel unrolls a given number of lines of a plan without entering slots.
func newAlignModel(d *planfile.Device, costs alignCosts, unrolled int) *alignModel {
	a := &alignModel{costs: costs, d: d, m: newMatchModel(d), steps: 1<<64 - 1}
	lines := a.planLines()
	for at := 0; len(a.lines) < unrolled; {
		l := lines[at]
		for k := range l.period {
			a.lines = append(a.lines, lines[at+k])
		}
		leaves := lines[at+l.leaves]
		at = a.m.next(leaves.steps[len(leaves.steps)-1])
	}
	a.row, a.other = make([]alignCell, len(a.lines)+1), make([]alignCell, len(a.lines)+1)
	for i := 1; i < len(a.row); i++ {
		a.row[i] = a.omit(i, a.row[a.previous(i)])
	}
	a.forget()
	return a
}

// planLines are the lines, by their first steps.
func (a *alignModel) planLines() map[int]*alignLine {
	f := newLoopModel(a.d, a.m)
	lines, fixed, shared := map[int]*alignLine{}, a.fixed(f.keys), a.shared()
	keys := slices.Clone(f.keys)
	is := func(at int) bool { return fixed[fixedSize{keys[at], a.m.steps[at].least, a.m.steps[at].most}] }
	for i := range f.keys {
		if a.m.steps[i].most >= a.costs.landmark && is(i) {
			f.keys[i] = loopKey{stream: f.keys[i].stream, life: f.keys[i].life, size: a.m.steps[i].most}
		}
	}
	f.look()
	add := func(l modelLoop) {
		for k := range l.period {
			of := &alignLine{k: k, period: l.period, leaves: (l.end - 1 - l.first) % l.period}
			for at := l.first + k; at < l.end; at += l.period {
				of.steps = append(of.steps, at)
			}
			a.describe(of, is, shared)
			lines[l.first+k] = of
		}
	}
	loops := f.loops()
	a.loops = len(loops)
	for at := 0; at < len(a.m.steps); {
		l := modelLoop{at, at + 1, 1}
		if len(loops) > 0 && loops[0].first == at {
			l, loops = loops[0], loops[1:]
		}
		add(l)
		at = l.end
	}
	return lines
}

type fixedSize struct {
	key         loopKey
	least, most uint64
}

// fixed are the sizes that steps of bodies have in every pass, and that data decide nowhere else for the same key.
func (a *alignModel) fixed(keys []loopKey) map[fixedSize]bool {
	sizes := map[fixedSize]bool{}
	chance := func(key loopKey, size uint64) bool {
		var least, most uint64 = math.MaxUint64, 0
		for i, s := range a.m.steps {
			if s.part > 0 && s.varies() && keys[i] == key {
				least, most = min(least, s.least), max(most, s.most)
			}
		}
		return size >= least && size <= most
	}
	for i, s := range a.m.steps {
		if s.part > 0 && !s.optional && !s.varies() && !chance(keys[i], s.most) {
			sizes[fixedSize{keys[i], s.least, s.most}] = true
		}
	}
	return sizes
}

// shared says of each step whether it shares its place.
func (a *alignModel) shared() []bool {
	shared := make([]bool, len(a.d.Slots))
	for i, s := range a.d.Slots {
		if s.Flags&planfile.SlotShares != 0 {
			shared[i], shared[s.Cell] = true, true
		}
	}
	return shared
}

// describe says of a line what its steps say.
func (a *alignModel) describe(l *alignLine, fixed func(at int) bool, shared []bool) {
	optional := true
	l.least, l.most = a.m.steps[l.steps[0]].least, a.m.steps[l.steps[0]].most
	for _, at := range l.steps {
		step, slot := &a.m.steps[at], &a.d.Slots[at]
		roomy := slot.Size > up(slot.Requested) && slot.Flags&planfile.SlotLeaving == 0
		l.least, l.most = min(l.least, step.least), max(l.most, step.most)
		l.sure = l.sure || fixed(at)
		l.decided = !fixed(at) && (shared[at] || step.varies() || step.loose || roomy)
		optional = optional && step.optional
	}
	if l.loops() {
		l.decided = l.least < l.most
	}
	switch {
	case optional:
		l.omitted = a.costs.omittedOptional
	case l.decided:
		l.omitted = a.costs.omittedDecided
	default:
		l.omitted = a.costs.omitted
	}
}

// forget marks what a beam forgets.
func (a *alignModel) forget() {
	least := slices.MinFunc(a.row, func(x, y alignCell) int { return x.least - y.least }).least
	for i := range a.row {
		a.row[i].cut = a.row[i].cut || a.row[i].cost > least+a.costs.beam
	}
}

// better is the one of two ways to a cell that costs less, the first one of equals. If the runtime may prefer the other one, as it may have
// another way to where that comes from, it may have another way here.
func better(x, y alignCell) alignCell {
	best, other := x, y
	if y.cost < x.cost {
		best, other = y, x
	}
	best.cut = best.cut || other.cut && other.least <= best.cost
	best.least = min(x.least, y.least)
	return best
}

// costs adds to what a way costs. What depends on its rounds and ratios may have cost nothing on another way.
func (c *alignCell) costs(n int, depends bool) {
	c.cost += n
	if !c.cut {
		c.least = c.cost
	} else if !depends {
		c.least += n
	}
}

// previous is the cell that another one comes after: behind a loop that is where the loop is left.
func (a *alignModel) previous(i int) int {
	if i == 1 {
		return 0
	}
	if l := a.lines[i-2]; l.k == l.period-1 {
		return i - 1 - (l.period - 1 - l.leaves)
	}
	return i - 1
}

// goOn is what lies behind a cell if the run goes on to another one, which comes after it.
func (a *alignModel) goOn(i int, before alignCell) alignCell {
	c, p := before, a.previous(i)
	if a.lines[i-1].k > 0 {
		return c // of the same loop
	}
	if p > 0 && before.round+1 < len(a.lines[p-1].steps) {
		c.costs(a.costs.early, true)
	}
	c.round = 0
	return c
}

// omit is what lies behind a cell if the next one has no request.
func (a *alignModel) omit(i int, before alignCell) alignCell {
	c := a.goOn(i, before)
	c.costs(a.lines[i-1].omitted, false)
	c.matched = false
	return c
}

// goBack is what lies behind the last cell of a loop if the run goes on to its first one.
func (a *alignModel) goBack(i int, last alignCell) alignCell {
	last.round++
	if last.round >= len(a.lines[i-1].steps) {
		last.costs(a.costs.again, true)
	}
	return last
}

// with is what lies behind a cell if a request is its line.
func (a *alignModel) with(i int, c alignCell, n uint64) alignCell {
	l := a.lines[i-1]
	s := &a.m.steps[l.step(c.round)]
	before := c
	c.matched = true
	switch {
	case l.decided:
		c.ratio, c.scaled = logarithm(n)-logarithm(s.most), true
		off := a.costs.octave
		if before.scaled {
			off = int(abs(int64(c.ratio - before.ratio)))
		}
		c.costs(min(a.costs.first, off*a.costs.perOctave/a.costs.octave), true)
	case n >= l.least && n <= l.most:
	case s.part == 0 && !s.stays && !l.sure:
		c.costs(a.costs.otherInPrologue, false)
	default:
		c.costs(a.costs.other, false)
	}
	return c
}

// behind is what lies behind a cell with one more request, if `row` is that already of all cells before.
func (a *alignModel) behind(i int, row []alignCell, n, streams uint64) alignCell {
	c := a.row[i]
	c.costs(a.costs.extra, false)
	c.matched = false
	if i == 0 {
		return c
	}
	l, p := a.lines[i-1], a.previous(i)
	c = better(c, a.omit(i, row[p]))
	if streams>>a.m.steps[l.steps[0]].stream&1 == 0 {
		return c
	}
	if l.loops() && l.k == 0 {
		c = better(a.with(i, a.goBack(i, a.row[i+l.period-1]), n), c)
	}
	on := a.with(i, a.goOn(i, a.row[p]), n)
	on.cut = on.cut || l.k == 0 && a.row[i].cut // it may not have reached the cell; it has all lines of a loop that it has any of
	return better(on, c)
}

// request aligns one more request. The step is nowhere if it is none.
func (a *alignModel) request(n uint64, streams uint64) (step, part int, cut bool) {
	row, best, before := a.other, 0, slices.MinFunc(a.row, func(x, y alignCell) int { return x.cost - y.cost }).cost
	for i := range a.row {
		row[i] = a.behind(i, row, n, streams)
		if row[i].cost < row[best].cost {
			best = i
		}
	}
	a.row, a.other = row, a.row
	found := row[best]
	a.forget()
	for _, c := range a.row {
		found.cut = found.cut || c.cut && c.least <= found.cost
	}
	a.strain += found.cost - before - a.strain/64
	a.steps <<= 1
	if !found.matched {
		return nowhere, 0, found.cut
	}
	a.steps |= 1
	a.again = found.round >= len(a.lines[best-1].steps)
	step = a.lines[best-1].step(found.round)
	return step, a.m.steps[step].part, found.cut
}

// lost says whether the run is elsewhere.
func (a *alignModel) lost() bool {
	return bits.OnesCount64(a.steps) < a.costs.lost || a.strain > 64*a.costs.strained
}

// shareSome has slots of a plan share places: rows of neighbours of one stream, in any phase.
func shareSome(d *planfile.Device, rng *rand.Rand) {
	often := []int{3, 10, 30}[rng.IntN(3)]
	for _, p := range d.Phases {
		for i := int(p.FirstSlot); i < int(p.FirstSlot+p.SlotCount)-1; i++ {
			if rng.IntN(often) > 0 {
				continue
			}
			holder, n := i, 1+rng.IntN(12)
			size := d.Slots[holder].Size
			for i++; i < int(p.FirstSlot+p.SlotCount) && n > 0; i++ {
				if s := &d.Slots[i]; s.Stream == d.Slots[holder].Stream {
					s.Flags, s.Cell = planfile.SlotShares, uint32(holder)
					size += s.Size
					n--
				}
			}
			for k := holder; k < i; k++ {
				if s := &d.Slots[k]; k == holder || s.Flags&planfile.SlotShares != 0 {
					s.Offset, s.Size = d.ArenaBytes, size
				}
			}
			d.ArenaBytes += size
		}
	}
	d.Certificate.Gap = d.ArenaBytes - d.Certificate.LowerBound
}

// disturb leaves requests out of a run, singly and in rows, as an expert has no tokens, adds others, and has others
// of another size, singly or in rows by one ratio.
func disturb(run []jobRequest, rng *rand.Rand) []jobRequest {
	often := []int{1 << 30, 200, 50, 15}[rng.IntN(4)]
	var out []jobRequest
	for i := 0; i < len(run); i++ {
		if rng.IntN(often) > 0 {
			out = append(out, run[i])
			continue
		}
		row := run[i:min(len(run), i+1+rng.IntN(12))]
		switch rng.IntN(5) {
		case 0: // left out
			i += len(row) - 1
		case 1:
			out = append(append(out, row...), row...)
			i += len(row) - 1
		case 2:
			factor := 0.1 + 4*rng.Float64()
			for _, r := range row {
				r.size = uint64(float64(r.size)*factor) + 1
				out = append(out, r)
			}
			i += len(row) - 1
		case 3:
			out = append(out, jobRequest{-1, 1 + rng.Uint64N(1<<uint(rng.IntN(40))), run[i].stream, 1}, run[i])
		case 4: // left out alone
		}
	}
	return out
}

// alignRun is a run of ctest/align.c.
type alignRun struct {
	plan     planfile.Device
	requests []jobRequest
}

// TestAlignModel compares each answer of the alignment with the model's. The answer is the same step of the same part
// whenever the model's best alignment has never been through what a beam forgets, and nothing that has may cost less, for that
// alignment is then among the cells of the runtime at every request, at the same cost, and cells are preferred in the same order.
func TestAlignModel(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	costs := readAlignCosts(t, program)
	if costs.octave != 64 || costs.off > 0.04 {
		t.Errorf("logarithms in %dths of an octave are off by %.4f octaves, expected 64ths and 0.04 at most", costs.octave, costs.off)
	}
	var runs []alignRun
	for seed := range uint64(450) {
		runs = append(runs, randomAlignRun(seed))
	}
	answers := alignAnswers(t, program, "next", runs)
	var all compared
	for k, run := range runs {
		all.add(compareAlign(t, k, run, answers[k], costs))
	}
	t.Logf("%+v", all)
	if all.none < 1000 || all.steps < 2*all.cut || 3*all.inLoops < all.steps+all.none || all.again < 300 || all.lost < 1000 || all.most == costs.cells {
		t.Errorf("no test of all: %+v", all)
	}
}

// randomAlignRun is a run of a random job: one without loops, one with some, or of experts.
func randomAlignRun(seed uint64) alignRun {
	rng := rand.New(rand.NewPCG(seed, 0))
	var plan planfile.Device
	var run []jobRequest
	switch {
	case seed%3 == 0:
		plan = randomJob(rng)
		run = randomRun(&plan, 300, rng)
	case seed%9 == 1:
		job := experts{layers: 1 + rng.IntN(3), experts: 3 + rng.IntN(6), each: 4 + rng.IntN(9), constants: 8 + rng.IntN(20), tokens: 400, idle: 0.3, brief: true}
		plan = job.plan(job.several(2+rng.IntN(3), rng))
		job.experts += rng.IntN(4)
		run = job.follow(job.several(4, rng)...)
		run = run[:min(len(run), 180)]
		for i := range run {
			run[i].stream = 100
		}
	default:
		job := randomLoopJob(rng)
		plan = job.plan(rng)
		run = job.run(&plan, 180, rng)
	}
	if seed%9 != 1 { // experts share already
		shareSome(&plan, rng)
	}
	run = disturb(run, rng)
	for i := range run {
		r := &run[i] // the streams that it may be on
		r.stream = 1 << slices.Index(plan.Streams, r.stream-100)
		if rng.IntN(4) == 0 {
			r.stream = 3
		}
	}
	return alignRun{plan, run}
}

// compared counts requests.
type compared struct {
	steps, none int // that are steps, and that are none
	cut         int // that were not compared
	inLoops     int // that were compared, in plans with loops
	again       int // that are steps of rounds that no plan has
	lost        int // behind which the run is lost, as far as that was compared
	most        int // cells
}

func (c *compared) add(o compared) {
	c.steps, c.none, c.cut, c.inLoops = c.steps+o.steps, c.none+o.none, c.cut+o.cut, c.inLoops+o.inLoops
	c.again, c.lost, c.most = c.again+o.again, c.lost+o.lost, max(c.most, o.most)
}

// compareAlign compares answers to a run with the model's. Whether the run is lost is compared up to the first answer that is not.
func compareAlign(t *testing.T, k int, run alignRun, answers []alignAnswer, costs alignCosts) compared {
	t.Helper()
	var c compared
	model := newAlignModel(&run.plan, costs, 2*len(run.requests)+400)
	for i, r := range run.requests {
		step, part, forgotten := model.request(r.size, r.stream)
		got := answers[i]
		c.most = max(c.most, got.third)
		if c.cut == 0 && !forgotten {
			if got.fourth != 0 != model.lost() {
				t.Fatalf("run %d: behind request %d the run is lost: %v, expected %v", k, i, got.fourth != 0, model.lost())
			}
			c.lost += got.fourth
		}
		switch {
		case forgotten:
			c.cut++
			continue
		case step == nowhere:
			c.none++
		default:
			c.steps++
			if model.again {
				c.again++
			}
		}
		if got.step != step || step != nowhere && got.part != part {
			t.Fatalf("run %d: request %d of %d B is step %d of part %d, expected %d of part %d", k, i, r.size, got.step, got.part, step, part)
		}
	}
	if model.loops > 0 {
		c.inLoops = c.steps + c.none
	}
	return c
}
