//go:build cgo

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// alignAnswer is what ctest/align.c prints of a request.
type alignAnswer struct{ step, part, third, fourth int }

// writeRuns writes the file that ctest/align.c reads.
func writeRuns(t testing.TB, runs []alignRun) string {
	t.Helper()
	var data []byte
	for _, r := range runs {
		plan := encode(t, r.plan)
		data = binary.NativeEndian.AppendUint64(data, uint64(len(plan)))
		data = append(data, plan...)
		data = binary.NativeEndian.AppendUint64(data, uint64(len(r.requests)))
		for _, q := range r.requests {
			data = binary.NativeEndian.AppendUint64(data, q.size)
			data = binary.NativeEndian.AppendUint64(data, q.stream)
		}
	}
	path := filepath.Join(t.TempDir(), "runs")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// alignAnswers are those to each request of each run.
func alignAnswers(t testing.TB, program, what string, runs []alignRun) [][]alignAnswer {
	t.Helper()
	cmd := exec.Command(program, what, writeRuns(t, runs))
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, complaint.Bytes())
	}
	numbers := bytes.Fields(out)
	number := func() int {
		if len(numbers) == 0 {
			t.Fatalf("fewer answers than requests: %s", complaint.Bytes())
		}
		n, err := strconv.Atoi(string(numbers[0]))
		if err != nil {
			t.Fatal(err)
		}
		numbers = numbers[1:]
		return n
	}
	answers := make([][]alignAnswer, len(runs))
	for k, r := range runs {
		answers[k] = make([]alignAnswer, len(r.requests))
		for i := range r.requests {
			answers[k][i] = alignAnswer{number(), number(), number(), number()}
		}
	}
	return answers
}

// experts is a job of layers that each send their tokens to experts. An expert makes some requests in proportion to
// its tokens, and none if it has none. Before and behind the experts of a layer come requests that do not vary. All
// that a layer allocates lives to its end, unless it is brief.
type experts struct {
	layers, experts, each int
	tokens                int     // of all experts of a layer, about
	idle                  float64 // share of experts without any
	constants             int     // requests of a layer that do not vary: three of four come before the experts
	apart                 bool    // they have other sizes in each layer
	streams               bool    // every second layer has its experts on another stream
	brief                 bool    // blocks live a few requests, and each line of an expert its own number of them: the experts are a loop
}

// expertTokens are those of each expert of each layer in a pass.
type expertTokens [][]int

func (j experts) head() int     { return j.constants - j.constants/4 }
func (j experts) perLayer() int { return j.constants + j.experts*j.each }

// varies says whether a request of the body is of an expert.
func (j experts) varies(slot int) bool {
	k := slot%j.perLayer() - j.head()
	return k >= 0 && k < j.experts*j.each
}

// draw sends tokens to experts.
func (j experts) draw(rng *rand.Rand) expertTokens {
	tokens := make(expertTokens, j.layers)
	for l := range tokens {
		tokens[l] = make([]int, j.experts)
		for e := range tokens[l] {
			if rng.Float64() >= j.idle {
				tokens[l][e] = 1 + rng.IntN(2*j.tokens/j.experts)
			}
		}
	}
	return tokens
}

// bytes are what an expert requests for each token in its k-th request.
func (j experts) bytes(k int) uint64 {
	return 256 * []uint64{2, 8, 8, 8, 2, 4, 2, 8, 8, 4, 2, 6}[k%12]
}

// constant is the i-th request of a layer without regard to tokens.
func (j experts) constant(layer, i int) uint64 {
	if !j.apart {
		layer = 0
	}
	return 4096*uint64(1+i*37%101) + 512*uint64(layer)
}

// life is how many requests of a pass the k-th one of a layer lives if it is brief. Those before the experts end before them, or live longer than tells lines apart.
func (j experts) life(k int) int {
	switch of := []int{3, 1, 2, 5, 1, 4, 2, 1, 6, 1, 2, 1}; {
	case j.varies(k):
		return of[(k-j.head())%j.each%12]
	case k < j.head() && 10+k*7%11 > j.head()-k:
		return 2 * j.perLayer()
	case k < j.head():
		return 10 + k*7%11
	default:
		return 10 + k*5%13
	}
}

// requests are those of a pass, which may have other numbers of experts than the plan. slot is the number in the body, and those of more experts are
// the last one's.
func (j experts) requests(tokens expertTokens) []jobRequest {
	var out []jobRequest
	for l := range j.layers {
		first := l * j.perLayer()
		add := func(k int, size, stream uint64) {
			if size > 0 {
				out = append(out, jobRequest{first + k, size, stream, 0})
			}
		}
		for i := range j.head() {
			add(i, j.constant(l, i), 0)
		}
		for e, n := range tokens[l] {
			for k := range j.each {
				add(j.head()+min(e, j.experts-1)*j.each+k, uint64(n)*j.bytes(k), j.stream(l))
			}
		}
		for i := j.head(); i < j.constants; i++ {
			add(i+j.experts*j.each, j.constant(l, i), 0)
		}
	}
	return out
}

// stream is that of the experts of a layer.
func (j experts) stream(layer int) uint64 {
	if j.streams {
		return uint64(layer % 2)
	}
	return 0
}

// expertsWeights are what the prologue requests, and keeps.
var expertsWeights = []uint64{8 << 20, 512, 3 << 20}

// plan is that of a recording with these passes. In each layer the experts share one place, which is the same bytes in
// every layer. An expert that no pass has is in the first one, with one token.
func (j experts) plan(passes []expertTokens) planfile.Device {
	for l := range j.layers {
		for e := range j.experts {
			if !slices.ContainsFunc(passes, func(p expertTokens) bool { return p[l][e] > 0 }) {
				passes[0][l][e] = 1
			}
		}
	}
	n := j.layers * j.perLayer()
	d := periodic(expertsWeights, [][]uint64{make([]uint64, n)}, make([]uint32, 0))
	base := d.Slots[len(expertsWeights)-1].Offset + d.Slots[len(expertsWeights)-1].Size
	d.Slots, d.Passes = d.Slots[:len(expertsWeights)], nil
	body, room := make([]planfile.Slot, n), uint64(0)
	for i, p := range passes {
		present, taken := make([]uint64, (n+63)/64), make([]uint64, j.layers)
		for _, r := range j.requests(p) {
			s := &body[r.slot]
			if s.Occurrences == 0 {
				s.Least = r.size
			}
			s.Least, s.Requested, s.Occurrences = min(s.Least, r.size), max(s.Requested, r.size), s.Occurrences+1
			present[r.slot/64] |= 1 << (r.slot % 64)
			if j.varies(r.slot) {
				taken[r.slot/j.perLayer()] += up(r.size)
			}
		}
		room = max(room, slices.Max(taken))
		d.Passes = append(d.Passes, planfile.Pass{FirstEvent: d.SteadyStart + uint64(i), Phase: 1, Present: present})
	}
	beside, lacked := base+room, make([]int, n)
	for i := range body {
		if int(body[i].Occurrences) < len(passes) {
			lacked[i] = 1
		}
	}
	for l := range j.layers {
		holder, next := l*j.perLayer()+j.head(), beside
		for k := range j.perLayer() {
			i := l*j.perLayer() + k
			s := &body[i]
			s.Start, s.RequestedEnd, s.Cell = uint64(i), uint64((l+1)*j.perLayer()), planfile.NoCell
			if j.brief {
				s.RequestedEnd = uint64(livesUntil(lacked, i, j.life(k)))
			}
			s.CompletedEnd = s.RequestedEnd
			switch {
			case !j.varies(i):
				s.Offset, s.Size = next, up(s.Requested)
				next += s.Size
			case i > holder:
				s.Flags, s.Cell = planfile.SlotShares, uint32(len(expertsWeights)+holder)
				fallthrough
			default:
				s.Offset, s.Size, s.Stream = base, room, uint32(j.stream(l))
			}
		}
		d.ArenaBytes = max(d.ArenaBytes, next)
	}
	d.Slots = append(d.Slots, body...)
	if j.streams {
		d.Streams = []uint64{0, 7}
	}
	d.Phases[1] = planfile.Phase{
		Kind: planfile.PhaseBody, Occurrences: uint32(len(passes)), Length: uint64(n), FirstSlot: uint64(len(expertsWeights)), SlotCount: uint64(n),
	}
	d.SteadyEnd = d.SteadyStart + uint64(len(passes))
	d.Events, d.ArenaBytes = d.SteadyEnd, max(d.ArenaBytes, beside)
	d.Certificate.Gap = d.ArenaBytes
	d.PeakAllocated, d.PeakActive = d.ArenaBytes, d.ArenaBytes
	return d
}

// prologue are the requests before the passes.
func (j experts) prologue() []jobRequest {
	var out []jobRequest
	for i, size := range expertsWeights {
		out = append(out, jobRequest{i - len(expertsWeights), size, 0, 0})
	}
	return out
}

// follow are runs of the job after its recording: the prologue, and passes with these tokens.
func (j experts) follow(passes ...expertTokens) []jobRequest {
	out := j.prologue()
	for _, p := range passes {
		out = append(out, j.requests(p)...)
	}
	return out
}

func (j experts) several(n int, rng *rand.Rand) []expertTokens {
	passes := make([]expertTokens, n)
	for i := range passes {
		passes[i] = j.draw(rng)
	}
	return passes
}

// mixture is the job of most tests: 8 experts, of which one in six has no tokens.
var mixture = experts{layers: 4, experts: 8, each: 12, constants: 32, tokens: 400, idle: 0.16}

// many has more experts, with fewer requests each.
var many = experts{layers: 4, experts: 64, each: 5, constants: 32, tokens: 3200, idle: 0.16}

// TestAlignOwnProgram: a run that requests what a plan says is followed step by step, also where the bodies have steps that
// not every recorded pass had, and with streams of other names.
func TestAlignOwnProgram(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	two := mixture
	two.streams = true
	var runs []alignRun
	for _, j := range []experts{mixture, two, many, {layers: 2, experts: 128, each: 12, constants: 8, tokens: 6400, idle: 0.16}} {
		plan := j.plan(j.several(3, rand.New(rand.NewPCG(1, 0))))
		run := j.prologue()
		for range 3 {
			for i, s := range plan.Slots[len(expertsWeights):] {
				run = append(run, jobRequest{i, s.Requested, 100 + uint64(s.Stream), 0})
			}
		}
		for i := range expertsWeights {
			run[i].stream = 100
		}
		runs = append(runs, alignRun{plan, run})
	}
	for k, answers := range alignAnswers(t, program, "match", runs) {
		for i, r := range runs[k].requests {
			if want := r.slot + len(expertsWeights); answers[i].step != want || answers[i].third == 0 || answers[i].fourth != 0 {
				t.Fatalf("plan %d: request %d is %+v, expected step %d and its place", k, i, answers[i], want)
			}
		}
	}
}

// followed is how well a run is followed.
type followed struct {
	requests, steps  int // all, and those that are any step
	constants, own   int // what does not vary, and what of that is its own step
	layers, ownFirst int // first requests of layers, and those of them that are their own steps
	astray           int
}

// look compares answers with where the requests come from.
func (j experts) look(run []jobRequest, answers []alignAnswer) followed {
	f := followed{requests: len(run)}
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	for i, r := range run {
		own := answers[i].step == r.slot+len(expertsWeights)
		count(&f.steps, answers[i].step >= 0)
		count(&f.astray, answers[i].fourth != 0)
		if r.slot < 0 || j.varies(r.slot) {
			continue
		}
		count(&f.constants, true)
		count(&f.own, own)
		count(&f.layers, r.slot%j.perLayer() == 0)
		count(&f.ownFirst, own && r.slot%j.perLayer() == 0)
	}
	return f
}

// TestAlignOtherTokens: tokens are sent to experts as in no recorded pass, so that a layer has more requests or fewer. The
// first request of every layer is its own step again, but for some if so many experts are idle that leaving out their steps
// costs more than having the requests of the next layer among them.
func TestAlignOtherTokens(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	for _, c := range []struct {
		name string
		job  experts
		idle float64 // of the run
		own  int     // per cent of the first requests of layers that are their own steps, at least
	}{
		{"no expert is idle", mixture, 0, 100}, {"few are idle", mixture, 0.08, 100}, {"as many are idle", mixture, 0.16, 90}, {"more are idle", mixture, 0.3, 75},
		{"no one of many is idle", many, 0, 100}, {"few of many are idle", many, 0.08, 100}, {"as many of many are idle", many, 0.16, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, 1))
				plan := c.job.plan(c.job.several(4, rng))
				other := c.job
				other.idle = c.idle
				run := other.follow(other.several(6, rng)...)
				f := c.job.look(run, alignAnswers(t, program, "match", []alignRun{{plan, run}})[0])
				t.Logf("seed %d: %+v", seed, f)
				if f.ownFirst*100 < f.layers*c.own || f.steps < f.requests*99/100 || f.own < f.constants*3/4 || f.astray > 0 {
					t.Errorf("seed %d: expected %d %% of the first requests of layers, 99 %% of all and 75 %% of those that do not vary: %+v", seed, c.own, f)
				}
			}
		})
	}
}

// send is a pass in which `active` experts of each layer have tokens.
func (j experts) send(active int, rng *rand.Rand) expertTokens {
	tokens := make(expertTokens, j.layers)
	for l := range tokens {
		for range active {
			tokens[l] = append(tokens[l], 1+rng.IntN(2*j.tokens/j.experts))
		}
	}
	return tokens
}

// TestAlignOtherExperts: more experts of a layer have tokens than in any recorded pass, up to three times as many, or fewer. What does not vary
// is its own step all the same, and what the experts request are the lines of experts of their layers that request it. But only the next
// requests show what the first ones are behind a round: the first two of a round that the plan does not have may be no steps, and what does not vary
// may be taken for a round, for two requests, if fewer have come than the plan has.
func TestAlignOtherExperts(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	job := mixture
	job.brief = true
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		plan := job.plan(job.several(4, rng))
		for _, active := range []int{1, 2, 4, 8, 9, 12, 16, 24} {
			run := job.follow(job.send(active, rng), job.send(active, rng), job.send(active, rng))
			answers := alignAnswers(t, program, "match", []alignRun{{plan, run}})[0]
			f, lines, all, more, early := job.look(run, answers), 0, 0, 3*job.layers*max(0, active-job.experts), 0
			if active < job.experts {
				early = 3 * job.layers
			}
			for i, r := range run {
				if r.slot < 0 || !job.varies(r.slot) {
					continue
				}
				all++
				if at := answers[i].step - len(expertsWeights); at/job.perLayer() == r.slot/job.perLayer() && job.varies(at) && (at-r.slot)%job.each == 0 {
					lines++
				}
			}
			if f.astray > 0 || f.own < f.constants*99/100-2*early || lines < all*99/100-2*more {
				t.Errorf("seed %d: %d experts: %d of %d requests of experts are their own lines, with %d rounds that the plan does not have and %d loops left early: %+v", seed, active, lines, all, more, early, f)
			}
		}
	}
}

// TestAlignStuck: a run of which each request is taken for the next line of a loop, as it may have any size there, and none
// of the size that the one before lets expect, is lost. One whose requests are those of a loop, in many more rounds, is not.
func TestAlignStuck(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	job := mixture
	job.brief = true
	rng := rand.New(rand.NewPCG(1, 0))
	plan := job.plan(job.several(4, rng))
	before := job.follow(job.send(8, rng))[:len(expertsWeights)+job.head()]
	round := job.requests(job.send(8, rng))[job.head() : job.head()+job.each]
	own, stuck := slices.Clone(before), slices.Clone(before)
	for i := range 600 {
		r := round[i%len(round)]
		own = append(own, r)
		r.size = r.size*uint64(1+i%2*9) + 256
		stuck = append(stuck, r)
	}
	runs := []alignRun{{plan, own}, {plan, stuck}}
	for _, run := range runs {
		for i := range run.requests { // the plan's only stream
			run.requests[i].stream = 1
		}
	}
	is := alignAnswers(t, program, "next", runs)
	lost := func(a alignAnswer) bool { return a.fourth != 0 }
	if i := slices.IndexFunc(is[0], lost); i >= 0 {
		t.Errorf("the run is lost at request %d, though it goes through the loop", i)
	}
	at := slices.IndexFunc(is[1], lost)
	if at < len(before)+32 || at > len(before)+200 {
		t.Fatalf("the run that is stuck is lost at request %d, expected that some 100 behind %d", at, len(before))
	}
	for i := at - 32; i <= at; i++ {
		if is[1][i].step < 0 {
			t.Errorf("request %d of the run that is stuck is no step: it would be lost by that", i)
		}
	}
}

// TestAlignFoundAgain: a run that does something else for thousands of requests is lost, is looked for, and is found and
// aligned when it goes on.
func TestAlignFoundAgain(t *testing.T) {
	t.Parallel()
	const strange, passes = 5000, 6
	program := compile(t, memorySanitizers, "align.c")
	job := experts{layers: 6, experts: 1, each: 4, constants: 60, tokens: 400, apart: true}
	rng := rand.New(rand.NewPCG(1, 0))
	plan := job.plan(job.several(3, rng))
	for _, cutOff := range []int{0, 100} { // requests that the pass before lacks
		before := job.follow(job.several(2, rng)...)
		before = before[:len(before)-cutOff]
		run := slices.Clone(before)
		for i := range uint64(strange) {
			run = append(run, jobRequest{-1 << 20, 1<<30 + 512*(i%7), 0, 1})
		}
		for _, pass := range job.several(passes, rng) {
			run = append(run, job.requests(pass)...)
		}
		matched := alignAnswers(t, program, "match", []alignRun{{plan, run}})[0]
		for i := range run { // the plan's only stream
			run[i].stream = 1
		}
		aligned := alignAnswers(t, program, "next", []alignRun{{plan, run}})[0]
		lost := slices.IndexFunc(aligned, func(a alignAnswer) bool { return a.fourth != 0 })
		looked := slices.IndexFunc(matched, func(a alignAnswer) bool { return a.fourth != 0 })
		if begin := len(before); lost < begin || lost > begin+100 || looked < begin || looked > begin+100 {
			t.Errorf("the run is lost at request %d, and looked for from %d on; expected that soon after %d", lost, looked, begin)
		}
		back := len(before) + strange
		found := slices.IndexFunc(matched[back:], func(a alignAnswer) bool { return a.fourth == 0 })
		if found < 0 || found > 40 {
			t.Errorf("the run is found %d requests after it has gone on, expected 40 at most", found)
		}
		if f := job.look(run[back+40:], matched[back+40:]); f.own < f.constants*99/100 || f.astray > 0 || f.steps < f.requests*99/100 {
			t.Errorf("behind that: %+v", f)
		}
	}
}

// TestAlignStreams: once the streams of the plan are known, a request on another one is no step, though it is of the size of
// the next one. Those on the plan's streams are followed all the same.
func TestAlignStreams(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	job, names := mixture, []uint64{100, 107}
	job.streams = true
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 0))
		plan := job.plan(job.several(4, rng))
		var run []jobRequest
		for i, r := range job.follow(job.several(6, rng)...) {
			r.stream = names[r.stream]
			if i > 3*job.perLayer() && rng.IntN(10) == 0 {
				run = append(run, jobRequest{-1 << 20, r.size, 300 + rng.Uint64N(3), 1})
			}
			run = append(run, r)
		}
		answers := alignAnswers(t, program, "match", []alignRun{{plan, run}})[0]
		for i, r := range run {
			if step := answers[i].step; step >= 0 && names[plan.Slots[step].Stream] != r.stream {
				t.Fatalf("seed %d: request %d on stream %d is step %d, of stream %d", seed, i, r.stream, step, names[plan.Slots[step].Stream])
			}
		}
		run = slices.DeleteFunc(run, func(r jobRequest) bool { return r.stream >= 300 })
		answers = slices.DeleteFunc(answers, func(a alignAnswer) bool { return a.step < 0 })
		if len(answers) < len(run)*98/100 {
			t.Errorf("seed %d: %d of %d requests on the plan's streams are steps", seed, len(answers), len(run))
		}
	}
}

// optionalSteps is a plan with a body of so many steps, each of which only one of two passes had, in places that 100 share.
func optionalSteps(n int) planfile.Device {
	sizes := make([]uint64, n)
	for i := range sizes {
		sizes[i] = 512 * uint64(1+i%90)
	}
	d := periodic([]uint64{4096}, [][]uint64{sizes}, []uint32{1, 1})
	for i := range n {
		s := &d.Slots[1+i]
		s.Occurrences = 1
		d.Passes[(i+1)%2].Present[i/64] &^= 1 << (i % 64)
		if holder := 1 + i/100*100; i%100 > 0 {
			s.Flags, s.Cell, s.Offset = planfile.SlotShares, uint32(holder), d.Slots[holder].Offset
			d.Slots[holder].Size = s.Offset + 100*90*512 - d.Slots[holder].Offset
		}
		s.Size = 100 * 90 * 512
	}
	d.ArenaBytes += 100 * 90 * 512
	d.Certificate.Gap = d.ArenaBytes
	return d
}

// TestAlignHostile asks for anything: sizes of 0, 1 and 2^63, huge and tiny ones in turn, on any streams. After each
// request the cells are looked at, which are no more than the bound, so the work of a request is bounded too.
func TestAlignHostile(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	rng := rand.New(rand.NewPCG(1, 0))
	empty := optionalSteps(100)
	empty.Slots = empty.Slots[1:]
	empty.Phases[0].SlotCount, empty.Phases[1].FirstSlot = 0, 0
	for i := range empty.Slots {
		if s := &empty.Slots[i]; s.Flags&planfile.SlotShares != 0 {
			s.Cell--
		}
	}
	plans := []planfile.Device{
		recorded([]uint64{4096}), periodic([]uint64{4096}, [][]uint64{{512}}, []uint32{1}), optionalSteps(2), optionalSteps(5000), empty,
		mixture.plan(mixture.several(2, rng)), many.plan(many.several(2, rng)),
	}
	for range 5 {
		plan := randomJob(rng)
		shareSome(&plan, rng)
		plans = append(plans, plan)
	}
	var runs []alignRun
	for _, plan := range plans {
		runs = append(runs, alignRun{plan: plan})
	}
	cmd := exec.Command(program, "hostile", writeRuns(t, runs))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("cells at most, of each plan: %s", bytes.ReplaceAll(out, []byte("\n"), []byte(" ")))
}

// TestAlignWithoutPrologue: a plan whose prologue has no steps is followed from the first step of its body on, which comes once.
func TestAlignWithoutPrologue(t *testing.T) {
	t.Parallel()
	program := compile(t, memorySanitizers, "align.c")
	job := periodic([]uint64{512}, [][]uint64{{4096, 4096, 8192, 1 << 20, 1 << 20}}, []uint32{1})
	job.Slots = job.Slots[1:]
	job.Phases[0].SlotCount, job.Phases[1].FirstSlot = 0, 0
	holder := &job.Slots[3]
	holder.Size *= 2
	other := &job.Slots[4]
	other.Flags, other.Cell, other.Offset, other.Size = planfile.SlotShares, 3, holder.Offset, holder.Size
	var run []jobRequest
	for range 3 {
		for i, s := range job.Slots {
			run = append(run, jobRequest{i, s.Requested, 1, 1})
		}
	}
	for i, a := range alignAnswers(t, program, "next", []alignRun{{job, run}})[0] {
		if a.step != run[i].slot || a.part != 1 {
			t.Fatalf("request %d is step %d of part %d, expected %d of part 1", i, a.step, a.part, run[i].slot)
		}
	}
}

// BenchmarkAlign is what the alignment costs a request: of a mixture of 128 experts of which two in five have no tokens in
// some recorded pass, in a run with other tokens; of a plan whose sizes do not vary, in its own run; and of the first plan in a
// run that does something else from the first experts on.
func BenchmarkAlign(b *testing.B) {
	program := compile(b, "", "align.c")
	rng := rand.New(rand.NewPCG(1, 0))
	job := experts{layers: 4, experts: 128, each: 12, constants: 32, tokens: 6400, idle: 0.16}
	plan := job.plan(job.several(3, rng))
	optional := 0
	for _, s := range plan.Slots {
		if s.Occurrences < 3 && s.Flags&planfile.SlotResident == 0 {
			optional++
		}
	}
	sizes := distinct(4*job.perLayer(), rng)
	constant := periodic([]uint64{512}, [][]uint64{sizes}, []uint32{1})
	own := []jobRequest{{0, 512, 0, 0}}
	strange := job.follow(job.draw(rng))[:len(expertsWeights)+job.head()]
	for i, n := range sizes {
		own = append(own, jobRequest{i, n, 0, 0})
		strange = append(strange, jobRequest{-1, rng.Uint64N(1 << (10 + i%25)), 0, 0})
	}
	for name, run := range map[string]alignRun{
		"experts": {plan, job.follow(job.several(3, rng)...)}, "constant": {constant, own}, "strange": {plan, strange},
	} {
		b.Run(name, func(b *testing.B) {
			out, err := exec.Command(program, "time", writeRuns(b, []alignRun{run}), strconv.Itoa(max(b.N, 1000))).CombinedOutput()
			var ns, cells, share float64
			if _, scan := fmt.Sscan(string(out), &ns, &cells, &share); err != nil || scan != nil {
				b.Fatalf("%v: %q", errors.Join(err, scan), out)
			}
			b.ReportMetric(ns, "ns/request")
			b.ReportMetric(cells, "cells")
			b.ReportMetric(100*share, "%-steps")
			b.ReportMetric(100*float64(optional)/float64(len(plan.Slots)), "%-optional")
		})
	}
}
