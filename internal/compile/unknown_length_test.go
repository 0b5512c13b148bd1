//go:build cgo

package compile

import (
	"math/rand/v2"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// newDeepJob is a lengthJob of some hundred layers, so that a step has as many requests as a real one has.
func newDeepJob(seed uint64) *lengthJob {
	j := newLengthJob(seed)
	logits := len(j.layers) - 1
	few := j.layers[:logits:logits]
	last := j.layers[logits]
	j.layers = nil
	for range 30 {
		for _, l := range few {
			j.layers = append(j.layers, layerLaw{l.constant / 8, l.growth / 16})
		}
	}
	j.layers = append(j.layers, last)
	return j
}

// generate writes tokens: a cache that grows with each of them, and a forward pass of a few.
func (j *lengthJob) generate(tokens int) {
	const word = 16 << 10
	cache := j.alloc(500*word, 0)
	for i := range tokens {
		j.evaluate(20)
		grown := j.alloc(trace.Bytes(505+5*i)*word, 0)
		j.free(cache)
		cache = grown
	}
	j.free(cache)
}

// TestEvaluationsThatThePlanDoesNotKnow: batches of any length, and now and then something that the plan has not seen, which begins
// with a block that looks like a training step's first one. What that block says of the batch's length is not believed, so the
// steps that follow find their places, and less than half of what is reserved moves.
func TestEvaluationsThatThePlanDoesNotKnow(t *testing.T) {
	const seeds, every = 6, 6
	for _, c := range []struct {
		name   string
		run    func(j *lengthJob, r *rand.Rand)
		moved  float64 // of what is reserved, in the whole run
		onPlan float64 // of the bytes that are requested in training steps
	}{
		{"batches forward only", func(j *lengthJob, r *rand.Rand) {
			for range 6 {
				j.evaluate(someLength(r))
			}
		}, 0.5, 0.85},
		{"generation", func(j *lengthJob, _ *rand.Rand) { j.generate(100) }, 0.4, 0.55},
	} {
		var moved, on float64
		for seed := range uint64(seeds) {
			r := rand.New(rand.NewPCG(seed, 23))
			lengths := someLengths(r, 36)
			p, _ := compiledAt(t, newDeepJob(seed).record("recorded", lengths[:4]), 0)
			trained := drive(t, newDeepJob(seed).record("trains", lengths), p, true)
			j := newDeepJob(seed)
			by := drive(t, j.recordBetween("evaluates", lengths, func(step int) {
				if step%every == every-1 {
					c.run(j, r)
				}
			}), p, true)
			moved += float64(by.MovedBytes) / float64(by.PeakReserved)
			on += float64(by.PlannedBytes) / float64(trained.AllocationBytes)
			if by.PeakReserved > by.PeakAllocated/33*34 {
				t.Errorf("%s, seed %d: %d MiB reserved, %d allocated", c.name, seed, by.PeakReserved>>20, by.PeakAllocated>>20)
			}
		}
		t.Logf("%s: %.2f moved, %.1f %% on plan", c.name, moved/seeds, 100*on/seeds)
		if moved > c.moved*seeds || on < c.onPlan*seeds {
			t.Errorf("%s: %.2f of what is reserved moved, %.1f %% of the training's bytes on plan; expected %.2f and %.0f %%",
				c.name, moved/seeds, 100*on/seeds, c.moved, 100*c.onPlan)
		}
	}
}
