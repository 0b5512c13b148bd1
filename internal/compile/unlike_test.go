package compile

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/synth"
)

// TestOtherBatchesUnderAPlan: a run has twice the samples in a batch, half of their length, or its batches in another order than those
// of which the plan was made, and finds its way. Some tiny buffers follow the number of samples, which no law knows, and the
// evaluation's lengths were not recorded there. What is reserved stays within the bound of docs/runtime.md, "A plan's memory".
func TestOtherBatchesUnderAPlan(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	lengths := []int64{16, 10, 12, 8, 16, 10, 12, 8, 16, 10, 12, 8, 16, 10, 12, 8}
	halves := make([]int64, len(lengths))
	for i, length := range lengths {
		halves[i] = length / 2
	}
	buffers, steps := sampled(8, lengths)
	_, plan, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
	for _, c := range []struct {
		name    string
		samples int64
		lengths []int64
	}{
		{"as recorded", 8, lengths},
		{"twice the samples", 16, lengths},
		{"half the length", 8, halves},
		{"another order", 8, []int64{12, 8, 8, 16, 10, 10, 16, 8, 12, 16, 16, 12, 10, 8, 12, 16}},
	} {
		buffers, steps := sampled(c.samples, c.lengths)
		program, _, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
		run := generations{program: program, plan: plan}
		n := run.serve(t, &run)
		said := fmt.Sprintf("%s: %d of %d MiB on plan, %d reserved for %d, %d moved", c.name,
			n.PlannedBytes>>20, n.AllocationBytes>>20, n.PeakReserved>>20, n.PeakAllocated>>20, n.MovedBytes>>20)
		t.Log(said)
		if n.PlannedBytes < n.AllocationBytes/100*95 || n.PeakReserved > n.PeakAllocated/100*103+6<<20 || n.MovedBytes > 2*n.PeakReserved {
			t.Error(said)
		}
	}
}

// sampled is a run of steps of one batch each, of this many samples and these lengths, and behind each fourth one an evaluation of its
// batch, which keeps nothing for a backward pass.
func sampled(samples int64, lengths []int64) ([]synth.Buffer, []synth.Step) {
	const layers = 40
	p := program{}
	for range layers {
		p.alloc(2 << 20) // weights
	}
	forward := func(length int64, of func(kept int)) {
		tokens := samples * length
		ids := p.alloc(tokens * 512)
		embedded := p.alloc(tokens << 16)
		counts := p.alloc(8 * samples)
		mask := p.alloc(tokens*512 + 64)
		p.free(p.alloc(2 * samples))
		p.free(p.alloc(1))
		p.free(mask)
		for i := range layers {
			hidden := p.alloc(tokens << 16)
			norm := p.alloc(tokens * 32)
			of(p.alloc(tokens << 15))
			of(p.alloc(int64(1+i%3) * tokens << 16))
			p.free(norm)
			of(hidden)
		}
		logits := p.alloc(tokens << 20)
		loss := p.alloc(4)
		p.free(logits)
		p.free(loss)
		p.free(counts)
		p.free(embedded)
		p.free(ids)
	}
	for i, length := range lengths {
		p.begin()
		var kept, gradients []int
		forward(length, func(buffer int) { kept = append(kept, buffer) })
		for _, of := range slices.Backward(kept) {
			temporary := p.alloc(samples * length << 16)
			if len(gradients) < layers {
				gradients = append(gradients, p.alloc(2<<20))
			}
			p.free(temporary)
			p.free(of)
		}
		p.optimize(func() {
			if i == 0 {
				for range layers {
					p.alloc(8 << 20)
				}
			}
			for _, of := range gradients {
				p.free(of)
			}
		})
		if i%4 == 3 {
			last := -1
			forward(length, func(buffer int) {
				if last >= 0 {
					p.free(last)
				}
				last = buffer
			})
			p.free(last)
		}
	}
	return p.buffers, p.steps
}
