//go:build cgo

package compile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// evaluatedJob is a training run that evaluates between its steps. It allocates
// in MiB, so that what a run reserves is what its plan takes.
type evaluatedJob struct {
	steadyJob
	acts       []trace.Bytes
	prefetched int // inputs that a step fetches for the next one
	varying    bool
	inputs     []trace.Event
	scales     int // batches so far
}

func newEvaluatedJob(seed uint64) *evaluatedJob {
	r := rand.New(rand.NewPCG(seed, 21))
	j := &evaluatedJob{steadyJob: steadyJob{r: r, next: 1 << 30}, prefetched: r.IntN(3), varying: r.IntN(3) == 0}
	for range 12 + r.IntN(20) {
		j.alloc(trace.Bytes(2+2*r.IntN(20))<<20, 0)
		j.acts = append(j.acts, trace.Bytes(2+2*r.IntN(30))<<20)
	}
	return j
}

// scale is by what this batch is longer than the shortest. Any three steady steps
// have the longest.
func (j *evaluatedJob) scale() trace.Bytes {
	j.scales++
	if j.varying {
		return trace.Bytes(1 + j.scales%3)
	}
	return 1
}

func (j *evaluatedJob) step(first bool) {
	scale := j.scale()
	var kept []trace.Event
	for i, size := range j.acts {
		kept = append(kept, j.alloc(size*scale, 0))
		if i < len(j.inputs) {
			j.free(j.inputs[i])
		}
		j.free(j.alloc(size*scale+4<<20, 0))
	}
	j.inputs = j.inputs[:0]
	for range j.prefetched {
		j.inputs = append(j.inputs, j.alloc(6<<20, 32))
	}
	slices.Reverse(kept)
	for _, e := range kept {
		grad := j.alloc(e.Size/4*2, 0)
		j.free(e)
		j.free(grad)
	}
	j.mark("Optimizer.step#SGD.step")
	if first {
		j.alloc(64<<20, 0)
	}
}

// evaluate holds two activations at a time, over some batches, and keeps the
// outputs of all of them until its end.
func (j *evaluatedJob) evaluate() {
	var outputs []trace.Event
	for range 3 {
		scale := j.scale()
		last := j.alloc(8<<20*scale, 0)
		for _, size := range j.acts {
			next := j.alloc(size*scale, 0)
			j.free(last)
			last = next
		}
		outputs = append(outputs, j.alloc(2<<20*scale, 0))
		j.free(last)
	}
	for _, e := range outputs {
		j.free(e)
	}
}

// record plays steps (t) and evaluations (e), and cuts off a part of the last
// one, in parts of 8.
func (j *evaluatedJob) record(program string, cut int) *trace.Trace {
	steps := 0
	for i, part := range program {
		begin := len(j.d.Events)
		if part == 'e' {
			j.evaluate()
		} else {
			j.step(steps == 0)
			steps++
		}
		if i == len(program)-1 {
			j.d.Events = j.d.Events[:len(j.d.Events)-(len(j.d.Events)-begin)*cut/8]
		}
	}
	end := trace.Time(len(j.d.Events))
	j.d.Annotations = slices.DeleteFunc(j.d.Annotations, func(a trace.Annotation) bool { return a.At > end })
	return &trace.Trace{Name: program, Devices: []trace.Device{j.d}}
}

// TestEvaluations: a recording with evaluations, and however that ends, is served by its
// own plan in the plan's bytes. Steps and evaluations begin alike, so that a block
// or two of an evaluation that stands alone may find their places taken. Where
// sizes vary, what is cut off may be longer than what the plan has seen. The plan
// proves itself and its recording, and unrolls to its own makespan.
func TestEvaluations(t *testing.T) {
	for _, c := range []struct {
		program    string
		cut        int
		interludes int
	}{
		{"ttttt", 0, 0},
		{"ttttt", 3, 0},
		{"tttttt", 6, 0},
		{"tttte", 0, 1},
		{"tttttte", 0, 1},
		{"tttte", 3, 1},
		{"ttttet", 3, 1},
		{"ttttee", 0, 1},
		{"ttetetetetet", 0, 0},
		{"ttetetetete", 0, 0},
		{"ttetetetete", 4, 0},
	} {
		seeds := uint64(12)
		if !large() {
			seeds = 5
		}
		if testing.Short() {
			seeds = 2
		}
		for seed := range seeds {
			name := fmt.Sprintf("%s, %d/8 cut off, seed %d", c.program, c.cut, seed)
			j := newEvaluatedJob(seed)
			rec := j.record(c.program, c.cut)
			for _, forbid := range []Options{{NoReusePending: true}, {NoCrossStream: true}} {
				planOf(t, rec, forbid)
			}
			p, interludes := planOf(t, rec, Options{})
			dev := &p.Devices[0]
			if interludes != c.interludes {
				t.Errorf("%s: %d interludes, expected %d", name, interludes, c.interludes)
			}
			if got := unrolledMakespan(t, dev); got != dev.ArenaBytes {
				t.Errorf("%s: unrolled to %d bytes, the plan has %d", name, got, dev.ArenaBytes)
			}
			served := drive(t, rec, p, true)
			if off := served.Allocations - served.PlannedAllocations; !j.varying && off > uint64(2*c.interludes) {
				t.Errorf("%s: %d of %d allocations off plan", name, off, served.Allocations)
			} else if off == 0 && (served.PeakReserved < dev.ArenaBytes || served.PeakReserved > dev.ArenaBytes+stretches(j, dev)) {
				t.Errorf("%s: %d B reserved, the plan takes %d", name, served.PeakReserved, dev.ArenaBytes)
			}
		}
	}
}

// stretches is how much more than a plan the runtime may take by it: a 64th if large sizes vary, as
// the places then follow them (runtime/cuda/match_layout.h).
func stretches(j *evaluatedJob, dev *planfile.Device) uint64 {
	if !j.varying {
		return 0
	}
	return dev.ArenaBytes / 64
}

// planOf compiles a recording and verifies the plan.
func planOf(t *testing.T, rec *trace.Trace, opt Options) (p *planfile.Plan, interludes int) {
	opt.Mode, opt.Producer = planfile.ModePeriodic, "test"
	p, _, err := Compile(context.Background(), rec, opt)
	if err != nil {
		t.Fatalf("%s: %v", rec.Name, err)
	}
	if v := append(verify.Plan(p, nil), verify.AgainstTrace(p, rec)...); len(v) > 0 {
		t.Fatalf("%s: %s", rec.Name, v[0].Message)
	}
	for _, phase := range p.Devices[0].Phases {
		if phase.Kind == planfile.PhaseInterlude {
			interludes++
		}
	}
	return p, interludes
}
