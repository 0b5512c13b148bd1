package compile

import (
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/synth"
)

// TestUnknownEvaluation: a plan of steps alone is suspended in an evaluation that it does not know, and
// served again from the end of the next step on, although the pool's blocks of that step lie among its places.
func TestUnknownEvaluation(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	const before, behind = 4, 6
	buffers, steps := evaluated(before, 0, 0)
	_, plan, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
	buffers, steps = evaluated(before, 8000, behind)
	program, _, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
	run := generations{program: program, plan: plan}
	n := run.serve(t, &run)
	if want := uint64(before+behind-1) * (layersOfStep + 1); n.PlannedAllocations < want {
		t.Errorf("%d of %d requests are served, expected %d: those of all steps but the first one behind the evaluation", n.PlannedAllocations, n.Allocations, want)
	}
}

// layersOfStep is how many buffers a step of evaluated keeps for its backward pass.
const layersOfStep = 3000

// evaluated is a run of `before` steps, an evaluation that makes `requests` requests, and `behind` more steps.
func evaluated(before, requests, behind int) ([]synth.Buffer, []synth.Step) {
	p := program{}
	step := func() {
		p.begin()
		var kept []int
		for i := range layersOfStep {
			kept = append(kept, p.alloc(int64(64+i%5*16)<<10))
		}
		for _, i := range slices.Backward(kept) {
			p.free(i)
		}
		p.optimize(func() { p.free(p.alloc(1 << 20)) })
	}
	for range before {
		step()
	}
	last := -1
	for range requests {
		next := p.alloc(24 << 20)
		if last >= 0 {
			p.free(last)
		}
		last = next
	}
	if last >= 0 {
		p.free(last)
	}
	for range behind {
		step()
	}
	return p.buffers, p.steps
}

// TestEvaluationOfUnrecordedLengths: an evaluation begins as the next step does, and its batches are of other lengths than
// any that were recorded in it. The first one fits the step's forward pass, in which any length was; the run is found in the evaluation
// all the same, when its second one begins.
func TestEvaluationOfUnrecordedLengths(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	steps := []int64{13, 16, 11, 14, 12, 15, 16, 12}
	recorded := map[int][]int64{2: {14, 15, 14}, 5: {15, 14, 15}}
	buffers, marks := withEvaluations(steps, recorded)
	_, plan, _ := programAndPlanOf(t, training(buffers, marks), Options{Producer: "test", Mode: planfile.ModePeriodic})
	served := map[int][]int64{2: {14, 15, 14}, 5: {15, 14, 15}, 8: {12, 17, 11}, 11: {16, 12, 18}}
	buffers, marks = withEvaluations(append(steps, 13, 15, 14, 11, 16, 12), served)
	program, _, _ := programAndPlanOf(t, training(buffers, marks), Options{Producer: "test", Mode: planfile.ModePeriodic})
	run := generations{program: program, plan: plan}
	n := run.serve(t, &run)
	if n.PlannedAllocations < n.Allocations/100*99 {
		t.Errorf("%d of %d requests are on plan, expected 99 %%", n.PlannedAllocations, n.Allocations)
	}
}

// withEvaluations is a run of steps of one batch each, of these lengths, and behind some of them an evaluation of batches of these. A
// batch of an evaluation is forgotten layer by layer.
func withEvaluations(lengths []int64, evaluations map[int][]int64) ([]synth.Buffer, []synth.Step) {
	p := program{}
	batch := func(length int64, layer func(of, temporary int)) {
		ids := p.alloc(length << 10)
		embedded := p.alloc(length << 19)
		for i := range 300 {
			temporary := p.alloc(length << 15)
			layer(p.alloc(int64(1+i%3)*length<<16), temporary)
		}
		logits := p.alloc(length << 25)
		p.free(embedded)
		p.free(ids)
		p.free(logits)
	}
	for i, length := range lengths {
		p.begin()
		var kept []int
		batch(length, func(of, temporary int) {
			kept = append(kept, of)
			p.free(temporary)
		})
		for _, of := range slices.Backward(kept) {
			p.free(p.alloc(1 << 20))
			p.free(of)
		}
		p.optimize(func() { p.free(p.alloc(1 << 20)) })
		for _, length := range evaluations[i] {
			var last []int
			batch(length, func(of, temporary int) {
				for _, i := range last {
					p.free(i)
				}
				last = []int{of, temporary}
			})
			for _, i := range last {
				p.free(i)
			}
		}
	}
	return p.buffers, p.steps
}
