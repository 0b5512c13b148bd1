//go:build cgo

package cuda

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// This is the alignment of match_align.c, written to be read: the whole row, without a beam and without a
// bound of cells, over the plan unrolled. The two are compared request by request.

// alignCosts are those of match_align.c, which ctest/align.c prints: they are stated there only.
type alignCosts struct {
	extra, omitted, omittedDecided, omittedOptional int
	first, perOctave                                int
	other, otherInPrologue                          int
	beam, lost, octave                              int
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
		&c.other, &c.otherInPrologue, &c.beam, &c.lost, &c.octave, &c.off); err != nil {
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

// alignCell is a place at which the run may be.
type alignCell struct {
	cost    int
	ratio   int // in 64ths of an octave
	scaled  bool
	matched bool
	cut     bool // the best way there has been through a cell that the runtime may have forgotten
}

type alignModel struct {
	costs alignCosts
	m     *matchModel
	// Of each step: whether data decide its size.
	decided []bool
	at      []int // the plan unrolled: the step of each cell but the first
	row     []alignCell
	other   []alignCell // that of the request before
}

// newAlignModel unrolls so many steps of a plan without entering slots.
func newAlignModel(d *planfile.Device, costs alignCosts, unrolled int) *alignModel {
	a := &alignModel{costs: costs, m: newMatchModel(d), decided: make([]bool, len(d.Slots))}
	for i, s := range d.Slots {
		step := &a.m.steps[i]
		roomy := s.Size > up(s.Requested) && s.Flags&planfile.SlotLeaving == 0
		a.decided[i] = a.decided[i] || step.varies() || step.loose || roomy
		if s.Flags&planfile.SlotShares != 0 {
			a.decided[i], a.decided[s.Cell] = true, true
		}
	}
	for at := 0; len(a.at) < unrolled; at = a.m.next(at) {
		a.at = append(a.at, at)
	}
	a.row, a.other = make([]alignCell, unrolled+1), make([]alignCell, unrolled+1)
	for i, step := range a.at {
		before := a.row[i]
		before.cost += a.omitted(step)
		a.row[i+1] = before
	}
	a.forget(0)
	return a
}

func (a *alignModel) omitted(step int) int {
	switch {
	case a.m.steps[step].optional:
		return a.costs.omittedOptional
	case a.decided[step]:
		return a.costs.omittedDecided
	}
	return a.costs.omitted
}

// forget marks what a beam forgets.
func (a *alignModel) forget(best int) {
	for i := range a.row {
		a.row[i].cut = a.row[i].cut || a.row[i].cost > best+a.costs.beam
	}
}

// asStep is what lies behind a cell if a request is the next step.
func (a *alignModel) asStep(before alignCell, step int, n uint64) alignCell {
	s, c := &a.m.steps[step], before
	c.matched = true
	switch {
	case a.decided[step]:
		c.ratio, c.scaled = logarithm(n)-logarithm(s.most), true
		off := a.costs.octave
		if before.scaled {
			off = int(abs(int64(c.ratio - before.ratio)))
		}
		c.cost += min(a.costs.first, off*a.costs.perOctave/a.costs.octave)
	case n >= s.least && n <= s.most:
	case s.part == 0 && !s.stays:
		c.cost += a.costs.otherInPrologue
	default:
		c.cost += a.costs.other
	}
	return c
}

// request aligns one more request. The step is nowhere if it is none.
func (a *alignModel) request(n uint64, streams uint64) (step, part int, cut bool) {
	row, best := a.other, 0
	for i, was := range a.row {
		c := was
		c.cost, c.matched = c.cost+a.costs.extra, false
		if i > 0 {
			step := a.at[i-1]
			if left := row[i-1]; left.cost+a.omitted(step) < c.cost {
				c = left
				c.cost, c.matched = c.cost+a.omitted(step), false
			}
			if streams>>a.m.steps[step].stream&1 != 0 {
				if with := a.asStep(a.row[i-1], step, n); with.cost <= c.cost {
					c = with
				}
			}
		}
		row[i] = c
		if c.cost < row[best].cost {
			best = i
		}
	}
	a.row, a.other = row, a.row
	a.forget(row[best].cost)
	step, part = nowhere, 0
	if best > 0 {
		part = a.m.steps[a.at[best-1]].part
	}
	if row[best].matched {
		step = a.at[best-1]
	}
	return step, part, row[best].cut
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
// whenever the model's best alignment has never been through what a beam forgets, for that is then among the cells of
// the runtime at every request, at the same cost, and cells are preferred in the same order. What such an answer is
// has nothing to do with what else is forgotten.
func TestAlignModel(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	costs := readAlignCosts(t, program)
	if costs.octave != 64 || costs.off > 0.04 {
		t.Errorf("logarithms in %dths of an octave are off by %.4f octaves, expected 64ths and 0.04 at most", costs.octave, costs.off)
	}
	var runs []alignRun
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		plan := randomJob(rng)
		shareSome(&plan, rng)
		run := disturb(randomRun(&plan, 300, rng), rng)
		for i := range run {
			r := &run[i] // the streams that it may be on
			r.stream = 1 << slices.Index(plan.Streams, r.stream-100)
			if rng.IntN(4) == 0 {
				r.stream = 3
			}
		}
		runs = append(runs, alignRun{plan, run})
	}
	answers := alignAnswers(t, program, "next", runs)
	var steps, none, cut, most int
	for k, run := range runs {
		model := newAlignModel(&run.plan, costs, 2*len(run.requests)+400)
		for i, r := range run.requests {
			step, part, forgotten := model.request(r.size, r.stream)
			got := answers[k][i]
			most = max(most, got.third)
			switch {
			case forgotten:
				cut++
				continue
			case step == nowhere:
				none++
			default:
				steps++
			}
			if got.step != step || step != nowhere && got.part != part {
				t.Fatalf("run %d: request %d of %d B is step %d of part %d, expected %d of part %d", k, i, r.size, got.step, got.part, step, part)
			}
		}
	}
	t.Logf("%d requests are steps, %d are none, %d not compared; %d cells at most", steps, none, cut, most)
	if none < 1000 || steps < 5*cut {
		t.Errorf("%d requests are steps, %d are none, and %d were not compared: no test of all", steps, none, cut)
	}
}
