package compile

import (
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/synth"
)

// TestMicroBatchesOfOtherLengths: the first micro-batch of a step may be as long as the longest second one that was
// recorded. The plan has places for that, so the run keeps them and no memory moves.
func TestMicroBatchesOfOtherLengths(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	recorded := [][2]int64{{10, 9}, {8, 12}, {9, 11}, {10, 7}, {7, 12}}
	buffers, steps := accumulated(recorded)
	_, plan, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
	buffers, steps = accumulated(append(recorded, [][2]int64{{12, 8}, {11, 11}, {12, 12}, {8, 9}, {12, 7}, {10, 12}}...))
	program, _, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
	run := generations{program: program, plan: plan}
	n := run.serve(t, &run)
	if n.PlannedBytes < n.AllocationBytes/100*99 {
		t.Errorf("%d of %d B are on plan, expected 99 %%", n.PlannedBytes, n.AllocationBytes)
	}
	if n.MovedBytes > 0 || n.PeakReserved > n.PeakAllocated+n.PeakAllocated/100 {
		t.Errorf("%d B moved, expected none, and %d B are reserved for %d", n.MovedBytes, n.PeakReserved, n.PeakAllocated)
	}
}

// accumulated is a run of steps with two micro-batches each, of these lengths.
func accumulated(lengths [][2]int64) ([]synth.Buffer, []synth.Step) {
	p := program{}
	for _, step := range lengths {
		p.begin()
		for _, length := range step {
			for n := range 10 { // what a micro-batch does once, before its layers
				var inputs []int
				for range n {
					inputs = append(inputs, p.alloc(length<<14))
				}
				for _, of := range inputs {
					p.free(of)
				}
			}
			var kept []int
			for i := range 200 {
				kept = append(kept, p.alloc(int64(1+i%3)*length<<16))
				p.free(p.alloc(length << 17))
			}
			for i, of := range slices.Backward(kept) {
				p.free(p.alloc(int64(1+i%2) * length << 16))
				p.free(of)
			}
		}
		p.optimize(func() { p.free(p.alloc(1 << 20)) })
	}
	return p.buffers, p.steps
}
