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
