package compile

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// steadyJob records a made-up training run: every step frees what the step
// before prefetched, runs layers forwards and backwards, prefetches for the next
// step, and steps the optimizer. Frees of the second stream complete later.
type steadyJob struct {
	r       *rand.Rand
	d       trace.Device
	next    uint64
	pending []trace.Event
}

func (j *steadyJob) event(e trace.Event) { j.d.Events = append(j.d.Events, e) }

func (j *steadyJob) alloc(size trace.Bytes, stream uint64) trace.Event {
	e := trace.Event{Action: trace.ActionAlloc, Addr: j.next, Size: size, Stream: stream, Stack: trace.None}
	j.next += uint64(size) + 1<<20
	j.event(e)
	return e
}

func (j *steadyJob) free(e trace.Event) {
	e.Action = trace.ActionFreeRequested
	j.event(e)
	e.Action = trace.ActionFreeCompleted
	j.pending = append(j.pending, e)
	for len(j.pending) > 3 || len(j.pending) > 0 && j.pending[0].Stream == 0 {
		j.event(j.pending[0])
		j.pending = j.pending[1:]
	}
}

func (j *steadyJob) mark(name string) {
	at := trace.Time(len(j.d.Events))
	j.d.Annotations = append(j.d.Annotations, trace.Annotation{Name: name, At: at}, trace.Annotation{Name: name, At: at, End: true})
}

// record runs steps with the given layers; sizes differ from step to
// step if varying.
func (j *steadyJob) record(steps, layers, prefetched int, varying bool) {
	for range layers {
		j.alloc(trace.Bytes(1+j.r.IntN(40))<<10, 0)
	}
	acts := make([]trace.Bytes, layers)
	for i := range acts {
		acts[i] = trace.Bytes(1+j.r.IntN(60)) << 10
	}
	var inputs []trace.Event
	for step := range steps {
		scale := trace.Bytes(1)
		if varying {
			scale += trace.Bytes(j.r.IntN(3))
		}
		var kept []trace.Event
		for i, size := range acts {
			kept = append(kept, j.alloc(size*scale, uint64(i%3/2)*32))
			if i < len(inputs) {
				j.free(inputs[i])
			}
			j.free(j.alloc(3*size*scale/2, 0))
		}
		inputs = inputs[:0]
		for range prefetched {
			inputs = append(inputs, j.alloc(7<<10*scale, 32))
		}
		slices.Reverse(kept)
		for _, e := range kept {
			grad := j.alloc(e.Size/2, 0)
			j.free(e)
			j.free(grad)
		}
		j.mark("Optimizer.step#SGD.step")
		if step == 0 {
			j.alloc(64<<10, 0)
		}
	}
}

// TestPeriodicCompile: whatever repeats gets a periodic plan that proves itself
// and its recording, whichever waits are forbidden, and that unrolls to its own
// makespan.
func TestPeriodicCompile(t *testing.T) {
	cells := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 8))
		j := &steadyJob{r: r, next: 1 << 20}
		layers := 3 + r.IntN(9)
		j.record(4+r.IntN(4), layers, r.IntN(min(4, layers)), seed%3 == 0)
		rec := &trace.Trace{Name: "made up", Devices: []trace.Device{j.d}}
		opt := Options{Mode: planfile.ModePeriodic, NoCrossStream: seed%4 == 1, NoReusePending: seed%4 > 1, Producer: "test"}
		p, sum, err := Compile(context.Background(), rec, opt)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		d := &p.Devices[0]
		cells += sum.Devices[0].Steady.Cells
		if d.Mode != planfile.ModePeriodic || len(d.Passes) < 2 {
			t.Fatalf("seed %d: mode %v with %d passes", seed, d.Mode, len(d.Passes))
		}
		if v := append(verify.Plan(p, nil), verify.AgainstTrace(p, rec)...); len(v) > 0 {
			t.Fatalf("seed %d: %s", seed, v[0].Message)
		}
		if _, err := planfile.Encode(p); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := unrolledMakespan(t, d); got != d.ArenaBytes {
			t.Fatalf("seed %d: unrolled to %d bytes, the plan has %d", seed, got, d.ArenaBytes)
		}
		if d.Certificate.Kind == planfile.BoundLoad && d.Certificate.Gap*20 > d.Certificate.LowerBound {
			t.Errorf("seed %d: gap of %d to %d bytes", seed, d.Certificate.Gap, d.Certificate.LowerBound)
		}
	}
	if cells < 60 {
		t.Errorf("%d cells in all, expected the prefetched inputs to need more", cells)
	}
}

// unrolledMakespan is the largest offset + size of two rounds as CSV.
func unrolledMakespan(t *testing.T, d *planfile.Device) uint64 {
	var out bytes.Buffer
	if err := report.WriteSlots(&out, d, 2); err != nil {
		t.Fatal(err)
	}
	var most uint64
	for i, line := range bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
		var id string
		var lower, upper, size, offset uint64
		if i == 0 {
			continue
		}
		if _, err := fmt.Sscanf(string(bytes.ReplaceAll(line, []byte(","), []byte(" "))), "%s %d %d %d %d", &id, &lower, &upper, &size, &offset); err != nil {
			t.Fatalf("row %d: %q: %v", i, line, err)
		}
		most = max(most, offset+size)
	}
	return most
}
