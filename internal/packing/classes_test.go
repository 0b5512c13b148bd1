package packing

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/fusion"
)

// variedPipelines are pipelines whose sizes vary from one layer to the next. No two buffers
// fit into each other's holes by themselves.
func variedPipelines() []*Problem {
	return []*Problem{
		generate(pipeline{Layers: 8, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 2, PerLayer: 10, Jitter: 0.1}, 1),
		generate(pipeline{Layers: 12, Chunks: 3, Stages: 4, MicroBatches: 32, Iterations: 2, PerLayer: 7, Jitter: 0.05}, 2),
		generate(pipeline{Layers: 12, Chunks: 2, Stages: 4, MicroBatches: 32, Iterations: 1, PerLayer: 16, Jitter: 0.1, Recompute: true}, 3),
		generate(pipeline{Layers: 8, Chunks: 4, Stages: 2, MicroBatches: 64, Iterations: 2, PerLayer: 8, Jitter: 0.02, Varied: true, Optimizer: 20}, 4),
	}
}

// withClasses is what the cheap rules place of p, and what is placed by classes after that.
func withClasses(t testing.TB, p *Problem, opt Options) (rules, classes Placement) {
	t.Helper()
	fold, err := fusion.Fold(roundedBuffers(p))
	if err != nil {
		t.Fatal(err)
	}
	f := fused{problem: p, opt: opt}
	if err := f.try(context.Background(), 0, reductions[0], fold); err != nil {
		t.Fatal(err)
	}
	rules = f.best
	rules.Offsets = slices.Clone(f.best.Offsets)
	if err := f.tryClasses(context.Background(), fold); err != nil {
		t.Fatal(err)
	}
	classes, err = f.answer() // it validates
	if err != nil {
		t.Fatal(err)
	}
	return rules, classes
}

// TestClassesPackVariedSizes: if the sizes of a pipeline vary, classes leave at most half a
// per cent above the load, and less than half of what the rules leave.
func TestClassesPackVariedSizes(t *testing.T) {
	for i, p := range variedPipelines() {
		rules, classes := withClasses(t, p, Options{Workers: 2})
		gap := func(pl Placement) float64 { return float64(pl.Makespan)/float64(pl.MaxLoad.Load) - 1 }
		if gap(classes) > 0.005 || gap(classes) > gap(rules)/2 {
			t.Errorf("problem %d: expected a gap of at most 0.5 %% and half of the rules' %.3f %%, found %.3f %% by %s",
				i, 100*gap(rules), 100*gap(classes), classes.Heuristic)
		}
	}
}

// TestClassesAreNeverLarger: classes keep the placement of the rules if theirs is not smaller,
// and the placement is the same with one worker and with three.
func TestClassesAreNeverLarger(t *testing.T) {
	for i, p := range pipelineProblems() {
		rules, one := withClasses(t, p, Options{Workers: 1})
		_, three := withClasses(t, p, Options{Workers: 3})
		if one.Makespan > rules.Makespan {
			t.Errorf("problem %d: expected at most %d bytes, found %d", i, rules.Makespan, one.Makespan)
		}
		if one.Makespan == rules.Makespan && !slices.Equal(one.Offsets, rules.Offsets) {
			t.Errorf("problem %d: expected the rules' placement, which is as small, found another", i)
		}
		if !slices.Equal(one.Offsets, three.Offsets) || one.Heuristic != three.Heuristic {
			t.Errorf("problem %d: expected the same placement with one worker and with three, found %s and %s", i, one.Heuristic, three.Heuristic)
		}
	}
}

// TestClassesOfSizes: sizes of one class differ by at most its width, a larger size never
// has a smaller class, and the size of a class is off by at most its digits.
func TestClassesOfSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		c := classing{1 / float64(1+rng.IntN(16)), 2 + rng.IntN(6)}
		own := make([]int64, 2000)
		for b := range own {
			own[b] = 1 + rng.Int64N(1<<(1+rng.IntN(50)))
		}
		sizes, ok := c.sizes(own)
		if !ok {
			t.Fatalf("%+v: expected classes of 2,000 sizes", c)
		}
		order := make([]int, len(own))
		for b := range order {
			order[b] = b
		}
		slices.SortFunc(order, func(x, y int) int { return int(min(1, max(-1, own[x]-own[y]))) })
		for i, b := range order[1:] {
			if a := order[i]; sizes[a] > sizes[b] {
				t.Fatalf("%+v: expected no smaller class for %d than for %d, found %d and %d", c, own[b], own[a], sizes[b], sizes[a])
			}
		}
		for b, size := range own {
			off := (1 + c.width) * (1 + math.Ldexp(1, -c.digits)) // half of the last digit is lost
			if float64(size) > off*float64(sizes[b])+1 || float64(sizes[b]) > off*float64(size)+1 {
				t.Fatalf("%+v: expected a class within a factor of %.3f of %d, found %d", c, off, size, sizes[b])
			}
		}
	}
}

// TestFewSizesFormNoClasses: if the program has few sizes, they stay as they are.
func TestFewSizesFormNoClasses(t *testing.T) {
	in, err := newInstance(generate(pipeline{Layers: 8, Chunks: 2, Stages: 4, MicroBatches: 8, Iterations: 2, PerLayer: 14, Varied: true}, 5))
	if err != nil {
		t.Fatal(err)
	}
	if a := classAttempts(in); len(a) != 0 {
		t.Errorf("expected no attempts on a pipeline with few sizes, found %d", len(a))
	}
}

// TestClassesOverflow: if the sizes of the classes add up to more than an int64, there are
// none.
func TestClassesOverflow(t *testing.T) {
	const n = 1862 // the sizes are about 1.1 · 2^52, and four digits make 1.125 · 2^52 of it
	p := &Problem{Alignment: 1}
	for b := range n {
		size := Bytes(math.MaxInt64/n) - Bytes(b)
		p.Buffers = append(p.Buffers, Buffer{Start: Time(b), End: Time(b + 1 + b%3), Size: size})
	}
	in, err := newInstance(p)
	if err != nil {
		t.Fatal(err)
	}
	sizes, ok := classings[0].sizes(in.size)
	if !ok {
		t.Fatal("expected classes")
	}
	if sizes[0] <= math.MaxInt64/n {
		t.Fatalf("expected a class of more than %d, so that the sum overflows, found %d", int64(math.MaxInt64/n), sizes[0])
	}
	if a := classAttempts(in); len(a) != 0 {
		t.Errorf("expected no attempts, found %d", len(a))
	}
	if _, classes := withClasses(t, p, Options{Workers: 1}); classes.Offsets == nil {
		t.Error("expected the placement of the rules")
	}
}

// TestCompact: compacting keeps what lies above what, needs no more than before with the
// same sizes, and is valid with any sizes.
func TestCompact(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for round := range 200 {
		p := randomProblem(rng, 1+rng.IntN(60), 20, 50)
		before := mustPack(t, p, Options{Workers: 1, Capacity: 1 << 40})
		for _, other := range []bool{false, true} {
			q := &Problem{Alignment: 1, Buffers: slices.Clone(p.Buffers)}
			for b := range q.Buffers {
				if other {
					q.Buffers[b].Size = Bytes(1 + rng.IntN(50))
				}
			}
			in, err := newInstance(q)
			if err != nil {
				t.Fatal(err)
			}
			offsets := make([]Bytes, in.n)
			for b, o := range in.origin {
				offsets[b] = before.Offsets[o]
			}
			after := in.placement(compact(in, offsets))
			if err := Validate(q, after); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if !other && after.Makespan > before.Makespan {
				t.Errorf("round %d: expected at most %d, found %d", round, before.Makespan, after.Makespan)
			}
			for x, a := range p.Buffers {
				for y, b := range p.Buffers {
					live := a.Start < b.End && b.Start < a.End
					if live && before.Offsets[x] < before.Offsets[y] && after.Offsets[x] >= after.Offsets[y] {
						t.Fatal(fmt.Errorf("round %d: expected buffer %d below buffer %d, found %d and %d", round, x, y, after.Offsets[x], after.Offsets[y]))
					}
				}
			}
		}
	}
}

// BenchmarkClasses has a table of docs/results/scale.md: the gaps in percent that the cheap
// rules leave, and classes after them. The seconds are of both.
func BenchmarkClasses(b *testing.B) {
	for i, spec := range []pipeline{
		{Layers: 8, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 2, PerLayer: 10, Jitter: 0.1},
		{Layers: 8, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 2, PerLayer: 10, Jitter: 0.2},
		{Layers: 8, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 2, PerLayer: 10, Jitter: 0.4},
		{Layers: 8, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 2, PerLayer: 5, Jitter: 0.1},
		{Layers: 12, Chunks: 3, Stages: 4, MicroBatches: 32, Iterations: 2, PerLayer: 7, Jitter: 0.05},
		{Layers: 12, Chunks: 2, Stages: 8, MicroBatches: 32, Iterations: 2, PerLayer: 12, Jitter: 0.1, Varied: true},
		{Layers: 12, Chunks: 1, Stages: 8, MicroBatches: 64, Iterations: 2, PerLayer: 12, Jitter: 0.1, Varied: true},
		{Layers: 12, Chunks: 2, Stages: 4, MicroBatches: 32, Iterations: 2, PerLayer: 16, Jitter: 0.1, Recompute: true},
		{Layers: 12, Chunks: 3, Stages: 4, MicroBatches: 32, Iterations: 2, PerLayer: 12, Jitter: 0.1, Recompute: true, Varied: true},
		{Layers: 12, Chunks: 3, Stages: 4, MicroBatches: 32, Iterations: 2, PerLayer: 12, Jitter: 0.1, Drift: 0.1},
		{Layers: 12, Chunks: 3, Stages: 4, MicroBatches: 32, Iterations: 2, PerLayer: 12, Drift: 0.1},
		{Layers: 12, Chunks: 3, Stages: 4, MicroBatches: 32, Iterations: 2, PerLayer: 12, Drift: 0.4},
		{Layers: 8, Chunks: 4, Stages: 2, MicroBatches: 64, Iterations: 2, PerLayer: 8, Jitter: 0.02, Varied: true, Optimizer: 20},
	} {
		seed := uint64(900 + i)
		b.Run(fmt.Sprintf("seed=%d", seed), func(b *testing.B) {
			p := generate(spec, seed)
			var rules, classes Placement
			for b.Loop() {
				rules, classes = withClasses(b, p, Options{Workers: 2})
			}
			b.ReportMetric(100*(float64(rules.Makespan)/float64(rules.MaxLoad.Load)-1), "%gap-rules")
			b.ReportMetric(100*(float64(classes.Makespan)/float64(classes.MaxLoad.Load)-1), "%gap-classes")
			b.ReportMetric(float64(len(p.Buffers)), "buffers")
		})
	}
}
