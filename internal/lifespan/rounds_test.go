package lifespan

import (
	"math/bits"
	"testing"

	"github.com/stplan/stplan/internal/synth"
)

// TestRounds finds the bodies of programs whose steps run a loop any number of times: tokens,
// micro-batches, or both. They should be one body, which is as long as the longest step if each
// round is aligned with another one. An evaluation of many batches repeats itself as well, and is
// an alternative.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		name string
		synth.Training
		bodies int
		// mistaken is the number of seeds of 10 with another number of bodies, and more how many
		// slots a body has at most beyond its longest pass, in per cent.
		mistaken, more int
	}{
		{"tokens", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 6, Tokens: [2]int{8, 64}}, 1, 0, 0},
		{"many tokens", synth.Training{Layers: 24, MicroBatches: [2]int{1}, Steps: 6, Tokens: [2]int{4, 400}}, 1, 0, 0},
		{"tokens and lengths", synth.Training{Layers: 6, MicroBatches: [2]int{3}, Steps: 8, Tokens: [2]int{16, 96}, Lengths: true}, 1, 0, 3},
		// Gradients live across the micro-batches, so their lifetime classes follow the number of these.
		{"micro-batches", synth.Training{Layers: 6, MicroBatches: [2]int{2, 7}, Steps: 8}, 1, 3, 2},
		{"micro-batches of any length", synth.Training{Layers: 12, MicroBatches: [2]int{2, 12}, Steps: 8, Lengths: true}, 1, 6, 10},
		{"tokens and micro-batches", synth.Training{Layers: 6, MicroBatches: [2]int{2, 5}, Steps: 8, Tokens: [2]int{8, 64}}, 1, 1, 15},
		{"evaluation of many batches", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 8, EvaluateEach: 2, Batches: 40}, 2, 0, 0},
		// Tokens are aligned with the first ones of another step, or, behind an evaluation that it
		// lacks, with the last ones.
		{"tokens and evaluation", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 9, Tokens: [2]int{8, 64}, EvaluateEach: 3, Batches: 9}, 2, 0, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mistaken := 0
			for seed := range uint64(10) {
				d := deviceOf(c.Generate(seed))
				tl := build(t, d)
				p, why := FindPeriodic(tl, find(t, d, tl), EndRequested)
				if p == nil {
					t.Fatalf("seed %d: %s", seed, why)
				}
				checkPeriodic(t, tl, p, EndRequested)
				if len(p.Bodies) != c.bodies {
					t.Logf("seed %d: %d bodies, expected %d", seed, len(p.Bodies), c.bodies)
					mistaken++
					continue
				}
				for i, body := range p.Bodies {
					if longest := longestPass(p, i); body.Length > longest+longest*c.more/100 {
						t.Errorf("seed %d: body %d has %d slots, its longest pass %d", seed, i, body.Length, longest)
					}
				}
			}
			if mistaken > c.mistaken {
				t.Errorf("%d of 10 programs have another number of bodies, expected %d at most", mistaken, c.mistaken)
			}
		})
	}
}

// longestPass is the number of allocations of the longest pass of a body.
func longestPass(p *Periodic, body int) int {
	longest := 0
	for _, pass := range p.Passes {
		n := 0
		for _, word := range pass.Present {
			n += bits.OnesCount64(word)
		}
		if pass.Body == body {
			longest = max(longest, n)
		}
	}
	return longest
}
