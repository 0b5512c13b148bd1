//go:build cgo

package cuda

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// This is how match_loops.c finds loops, written to be read: without hashes, and every step compared with all before it.

// loopKey tells the lines of the program apart.
type loopKey struct {
	stream, life int
	size         uint64 // of a step that is large and does not vary, if sizes count
}

type modelLoop struct{ first, end, period int }

const (
	longLife   = 25 // of whatever lives longer too
	roundLeast = 4
	roundMost  = 256
	loopGram   = 8
	loopOdd    = 3
)

type loopModel struct {
	m    *matchModel
	keys []loopKey
	all  []modelLoop // all stretches that repeat
}

// newLoopModel looks at a plan without entering slots.
func newLoopModel(d *planfile.Device, m *matchModel) *loopModel {
	f := &loopModel{m: m}
	for i, s := range d.Slots {
		f.keys = append(f.keys, loopKey{stream: int(s.Stream), life: f.life(d, i)})
	}
	f.look()
	return f
}

// look finds all stretches that repeat.
func (f *loopModel) look() {
	f.all = nil
	m := f.m
	for part := range len(m.first) - 1 {
		for i := m.first[part]; i+loopGram <= m.first[part+1]; i++ {
			period := f.again(part, i)
			if period < roundLeast || period > roundMost {
				continue
			}
			if l := f.around(part, i, period); l.end-l.first >= 2*period && !slices.Contains(f.all, l) {
				f.all = append(f.all, l)
			}
		}
	}
}

// life counts the steps that a step lives, itself among them: if every pass has it, only those that every pass has too.
func (f *loopModel) life(d *planfile.Device, at int) int {
	s, steps := &d.Slots[at], f.m.steps
	if s.Flags&(planfile.SlotResident|planfile.SlotLeaving|planfile.SlotStray) != 0 {
		return longLife
	}
	end := f.m.first[steps[at].part] + int(s.RequestedEnd)
	if steps[at].part == 0 { // its times are events
		end = 0
		for end < f.m.first[1] && d.Slots[end].Start < s.RequestedEnd {
			end++
		}
	}
	n := 0
	for k := at; k < end; k++ {
		if steps[at].optional || !steps[k].optional {
			n++
		}
	}
	return min(n, longLife)
}

func (f *loopModel) same(a, b int) bool {
	return slices.Equal(f.keys[a:a+loopGram], f.keys[b:b+loopGram])
}

// again is how many steps before a step the same keys as from it on come last, 0 if nowhere in its part.
func (f *loopModel) again(part, at int) int {
	for before := at - 1; before >= f.m.first[part]; before-- {
		if f.same(before, at) {
			return at - before
		}
	}
	return 0
}

// repeats says whether steps of a part are those a period later.
func (f *loopModel) repeats(part, first, end, period int) bool {
	return first >= f.m.first[part] && end+period <= f.m.first[part+1] && slices.Equal(f.keys[first:end], f.keys[first+period:end+period])
}

// repeatsButOdd says whether a step is the one a period later, or up to loopOdd from it on, or up to it, differ between loopGram that do not.
func (f *loopModel) repeatsButOdd(part, at, period, direction int) bool {
	is := f.repeats(part, at, at+1, period)
	for k := range loopOdd {
		first := at + direction*(k+1)
		if direction < 0 {
			first -= loopGram - 1
		}
		is = is || f.repeats(part, first, first+loopGram, period)
	}
	return is
}

// around is the longest stretch around a step that repeats with a period, but for a few steps.
func (f *loopModel) around(part, at, period int) modelLoop {
	first, last := at-period, at-period
	for first > f.m.first[part] && f.repeatsButOdd(part, first-1, period, -1) {
		first--
	}
	for f.repeatsButOdd(part, last, period, 1) {
		last++
	}
	return modelLoop{first, last + period, period}
}

// lacks says whether some pass may lack a whole round.
func (f *loopModel) lacks(l modelLoop) bool {
	for i := l.first; i+l.period <= l.end; i++ {
		if !slices.ContainsFunc(f.m.steps[i:i+l.period], func(s modelStep) bool { return !s.optional }) {
			return true
		}
	}
	return false
}

// varies says whether a loop may have any number of rounds: that of a body if some pass lacks a round, that of the prologue if its rounds are
// those of such a loop.
func (f *loopModel) varies(l modelLoop) bool {
	if f.m.steps[l.first].part > 0 {
		return f.lacks(l)
	}
	return slices.ContainsFunc(f.all, func(o modelLoop) bool {
		part := f.m.steps[o.first].part
		if part == 0 || o.period != l.period || !f.lacks(o) {
			return false
		}
		for i := o.first; i < o.first+o.period && i+loopGram <= f.m.first[part+1]; i++ {
			if f.same(i, l.first) {
				return true
			}
		}
		return false
	})
}

// loops are those of the plan, in its order. Of stretches that overlap, the longer one is taken first.
func (f *loopModel) loops() []modelLoop {
	var loops []modelLoop
	taken := make([]bool, len(f.keys))
	byLength := slices.Clone(f.all)
	slices.SortFunc(byLength, func(a, b modelLoop) int {
		if n := b.end - b.first - (a.end - a.first); n != 0 {
			return n
		}
		if a.period != b.period {
			return a.period - b.period
		}
		return a.first - b.first
	})
	for _, l := range byLength {
		if !f.varies(l) {
			continue
		}
		for l.first < l.end && taken[l.first] {
			l.first++
		}
		for l.end > l.first && taken[l.end-1] {
			l.end--
		}
		if l.end-l.first < 2*l.period || slices.Contains(taken[l.first:l.end], true) || !f.varies(l) {
			continue
		}
		for i := l.first; i < l.end; i++ {
			taken[i] = true
		}
		loops = append(loops, l)
	}
	slices.SortFunc(loops, func(a, b modelLoop) int { return a.first - b.first })
	return loops
}

// loopLine is a line of a made-up program. life counts requests of a pass in which it lives.
type loopLine struct {
	size   uint64
	varies bool // up to three times that
	stream uint32
	life   int
}

// loopStretch are lines, and how many rounds of them were recorded at most. Some passes lack some of the rounds: which steps
// they do not have begin `gap` steps from the first, maybe in the midst of a round.
type loopStretch struct {
	lines                []loopLine
	rounds, lacking, gap int
}

// loopJob is a program of the prologue and bodies, which come in turn.
type loopJob [][]loopStretch

// randomLines draws lines, of which few have the same size.
func randomLines(n int, varying float64, streams int, rng *rand.Rand) []loopLine {
	lines := make([]loopLine, n)
	for i := range lines {
		lines[i] = loopLine{512 * (1 + rng.Uint64N(60)), rng.Float64() < varying, 0, 1 + rng.IntN(8)}
		if rng.IntN(12) == 0 {
			lines[i].life = 1 + rng.IntN(40)
		}
		if rng.IntN(5) == 0 {
			lines[i].stream = uint32(rng.IntN(streams))
		}
	}
	return lines
}

// randomLoopJob draws a program. Its loops are a few, which may come several times, of other numbers of rounds.
func randomLoopJob(rng *rand.Rand) loopJob {
	streams, varying := 1+rng.IntN(2), []float64{0.2, 0.7, 1}[rng.IntN(3)]
	var rounds [][]loopLine
	for range 1 + rng.IntN(3) {
		rounds = append(rounds, randomLines(4+rng.IntN([]int{6, 20, 60}[rng.IntN(3)]), varying, streams, rng))
	}
	job := make(loopJob, 2+rng.IntN(2))
	for part := range job {
		job[part] = []loopStretch{{lines: randomLines(5+rng.IntN(20), 0, 1, rng), rounds: 1}}
		for range 1 + rng.IntN(4) {
			s := loopStretch{lines: rounds[rng.IntN(len(rounds))], rounds: 2 + rng.IntN(5)}
			if part > 0 && rng.IntN(5) > 0 {
				s.lacking = 1 + rng.IntN(s.rounds-1)
				s.gap = rng.IntN((s.rounds-s.lacking)*len(s.lines) + 1)
			}
			job[part] = append(job[part], s)
			if rng.IntN(4) > 0 {
				job[part] = append(job[part], loopStretch{lines: randomLines(1+rng.IntN(30), 0, streams, rng), rounds: 1})
			}
		}
	}
	return job
}

// slots are those of a part, whose phase has `occurrences`. lacked has for each the number of its round if some pass lacks that, and 0 if none does.
func (j loopJob) slots(part int, occurrences uint32, offset uint64) (slots []planfile.Slot, lacked []int) {
	var lines []loopLine
	rounds := 0
	for _, s := range j[part] {
		for i := range s.rounds * len(s.lines) {
			lines, lacked = append(lines, s.lines[i%len(s.lines)]), append(lacked, 0)
			if k := i - s.gap; k >= 0 && k < s.lacking*len(s.lines) {
				lacked[len(lacked)-1] = rounds + 1 + k/len(s.lines)
			}
		}
		rounds += s.lacking
	}
	for i, l := range lines {
		s := planfile.Slot{Start: uint64(i), Stream: l.stream, Offset: offset, Least: l.size, Requested: l.size, Occurrences: occurrences, Cell: planfile.NoCell}
		if l.varies && occurrences > 1 {
			s.Requested *= 3
		}
		s.Size = up(s.Requested)
		offset += s.Size
		s.RequestedEnd = uint64(livesUntil(lacked, i, l.life))
		s.CompletedEnd = s.RequestedEnd
		slots = append(slots, s)
	}
	return slots, lacked
}

// livesUntil is the step before which a step is freed that lives for `life` requests. If every pass has it, those of rounds that
// some pass lacks do not count.
func livesUntil(lacked []int, at, life int) int {
	end := at
	for ; life > 0 && end < len(lacked); end++ {
		if lacked[at] > 0 || lacked[end] == 0 {
			life--
		}
	}
	return end
}

// plan is that of a recording of some passes. Each round that some pass lacks is in one at least.
func (j loopJob) plan(rng *rand.Rand) planfile.Device {
	d := planfile.Device{
		Rank: -1, Mode: planfile.ModePeriodic, End: planfile.EndRequested, Alignment: 512,
		Streams: []uint64{0}, Certificate: planfile.Certificate{Kind: planfile.BoundLoad}, PeakAllocated: 1 << 39, PeakActive: 1 << 39,
	}
	passes, bodies := uint32(3), uint32(len(j)-1)
	lacked := make([][]int, len(j))
	for part := range j {
		p := planfile.Phase{Kind: planfile.PhaseBody, Occurrences: passes, FirstSlot: uint64(len(d.Slots))}
		if part == 0 {
			p.Kind, p.Occurrences = planfile.PhasePrologue, 1
		}
		var slots []planfile.Slot
		slots, lacked[part] = j.slots(part, p.Occurrences, d.ArenaBytes)
		p.Length, p.SlotCount = uint64(len(slots)), uint64(len(slots))
		d.ArenaBytes = slots[len(slots)-1].Offset + slots[len(slots)-1].Size
		d.Slots, d.Phases = append(d.Slots, slots...), append(d.Phases, p)
	}
	d.SteadyStart = d.Phases[0].Length
	for i := range passes * bodies {
		part := 1 + i%bodies
		p := &d.Phases[part]
		present := make([]uint64, (p.Length+63)/64)
		has := func(round int) bool { return i/bodies != uint32(round)%passes }
		for k, round := range lacked[part] {
			if round > 0 && !has(round) {
				d.Slots[p.FirstSlot+uint64(k)].Occurrences--
				continue
			}
			present[k/64] |= 1 << (k % 64)
		}
		d.Passes = append(d.Passes, planfile.Pass{FirstEvent: d.SteadyStart + uint64(i), Phase: part, Present: present})
	}
	d.SteadyEnd = d.SteadyStart + uint64(len(d.Passes))
	d.Events, d.Certificate.Gap = d.SteadyEnd, d.ArenaBytes
	if slices.ContainsFunc(d.Slots, func(s planfile.Slot) bool { return s.Stream == 1 }) {
		d.Streams = []uint64{0, 7}
	}
	return d
}

// run is one of the program, of n requests: of loops that some pass lacks rounds of, any number of them, and of sizes that vary, any.
func (j loopJob) run(d *planfile.Device, n int, rng *rand.Rand) []jobRequest {
	var run []jobRequest
	often, length := []int{1, 20}[rng.IntN(2)], rng.Float64()*3.4+0.8 // rounds of the same length
	for part := 0; len(run) < n; part = 1 + part%(len(j)-1) {
		for _, s := range j[part] {
			rounds := s.rounds
			if s.lacking > 0 && rng.IntN(2) == 0 {
				rounds = rng.IntN(s.rounds + 3)
			}
			for range rounds {
				if rng.IntN(often) == 0 {
					length = rng.Float64()*3.4 + 0.8
				}
				for _, l := range s.lines {
					r := jobRequest{-1, l.size, 100 + d.Streams[l.stream], 1}
					if l.varies {
						r.size = uint64(float64(l.size) * length)
					}
					run = append(run, r)
				}
			}
		}
	}
	return run[:n]
}

// foundLoops are those that the runtime finds in plans.
func foundLoops(t *testing.T, program string, plans ...planfile.Device) [][]modelLoop {
	t.Helper()
	var runs []alignRun
	for _, plan := range plans {
		runs = append(runs, alignRun{plan: plan})
	}
	out, err := exec.Command(program, "loops", writeRuns(t, runs)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	in := strings.NewReader(string(out))
	scan := func(to ...any) {
		if _, err := fmt.Fscan(in, to...); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
	}
	found := make([][]modelLoop, len(plans))
	for k := range plans {
		var n int
		for scan(&n); n > 0; n-- {
			var l modelLoop
			scan(&l.first, &l.end, &l.period)
			found[k] = append(found[k], l)
		}
	}
	return found
}

// TestLoopModel compares the loops of made-up plans with the model's.
func TestLoopModel(t *testing.T) {
	t.Parallel()
	var plans []planfile.Device
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 2))
		plan := randomLoopJob(rng).plan(rng)
		if seed%8 == 0 {
			plan = randomJob(rng)
		}
		if seed%3 == 0 {
			shareSome(&plan, rng)
		}
		plans = append(plans, plan)
	}
	loops, inPrologue, none := 0, 0, 0
	for k, got := range foundLoops(t, compile(t, memorySanitizers, "align.c"), plans...) {
		want := newLoopModel(&plans[k], newMatchModel(&plans[k])).loops()
		if !slices.Equal(got, want) {
			t.Fatalf("plan %d: loops %v, expected %v", k, got, want)
		}
		loops += len(got)
		if len(got) == 0 {
			none++
		}
		for _, l := range got {
			if l.first < int(plans[k].Phases[0].SlotCount) {
				inPrologue++
			}
		}
	}
	t.Logf("%d loops, of which %d in prologues; none in %d plans", loops, inPrologue, none)
	if loops < 400 || inPrologue < 100 || none < 40 {
		t.Errorf("%d loops, %d in prologues, %d plans without any: no test of all", loops, inPrologue, none)
	}
}

// lives are lines that live that many requests.
func lives(of ...int) []loopLine {
	var lines []loopLine
	for i, n := range of {
		lines = append(lines, loopLine{512 * uint64(1+i), false, 0, n})
	}
	return lines
}

// TestLoopsFound: the loops that were put into a plan are those that are found, and no others: wherever the steps begin that some
// pass lacks, also if that is in the midst of a round, and in the prologue if a body has the same.
func TestLoopsFound(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	rng := rand.New(rand.NewPCG(1, 0))
	// No neighbours of a loop live as long as its lines: it does not go on into them.
	round, other, before := lives(2, 1, 5, 3, 1, 4, 6), lives(7, 2, 2, 9, 4, 3, 8, 1, 6), lives(20, 21, 22, 23, 19, 18, 17, 16, 15, 14)
	behind := lives(11, 14, 13, 12, 16, 15, 19, 18, 17, 20, 21)
	straight := func(lines []loopLine) loopStretch { return loopStretch{lines: lines, rounds: 1} }
	body := func(s ...loopStretch) []loopStretch {
		return append(append([]loopStretch{straight(before)}, s...), straight(behind))
	}
	type example struct {
		name string
		job  loopJob
		want []modelLoop
	}
	const start = 10 + 11 // of the body, behind a prologue without loops
	one := modelLoop{start + 10, start + 10 + 5*7, 7}
	examples := []example{
		{"no step is optional", loopJob{body(), body(loopStretch{round, 5, 0, 0})}, nil},
		{"the prologue alone repeats", loopJob{body(loopStretch{round, 3, 0, 0}), body(loopStretch{other, 4, 2, 9})},
			[]modelLoop{{start + 3*7 + 10, start + 3*7 + 10 + 4*9, 9}}},
		{"the prologue too", loopJob{body(loopStretch{round, 3, 0, 0}), body(loopStretch{round, 5, 2, 7})},
			[]modelLoop{{10, 10 + 3*7, 7}, {start + 3*7 + 10, start + 3*7 + 10 + 5*7, 7}}},
		{"two", loopJob{body(), body(loopStretch{round, 5, 2, 3}, straight(before), loopStretch{other, 2, 1, 9})},
			[]modelLoop{one, {one.end + 10, one.end + 10 + 2*9, 9}}},
		{"two of which one lacks nothing", loopJob{body(), body(loopStretch{round, 5, 2, 3}, straight(before), loopStretch{other, 3, 0, 0})}, []modelLoop{one}},
	}
	for gap := range 4*7 + 1 {
		examples = append(examples, example{fmt.Sprintf("a gap from step %d on", gap), loopJob{body(), body(loopStretch{round, 5, 1, gap})}, []modelLoop{one}})
	}
	for _, e := range examples {
		if got := foundLoops(t, program, e.job.plan(rng))[0]; !slices.Equal(got, e.want) {
			t.Errorf("%s: loops %v, expected %v", e.name, got, e.want)
		}
	}
	// Up to three steps in a row may live otherwise than in the other rounds.
	long := randomLines(25, 1, 1, rng)
	for odd := range 6 {
		plan, first := loopJob{body(), body(loopStretch{long, 7, 2, 4 * 25})}.plan(rng), start+10
		for i := range odd {
			s := &plan.Slots[first+2*25+10+i]
			s.RequestedEnd++
			s.CompletedEnd = s.RequestedEnd
		}
		got, all := foundLoops(t, program, plan)[0], []modelLoop{{first, first + 7*25, 25}}
		if slices.Equal(got, all) != (odd <= 3) {
			t.Errorf("with %d steps that live otherwise there are the loops %v; expected %v: %v", odd, got, all, odd <= 3)
		}
	}
	// A pass may lack some steps of each round: that is not a round.
	plan := loopJob{body(), body(loopStretch{round, 5, 0, 0})}.plan(rng)
	for i := range 5 * 7 {
		if s := &plan.Slots[one.first+i]; i%7 < 6 {
			s.Occurrences--
			k := one.first + i - start
			plan.Passes[0].Present[k/64] &^= 1 << (k % 64)
			s.RequestedEnd = s.Start + 2
			s.CompletedEnd = s.RequestedEnd
		}
	}
	if got := foundLoops(t, program, plan)[0]; got != nil {
		t.Errorf("without any whole round lacking there are the loops %v, expected none", got)
	}
}
