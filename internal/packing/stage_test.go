package packing

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stplan/stplan/internal/synth"
)

// lastStage is the last stage of an interleaved pipeline that recomputes its layers, with the
// dimensions of a model of 7 billion parameters.
func lastStage(layers, chunks, stages int) synth.Stage {
	return synth.Stage{
		Layers: layers, Chunks: chunks, Stages: stages, Rank: stages - 1, MicroBatches: 16, Iterations: 2, Recompute: true,
		Tokens: 16384, Hidden: 4096, Feed: 11008, Heads: 32, Vocabulary: 32000,
	}
}

// stageProblem is the problem of a stage. The share late of its frees comes up to a dozen
// requests later, as in a program whose references end late. The seed draws which.
func stageProblem(spec synth.Stage, late float64, seed uint64) *Problem {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &Problem{Alignment: 512}
	for _, b := range spec.Generate() {
		end := Time(b.End)
		if b.End < synth.Never && rng.Float64() < late {
			end += Time(rng.IntN(12))
		}
		p.Buffers = append(p.Buffers, Buffer{Start: Time(b.Start), End: end, Size: Bytes(b.Size)})
	}
	return p
}

// TestStagesReachTheirLoad: the last stages of interleaved pipelines are packed to the load,
// whatever the number of layers is and the dimensions are. If some frees come late, a tenth of a
// per cent may be left.
func TestStagesReachTheirLoad(t *testing.T) {
	wide := lastStage(48, 4, 8)
	wide.Tokens, wide.Hidden, wide.Feed, wide.Heads, wide.Vocabulary = 4096, 8192, 28672, 64, 128256
	for _, c := range []struct {
		spec  synth.Stage
		late  float64
		seed  uint64
		gap   float64
		large bool
	}{
		{lastStage(48, 2, 4), 0, 1, 0, false}, {wide, 0, 1, 0, false}, {lastStage(24, 3, 8), 0.05, 1, 0.001, false},
		{lastStage(48, 3, 8), 0.05, 1, 0.001, true}, {lastStage(96, 4, 4), 0, 1, 0, true},
		// No rule reaches the load of these two, but crux does.
		{lastStage(48, 3, 4), 0.05, 3, 0, true}, {lastStage(48, 2, 4), 0.05, 4, 0, true},
	} {
		t.Run(fmt.Sprintf("layers=%d/chunks=%d/hidden=%d/late=%g/seed=%d", c.spec.Layers, c.spec.Chunks, c.spec.Hidden, c.late, c.seed), func(t *testing.T) {
			if c.large && !large() {
				t.Skip("takes seconds; make large runs it")
			}
			pl := mustPack(t, stageProblem(c.spec, c.late, c.seed), Options{})
			if gap := float64(pl.Makespan-pl.LowerBound) / float64(pl.LowerBound); gap > c.gap {
				t.Errorf("%s: expected a gap of at most %g, found %g", pl.Heuristic, c.gap, gap)
			}
		})
	}
}

// BenchmarkStages has the table of docs/results/scale.md.
func BenchmarkStages(b *testing.B) {
	for _, layers := range []int{24, 48, 96} {
		for _, shape := range [][2]int{{2, 4}, {3, 4}, {2, 8}, {4, 8}} {
			if testing.Short() && (layers > 24 || shape[0] > 2) {
				continue
			}
			for _, draw := range []struct {
				late float64
				seed uint64
			}{{0, 1}, {0.05, 1}, {0.05, 2}, {0.05, 3}, {0.05, 4}, {0.05, 5}} {
				if draw.late > 0 && layers != 48 {
					continue
				}
				p := stageProblem(lastStage(layers, shape[0], shape[1]), draw.late, draw.seed)
				b.Run(fmt.Sprintf("layers=%d/chunks=%d/stages=%d/late=%g/seed=%d", layers, shape[0], shape[1], draw.late, draw.seed), func(b *testing.B) {
					var pl Placement
					for b.Loop() {
						pl = mustPack(b, p, Options{})
					}
					b.ReportMetric(100*float64(pl.Makespan-pl.LowerBound)/float64(pl.LowerBound), "%gap")
					b.ReportMetric(float64(len(p.Buffers)), "buffers")
				})
			}
		}
	}
}
