//go:build cgo

package compile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// expertJob is a training run of a mixture of experts: data decide how many tokens each of them gets, and all of a layer together get
// the same number. Each allocates as many bytes as its tokens take, and keeps some for the backward pass.
type expertJob struct {
	steadyJob
	expertModel
}

type expertModel struct {
	layers, experts int
	tokens          int    // of a layer, over all of its experts
	skips           int    // an expert gets no tokens with probability 1/skips
	gathered        uint64 // the stream of what an expert gathers
}

// Bytes that an expert takes for a token: of its input and output, and of what is between its matrices.
const (
	tokenHidden = 4096
	tokenInner  = 6144
)

func (m expertModel) record(seed uint64, steps int) *trace.Trace {
	j := &expertJob{steadyJob{r: rand.New(rand.NewPCG(seed, 43)), next: 1 << 30}, m}
	for range 4 * m.layers {
		j.alloc(16<<20, 0)
	}
	for step := range steps {
		j.step(step == 0)
	}
	return &trace.Trace{Name: fmt.Sprintf("seed %d, %d steps", seed, steps), Devices: []trace.Device{j.d}}
}

func (j *expertJob) step(first bool) {
	type worked struct {
		tokens trace.Bytes
		kept   []trace.Event
	}
	hidden := trace.Bytes(j.tokens) * tokenHidden / 2
	var layers [][]worked
	var kept []trace.Event
	for range j.layers {
		j.free(j.alloc(hidden, 0))
		kept = append(kept, j.alloc(hidden, 0))
		j.free(j.alloc(4<<20, 0))
		var layer []worked
		for _, n := range j.shares() {
			if n > 0 {
				layer = append(layer, worked{n, []trace.Event{j.alloc(n*tokenHidden, j.gathered), j.alloc(n*tokenInner, 0), j.alloc(n*tokenInner, 0)}})
				j.free(j.alloc(n*tokenHidden, 0))
			}
		}
		layers = append(layers, layer)
	}
	for i, layer := range slices.Backward(layers) {
		for _, w := range slices.Backward(layer) {
			inner, outer := j.alloc(w.tokens*tokenInner, 0), j.alloc(w.tokens*tokenHidden, 0)
			for _, e := range w.kept {
				j.free(e)
			}
			j.free(inner)
			j.free(outer)
		}
		gradient := j.alloc(hidden, 0)
		j.free(kept[i])
		j.free(gradient)
	}
	j.annotate(false)
	if first {
		for range 8 * j.layers {
			j.alloc(16<<20, 0)
		}
	}
	j.annotate(true)
}

// annotate says that the optimizer begins or ends. It makes its state in between.
func (j *expertJob) annotate(end bool) {
	j.d.Annotations = append(j.d.Annotations, trace.Annotation{Name: "Optimizer.step#AdamW.step", At: trace.Time(len(j.d.Events)), End: end})
}

// shares is how many tokens each expert of a layer gets.
func (j *expertJob) shares() []trace.Bytes {
	weights, sum := make([]float64, j.experts), 0.
	for i := range weights {
		if j.r.IntN(j.skips) > 0 {
			weights[i] = 0.5 + j.r.Float64()
		}
		sum += weights[i]
	}
	out := make([]trace.Bytes, j.experts)
	left, last := trace.Bytes(j.tokens), 0
	for i, w := range weights {
		if w > 0 {
			out[i], last = trace.Bytes(float64(j.tokens)*w/sum), i
			left -= out[i]
		}
	}
	out[last] += left
	return out
}

var expertModels = []expertModel{
	{layers: 8, experts: 16, tokens: 32768, skips: 100},
	{layers: 6, experts: 8, tokens: 32768, skips: 60},
	{layers: 8, experts: 16, tokens: 65536, skips: 100, gathered: 32},
}

// expertRecordings calls back with each model and the seeds of its recordings. The runs that their plans have not seen have others.
func expertRecordings(call func(m expertModel, seed uint64)) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for _, m := range expertModels {
		for seed := range seeds {
			call(m, seed)
		}
	}
}

// withReserved is a recording that says that so many times what was live at its peak was reserved.
func withReserved(t *testing.T, rec *trace.Trace, share float64) *trace.Trace {
	t.Helper()
	d := rec.Devices[0]
	tl, err := lifespan.Build(&d)
	if err != nil {
		t.Fatal(err)
	}
	segment := trace.Event{Action: trace.ActionSegmentAlloc, Addr: 1 << 60, Size: trace.Bytes(share * float64(tl.PeakActive.Bytes)), Stack: trace.None}
	d.Events, d.Annotations = slices.Insert(slices.Clone(d.Events), 0, segment), slices.Clone(d.Annotations)
	for i := range d.Annotations {
		d.Annotations[i].At++
	}
	return &trace.Trace{Name: rec.Name, Devices: []trace.Device{d}}
}

// provesItself is a plan of these recordings that has passed both verifications.
func provesItself(t *testing.T, opt Options, recs ...*trace.Trace) *planfile.Plan {
	t.Helper()
	opt.Producer = "test"
	var p *planfile.Plan
	var err error
	of := recs[0]
	if len(recs) == 1 {
		p, _, err = Compile(context.Background(), of, opt)
	} else if p, _, err = Merge(context.Background(), recs, opt); err == nil {
		of, err = Join(recs, nil)
	}
	if err != nil {
		t.Fatalf("%s: %v", of.Name, err)
	}
	if v := append(verify.Plan(p, nil), verify.AgainstTrace(p, of)...); len(v) > 0 {
		t.Fatalf("%s: %s", of.Name, v[0].Message)
	}
	data, err := planfile.Encode(p)
	if err != nil {
		t.Fatalf("%s: %v", of.Name, err)
	}
	if p, err = planfile.Decode(data); err != nil {
		t.Fatalf("%s: %v", of.Name, err)
	}
	return p
}

// TestExpertsSharePlaces: a plan whose slots share places takes little more than the recorded run had allocated. One with a place for each
// slot, which is made if nothing serves the recording, takes three times as much beyond that. Other runs of the same program, with other tokens for each
// expert and more steps, follow the plan, and reserve what they allocate.
//
// The pool alone serves so regular a program as well, so the plan is advised against, which is not looked at here.
func TestExpertsSharePlaces(t *testing.T) {
	expertRecordings(func(m expertModel, seed uint64) {
		rec := m.record(seed, 6)
		p := provesItself(t, Options{Mode: planfile.ModePeriodic, Serve: simdevice.Serve}, rec)
		without := provesItself(t, Options{Mode: planfile.ModePeriodic}, rec)
		dev := &p.Devices[0]
		slots, places := dev.CountShared()
		of := func(d *planfile.Device) float64 { return float64(d.ArenaBytes) / float64(d.PeakAllocated) }
		said := fmt.Sprintf("%+v, seed %d: %d slots share %d places, %.4f of the peak, %.4f without", m, seed, slots, places, of(dev), of(&without.Devices[0]))
		t.Log(said)
		if !dev.Shares() || without.Devices[0].Shares() || slots < 10*places || of(dev) > 1.08 || of(&without.Devices[0]) < 1+3*(of(dev)-1) {
			t.Error(said)
		}
		withoutAdvice(p)
		for i, steps := range []int{6, 6, 9} {
			run := m.record(seed+20*uint64(i+1), steps)
			n := drive(t, run, p, true)
			reserved, planned, moved := float64(n.PeakReserved)/float64(n.PeakAllocated), float64(n.PlannedBytes)/float64(n.AllocationBytes), float64(n.MovedBytes)/float64(n.PeakReserved)
			said := fmt.Sprintf("the plan of %+v, seed %d, serves %s: %.4f reserved, %.4f on plan, %.3f moved", m, seed, run.Name, reserved, planned, moved)
			t.Log(said)
			if reserved > 1.01 || planned < 0.95 || moved > 0.4 {
				t.Error(said)
			}
		}
	})
}

// TestSharedPlacesWithOptions: whatever waits are forbidden, and whatever the plan is made for, it proves itself. It has shared places
// because one with a place for each slot is not worth it.
func TestSharedPlacesWithOptions(t *testing.T) {
	for i, m := range expertModels {
		seed := uint64(i)
		rec := withReserved(t, m.record(seed, 6), 1.15)
		for name, opt := range map[string]Options{
			"as it is":         {},
			"no cross-stream":  {NoCrossStream: true},
			"no reuse pending": {NoReusePending: true},
			"neither":          {NoCrossStream: true, NoReusePending: true},
			"for more":         {MaxScale: 1.5},
			"for much more":    {MaxScale: 40}, // one slot alone would have more than its place
			"served, for more": {Serve: simdevice.Serve, MaxScale: 1.2},
			"periodic, served": {Mode: planfile.ModePeriodic, Serve: simdevice.Serve},
		} {
			p := provesItself(t, opt, rec)
			dev := &p.Devices[0]
			if dev.Mode != planfile.ModePeriodic || !dev.Shares() {
				t.Errorf("%+v, seed %d, %s: a plan of mode %v, with shared places: %v", m, seed, name, dev.Mode, dev.Shares())
			}
			for _, w := range dev.Waits {
				if opt.NoCrossStream && w.Kind&planfile.WaitCrossStream != 0 || opt.NoReusePending && w.Kind&planfile.WaitPending != 0 {
					t.Fatalf("%+v, seed %d, %s: a wait that is forbidden, %+v", m, seed, name, w)
				}
			}
			if n := drive(t, rec, withoutAdvice(p), true); n.PlannedBytes < n.AllocationBytes/100*95 {
				t.Errorf("%+v, seed %d, %s: the plan serves %d of %d MiB of its own recording", m, seed, name, n.PlannedBytes>>20, n.AllocationBytes>>20)
			}
		}
	}
}

// TestSharedPlacesThatDoNotPay: the plan is of the recorded process if no other one is worthwhile but that with shared places, and the
// pool serves the recording better than that. It serves a run that does the same.
func TestSharedPlacesThatDoNotPay(t *testing.T) {
	m := expertModels[0]
	rec := withReserved(t, m.record(0, 6), 1.15)
	pool := replay.Cost{Reserved: 1 << 33}
	serve := func(_ *replay.Program, plan []byte, _ int) (replay.Cost, error) {
		p, err := planfile.Decode(plan)
		if plan != nil && err == nil && p.Devices[0].Mode == planfile.ModePeriodic {
			return replay.Cost{Reserved: pool.Reserved * 2}, nil
		}
		return pool, nil
	}
	dev := &provesItself(t, Options{Serve: serve}, rec).Devices[0]
	if dev.Mode != planfile.ModeRecorded || dev.Advice != planfile.AdviceNone {
		t.Errorf("a plan of mode %v with the advice %q", dev.Mode, dev.Advice)
	}
}

// TestPlansOfExpertsProveThemselves: what no other slot shares its place with counts with the bytes that were requested. In one of these
// recordings such a slot is live at the peak.
func TestPlansOfExpertsProveThemselves(t *testing.T) {
	first := uint64(0)
	if testing.Short() {
		first = 10
	}
	for seed := first; seed < 12; seed++ {
		p := provesItself(t, Options{Mode: planfile.ModePeriodic, Serve: simdevice.Serve}, expertModels[2].record(seed, 6))
		if !p.Devices[0].Shares() {
			t.Errorf("seed %d: no slots share places", seed)
		}
	}
}

func withoutAdvice(p *planfile.Plan) *planfile.Plan {
	for i := range p.Devices {
		p.Devices[i].Advice = planfile.AdviceNone
	}
	return p
}

// TestSharedPlacesOfTwoRecordings: two runs with other tokens for each expert have one plan, whose places have room for what
// either had in them. It serves a third run.
func TestSharedPlacesOfTwoRecordings(t *testing.T) {
	expertRecordings(func(m expertModel, seed uint64) {
		a, b := withReserved(t, m.record(seed, 4), 1.15), withReserved(t, m.record(seed+10, 5), 1.15)
		for name, opt := range map[string]Options{"not served": {}, "served": {Mode: planfile.ModePeriodic, Serve: simdevice.Serve}, "no cross-stream": {NoCrossStream: true}} {
			p := provesItself(t, opt, a, b)
			if dev := &p.Devices[0]; !dev.Shares() || len(dev.Passes) < 3+4-1 {
				t.Errorf("%+v, seed %d, %s: %d passes, shared places: %v", m, seed, name, len(dev.Passes), dev.Shares())
			}
			n := drive(t, m.record(seed+20, 6), withoutAdvice(p), true)
			if n.PlannedBytes < n.AllocationBytes/100*90 {
				t.Errorf("%+v, seed %d, %s: the plan serves %d of %d MiB of another run", m, seed, name, n.PlannedBytes>>20, n.AllocationBytes>>20)
			}
		}
	})
}

// TestSharedPlacesAreChosen: the plan with shared places is taken unless it serves the recording clearly worse.
func TestSharedPlacesAreChosen(t *testing.T) {
	const reserved = 1 << 33
	within := int64(reserved / paysWithin)
	rec := expertModels[1].record(1, 6)
	for _, c := range []struct {
		shared replay.Cost // of the plan with shared places; that of the other one reserves 8 GiB and moves 1
		want   bool
	}{
		{replay.Cost{Reserved: reserved, Moved: reserved / 8}, true},
		{replay.Cost{Reserved: reserved + within/2, Moved: reserved / 8}, true},
		{replay.Cost{Reserved: reserved + 2*within, Moved: 0}, false},
		{replay.Cost{Reserved: reserved, Moved: reserved}, false},
		{replay.Cost{Reserved: reserved - 2*within, Moved: 0}, true},
	} {
		serve := func(_ *replay.Program, plan []byte, _ int) (replay.Cost, error) {
			p, err := planfile.Decode(plan)
			if plan != nil && err == nil && p.Devices[0].Shares() {
				return c.shared, nil
			}
			return replay.Cost{Reserved: reserved, Moved: reserved / 8}, nil
		}
		p := provesItself(t, Options{Mode: planfile.ModePeriodic, Serve: serve}, rec)
		if got := p.Devices[0].Shares(); got != c.want {
			t.Errorf("shared places cost %+v: chosen %v, expected %v", c.shared, got, c.want)
		}
	}
}
