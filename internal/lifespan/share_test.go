package lifespan

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// experts is a made-up training run of a mixture of experts: data decide how many tokens each of them gets, and all of a
// layer together get the same number. No figure is taken from a real job.
type experts struct {
	name                   string
	layers, experts, steps int
	tokens                 int  // of a layer, over all of its experts
	skips                  int  // an expert gets no tokens with probability 1/skips; 0 for never
	late                   int  // number of frees that are pending at a time
	gathered               bool // what an expert gathers is on another stream
	alone                  bool // between two layers is something that data decide, far from anything else of that kind
}

var expertJobs = []experts{
	{name: "few", layers: 6, experts: 4, steps: 6, tokens: 4096, skips: 12},
	{name: "many", layers: 8, experts: 16, steps: 5, tokens: 16384, skips: 40},
	{name: "all have tokens", layers: 8, experts: 8, steps: 6, tokens: 8192},
	{name: "late frees", layers: 8, experts: 8, steps: 6, tokens: 8192, skips: 20, late: 6},
	{name: "two streams", layers: 8, experts: 8, steps: 6, tokens: 8192, skips: 20, late: 3, gathered: true},
	{name: "alone", layers: 8, experts: 8, steps: 6, tokens: 8192, skips: 20, alone: true},
}

// Bytes that an expert takes for a token: of its input and output, and of what is between its matrices.
const (
	tokenHidden = 1024
	tokenInner  = 1536
)

func (e experts) record(seed uint64) *trace.Device {
	x := &run{job: job{layers: e.layers, late: e.late}, r: rand.New(rand.NewPCG(seed, 41)), d: &trace.Device{}}
	for range e.layers * 4 {
		x.alloc(1 << 20)
	}
	for step := range e.steps {
		e.step(x, step == 0)
	}
	return x.d
}

func (e experts) step(x *run, first bool) {
	type worked struct {
		tokens trace.Bytes
		kept   []uint64
	}
	hidden := trace.Bytes(e.tokens) * tokenHidden / 2
	var layers [][]worked
	var constant []uint64
	for range e.layers {
		x.temporaries(3, hidden)
		if e.alone {
			x.temporaries(20, hidden/8)
			x.release(x.alloc(e.share(x.r)[0]*tokenHidden + 1<<17))
			x.temporaries(20, hidden/8)
		}
		constant = append(constant, x.alloc(hidden), x.alloc(4096))
		var layer []worked
		for _, n := range e.share(x.r) {
			if n > 0 {
				layer = append(layer, worked{n, e.forward(x, n)})
			}
		}
		layers = append(layers, layer)
	}
	for i := range slices.Backward(layers) {
		for _, w := range slices.Backward(layers[i]) {
			inner, outer := x.alloc(w.tokens*tokenInner), x.alloc(w.tokens*tokenHidden)
			x.release(w.kept...)
			x.release(inner, outer)
		}
		gradient := x.alloc(hidden)
		x.release(constant[2*i+1], constant[2*i], gradient)
	}
	x.mark(false)
	if first {
		for range e.layers * 8 {
			x.alloc(1 << 20)
		}
	}
	x.temporaries(e.layers, 1<<18)
	x.mark(true)
}

// forward is the work of an expert on so many tokens, and returns what it keeps for the backward pass.
func (e experts) forward(x *run, tokens trace.Bytes) []uint64 {
	if e.gathered {
		x.stream = 7
	}
	gathered := x.alloc(tokens * tokenHidden)
	x.stream = 0
	gate := x.alloc(tokens * tokenInner)
	up := x.alloc(tokens * tokenInner)
	x.temporaries(1, tokens*tokenHidden)
	return []uint64{gathered, gate, up}
}

// share is how many tokens each expert of a layer gets.
func (e experts) share(r *rand.Rand) []trace.Bytes {
	weights, sum := make([]float64, e.experts), 0.
	for i := range weights {
		if e.skips == 0 || r.IntN(e.skips) > 0 {
			weights[i] = 0.5 + r.Float64()
		}
		sum += weights[i]
	}
	out := make([]trace.Bytes, e.experts)
	left, last := trace.Bytes(e.tokens), 0
	for i, w := range weights {
		if w > 0 {
			out[i], last = trace.Bytes(float64(e.tokens)*w/sum), i
			left -= out[i]
		}
	}
	out[last] += left
	return out
}

// expertsShare calls back with the steady state of made-up runs of experts, with places that slots share and without.
func expertsShare(t *testing.T, call func(t *testing.T, tl *Timeline, without, with *Periodic, end End)) {
	for _, e := range expertJobs {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", e.name, seed), func(t *testing.T) {
				d := e.record(seed)
				tl := build(t, d)
				for _, end := range bothEnds {
					p, why := FindPeriodic(tl, find(t, d, tl), end)
					if p == nil {
						t.Fatalf("end %d: %s", end, why)
					}
					q := p.Shared(tl, find(t, d, tl), end)
					if q == nil {
						t.Fatalf("end %d: no slots share places", end)
					}
					call(t, tl, p, q, end)
				}
			})
		}
	}
}

// TestExpertsShareRoom: a place has room for all that lay in it at one time, in every recorded pass and in the prologue. Only
// slots of one phase and stream share one, and the first of them has it.
func TestExpertsShareRoom(t *testing.T) {
	expertsShare(t, func(t *testing.T, tl *Timeline, _, q *Periodic, end End) {
		g := &judge{t: t, tl: tl, p: q, end: end}
		g.locate()
		if t.Failed() {
			return
		}
		for x := range q.Bodies {
			slots := q.Bodies[x].Slots
			places := placesOf(len(slots), func(i int) int { return slots[i].Holder }, func(i int) bool { return slots[i].Holds })
			if len(places) == 0 {
				t.Errorf("end %d, body %d: no places", end, x)
			}
			for holder, members := range places {
				if len(members) == 1 {
					t.Errorf("end %d, body %d: nothing shares the place of slot %d, %+v", end, x, holder, slots[holder])
				}
				for _, i := range members {
					s := &slots[i]
					if i < holder || s.Stream != slots[holder].Stream || s.Size != slots[holder].Size || s.Cell >= 0 || s.Stray {
						t.Errorf("end %d, body %d: slot %d, %+v, shares the place of %d, %+v", end, x, i, *s, holder, slots[holder])
					}
					if end := s.Until(end, q.Bodies[x].Length); end > q.Bodies[x].Length {
						t.Errorf("body %d: slot %d shares a place and lives until %d", x, i, end)
					}
				}
				for j, pass := range q.Passes {
					if pass.Body == x {
						most := g.mostAtOnce(g.buffersOf(j, members))
						if most > slots[holder].Size {
							t.Errorf("end %d, pass %d: %d bytes in the place of slot %d, which has %d", end, j, most, holder, slots[holder].Size)
						}
					}
				}
			}
		}
		first := q.Prologue
		places := placesOf(len(first), func(i int) int { return int(first[i].Holder) }, func(i int) bool { return first[i].Holds })
		if len(places) == 0 {
			t.Errorf("end %d: no places in the prologue", end)
		}
		for holder, members := range places {
			if len(members) == 1 {
				t.Errorf("end %d, prologue: nothing shares the place of slot %d, %+v", end, holder, first[holder])
			}
			var buffers []int
			for _, i := range members {
				s, b := &first[i], &tl.Buffers[first[i].Buffer]
				if i < holder || b.Stream != tl.Buffers[first[holder].Buffer].Stream || s.Size != first[holder].Size || s.Cell >= 0 || s.Resident || b.Initial {
					t.Errorf("end %d: slot %d of the prologue, %+v, shares the place of %d, %+v", end, i, *s, holder, first[holder])
				}
				buffers = append(buffers, int(s.Buffer))
			}
			if most := g.mostAtOnce(buffers); most > first[holder].Size {
				t.Errorf("end %d, prologue: %d bytes in the place of slot %d, which has %d", end, most, holder, first[holder].Size)
			}
		}
	})
}

// placesOf are the slots in each place that several share, by the slot that has it. Every slot that says that others share
// its place is there.
func placesOf(slots int, holder func(i int) int, holds func(i int) bool) map[int][]int {
	places := map[int][]int{}
	for i := range slots {
		if holds(i) || holder(i) != i {
			places[holder(i)] = append(places[holder(i)], i)
		}
	}
	return places
}

// buffersOf are the buffers that a pass has in some slots.
func (g *judge) buffersOf(pass int, slots []int) []int {
	var out []int
	for i, slot := range g.slots[pass] {
		if slices.Contains(slots, slot) {
			out = append(out, g.ranges[pass][0]+i)
		}
	}
	return out
}

// mostAtOnce is the most bytes that some buffers take at a time of the recording. It is reached when one of them begins.
func (g *judge) mostAtOnce(buffers []int) trace.Bytes {
	var most trace.Bytes
	for _, at := range buffers {
		var live trace.Bytes
		for _, i := range buffers {
			if b := &g.tl.Buffers[i]; b.Start <= g.tl.Buffers[at].Start && b.Until(g.end) > g.tl.Buffers[at].Start {
				live += b.Size
			}
		}
		most = max(most, live)
	}
	return most
}

// span is a place that is kept for a time.
type span struct {
	start, end int
	size       trace.Bytes
}

// peakOf is the largest load below a time, and the first time with it.
func peakOf(spans []span, length int) PhasePeak {
	out := PhasePeak{}
	for at := range length {
		var load trace.Bytes
		for _, s := range spans {
			if s.start <= at && at < s.end {
				load += s.size
			}
		}
		if load > out.Bytes {
			out = PhasePeak{load, at}
		}
	}
	return out
}

// TestEnvelopeOfSharedPlaces: the load of a phase has each place from the start of the first slot in it until the last of their ends,
// as a whole, and nothing for the others.
func TestEnvelopeOfSharedPlaces(t *testing.T) {
	expertsShare(t, func(t *testing.T, tl *Timeline, _, q *Periodic, end End) {
		var want []PhasePeak
		var resident trace.Bytes
		at := map[int32]int{} // the span of each slot that has a place
		var spans []span
		for i, s := range q.Prologue {
			start, until := int(tl.Buffers[s.Buffer].Start), int(s.RequestedEnd)
			if end == EndCompleted {
				until = int(min(s.CompletedEnd, q.Cut))
			}
			if s.Resident || s.Cell >= 0 {
				until = int(q.Cut)
			}
			if s.Resident {
				resident += s.Size
			}
			if int(s.Holder) == i {
				at[s.Holder] = len(spans)
				size := s.Size
				if s.Cell >= 0 {
					size = q.Cells[s.Cell].Size
				}
				spans = append(spans, span{start, until, size})
			} else {
				of := &spans[at[s.Holder]]
				of.end = max(of.end, until)
			}
		}
		want = append(want, peakOf(spans, int(q.Cut)))
		for x := range q.Bodies {
			b := &q.Bodies[x]
			if b.Interlude {
				t.Fatal("an interlude, in a job without any")
			}
			spans := make([]span, len(b.Slots))
			until := func(s *Slot) int {
				if end == EndCompleted {
					return min(s.CompletedEnd, b.Length)
				}
				return s.RequestedEnd
			}
			for i := range b.Slots {
				if s := &b.Slots[i]; !s.Stray {
					if s.Holder == i {
						spans[i] = span{i, until(s), s.Size}
					} else {
						spans[s.Holder].end = max(spans[s.Holder].end, until(s))
					}
				}
			}
			for i := range b.Entering {
				spans = append(spans, span{0, until(&b.Entering[i]), b.Entering[i].Size})
			}
			peak := peakOf(spans, b.Length)
			peak.Bytes += resident
			want = append(want, peak)
		}
		if got := q.Envelope(tl, end); !slices.Equal(got, want) {
			t.Errorf("end %d: envelope %v, expected %v", end, got, want)
		}
	})
}

// TestSharedPlacesSave: with a place for each slot a plan takes more than any recorded pass did, as each expert had its most tokens in
// another one. Places that slots share spare most of that, and a fourth at least. A 16th of what is left is room (shareSlack).
func TestSharedPlacesSave(t *testing.T) {
	var with, without float64
	expertsShare(t, func(t *testing.T, tl *Timeline, p, q *Periodic, end End) {
		recorded := float64(p.PeakRecorded(tl, end).Bytes)
		apart, shared := float64(largest(p.Envelope(tl, end)))/recorded-1, float64(largest(q.Envelope(tl, end)))/recorded-1
		with, without = with+shared, without+apart
		if shared < 0 || shared > 0.15 || shared > 0.75*apart {
			t.Errorf("end %d: the envelope is %.4f above the recorded peak with shared places, %.4f without", end, shared, apart)
		}
	})
	t.Logf("%.2f of what places take above the recorded peaks is left if slots share them", with/without)
	if with > 0.35*without {
		t.Errorf("%.2f of what places take above the recorded peaks is left if slots share them, expected 0.35", with/without)
	}
}

// TestSharedLeavesTheOther: the steady state without shared places is the same as before.
func TestSharedLeavesTheOther(t *testing.T) {
	for _, e := range expertJobs {
		d := e.record(9)
		tl := build(t, d)
		for _, end := range bothEnds {
			before, _ := FindPeriodic(tl, find(t, d, tl), end)
			after, _ := FindPeriodic(tl, find(t, d, tl), end)
			if !reflect.DeepEqual(before, after) {
				t.Fatalf("%s, end %d: the same recording has two steady states", e.name, end)
			}
			if q := after.Shared(tl, find(t, d, tl), end); q == nil || reflect.DeepEqual(q, after) {
				t.Errorf("%s, end %d: nothing is shared", e.name, end)
			}
			if !reflect.DeepEqual(before, after) {
				t.Errorf("%s, end %d: another steady state after places were shared", e.name, end)
			}
		}
	}
}

// TestNothingToShare: if all sizes follow one length, they are all largest in the same pass, and a place for some of them is as
// large as places for each. So it is if they are constant, whether or not every pass has them.
func TestNothingToShare(t *testing.T) {
	for _, j := range []job{
		{name: "dense", layers: 12, micro: 2, steps: 5},
		{name: "one length", layers: 12, micro: 1, steps: 8, variableSizes: true},
		{name: "one length, recomputed", layers: 12, micro: 1, steps: 8, variableSizes: true, recompute: true},
		{name: "one length, late frees", layers: 12, micro: 1, steps: 8, variableSizes: true, late: 6},
		{name: "an extra tensor", layers: 8, micro: 2, steps: 6, extraIn: 4},
		{name: "constant experts", layers: 16, micro: 2, steps: 12, skips: 20},
	} {
		for seed := range uint64(4) {
			d := j.record(seed).d
			tl := build(t, d)
			for _, end := range bothEnds {
				p, why := FindPeriodic(tl, find(t, d, tl), end)
				if p == nil {
					t.Fatalf("%s, seed %d: %s", j.name, seed, why)
				}
				if q := p.Shared(tl, find(t, d, tl), end); q != nil {
					t.Errorf("%s, seed %d, end %d: the envelope is %v with shared places, %v without", j.name, seed, end, q.Envelope(tl, end), p.Envelope(tl, end))
				}
			}
		}
	}
}
