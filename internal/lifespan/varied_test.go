package lifespan

import (
	"fmt"
	"testing"

	"github.com/stplan/stplan/internal/synth"
	"github.com/stplan/stplan/internal/trace"
)

// varied are programs whose iterations differ.
var varied = []struct {
	name string
	synth.Training
	// mistaken is the number of seeds of 20 whose steps cannot be found without annotations.
	mistaken int
}{
	{"accumulation", synth.Training{Layers: 6, MicroBatches: [2]int{4}, Steps: 5}, 0},
	{"accumulation, gradients kept", synth.Training{Layers: 6, MicroBatches: [2]int{4}, Steps: 5, KeepGrads: true}, 0},
	{"accumulation, fused optimizer", synth.Training{Layers: 6, MicroBatches: [2]int{4}, Steps: 5, Fused: true}, 0},
	// Steps that are several times as long as others hardly look like repetitions.
	{"accumulation of any number", synth.Training{Layers: 6, MicroBatches: [2]int{2, 7}, Steps: 8}, 15},
	{"lengths", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 6, Lengths: true}, 0},
	{"lengths, outputs held", synth.Training{Layers: 6, MicroBatches: [2]int{1}, Steps: 6, Lengths: true, HoldOutputs: true}, 0},
	{"buckets", synth.Training{Layers: 24, MicroBatches: [2]int{1}, Steps: 10, Buckets: 8}, 0},
	{"few buckets", synth.Training{Layers: 24, MicroBatches: [2]int{1}, Steps: 10, Buckets: 3}, 0},
	{"buckets, lengths and accumulation", synth.Training{Layers: 24, MicroBatches: [2]int{2}, Steps: 9, Buckets: 6, Lengths: true}, 2},
	{"buckets and evaluation", synth.Training{Layers: 24, MicroBatches: [2]int{1}, Steps: 12, Buckets: 4, EvaluateEach: 4, Batches: 3}, 0},
	{"generation", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 6, Tokens: [2]int{48}}, 0},
	{"generation that stops early", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 6, Tokens: [2]int{8, 64}}, 0},
	{"generation, lengths", synth.Training{Layers: 6, MicroBatches: [2]int{3}, Steps: 8, Tokens: [2]int{16, 96}, Lengths: true}, 0},
	{"evaluation", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 8, EvaluateEach: 4, Batches: 5}, 0},
	// Two steps and an evaluation are found as one iteration: they look like two
	// micro-batches and an optimizer's step.
	{"evaluation of one batch", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 8, EvaluateEach: 2, Batches: 1}, 20},
	{"checkpoints", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 9, SaveEach: 3}, 0},
	{"evaluation, checkpoints, lengths", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 12, Lengths: true, EvaluateEach: 4, Batches: 4, SaveEach: 6}, 0},
}

// deviceOf records made-up buffers. A time of theirs is the event's index.
func deviceOf(buffers []synth.Buffer, steps []synth.Step) *trace.Device {
	events := map[int64]trace.Event{}
	for i, b := range buffers {
		addr := uint64(i+1) << 32
		events[b.Start] = trace.Event{Action: trace.ActionAlloc, Addr: addr, Size: trace.Bytes(b.Size)}
		if b.End != synth.Never {
			events[b.End] = trace.Event{Action: trace.ActionFreeCompleted, Addr: addr}
		}
	}
	d := &trace.Device{}
	for t := range int64(len(events)) {
		d.Events = append(d.Events, events[t])
	}
	for _, s := range steps {
		name := "Optimizer.step#AdamW.step"
		d.Annotations = append(d.Annotations,
			trace.Annotation{Name: name, At: trace.Time(s.Optimizer)}, trace.Annotation{Name: name, At: trace.Time(s.End), End: true})
	}
	return d
}

// TestVaried finds the steps of programs whose iterations differ, with annotations and
// without.
func TestVaried(t *testing.T) {
	for _, v := range varied {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			mistaken := 0
			for seed := range uint64(20) {
				buffers, steps := v.Generate(seed)
				d := deviceOf(buffers, steps)
				tl := build(t, d)
				marked := find(t, d, tl)
				if marked.Count != len(steps) || marked.SteadyCount < len(steps)-2 {
					t.Errorf("seed %d: %d iterations with annotations, %d steady, expected %d", seed, marked.Count, marked.SteadyCount, len(steps))
				}
				if why := differFromSteps(find(t, withoutAnnotations(d), tl), steps); why != "" {
					t.Logf("seed %d: %s", seed, why)
					mistaken++
				}
			}
			if mistaken > v.mistaken {
				t.Errorf("the steps of %d of 20 programs were not found, expected %d at most", mistaken, v.mistaken)
			}
		})
	}
}

// differFromSteps compares iterations with the steps of a program. What runs between two
// steps, such as an evaluation, may belong to either.
func differFromSteps(it Iterations, steps []synth.Step) string {
	if it.Count != len(steps) {
		return fmt.Sprintf("%d iterations, %v, expected %d", it.Count, it.Starts, len(steps))
	}
	for i, s := range steps {
		low, high := trace.Time(s.End), it.Starts[it.Count]
		if i+1 < len(steps) {
			high = trace.Time(steps[i+1].Begin)
		}
		slack := trace.Time(s.End-s.Begin) / 6
		if got := it.Starts[i+1]; got < low-slack || got > high+slack {
			return fmt.Sprintf("iteration %d ends at %d, expected in [%d, %d] or near", i, got, low, high)
		}
	}
	if it.SteadyCount != len(steps)-1 {
		return fmt.Sprintf("%d steady iterations, expected %d", it.SteadyCount, len(steps)-1)
	}
	return ""
}
