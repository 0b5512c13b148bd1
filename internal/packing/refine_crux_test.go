package packing

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"
)

// refineFrom runs one refinement on in, starting from l.
func refineFrom(in *instance, refine refinement, l layout, workers int) layout {
	return refine(newSearch(context.Background(), in, Options{Workers: workers}, everything), l)
}

func instanceOf(t *testing.T, p *Problem) *instance {
	t.Helper()
	in, err := newInstance(p)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// bestRule is the best layout of the portfolio.
func bestRule(in *instance) layout {
	var best layout
	for _, r := range rulesWithin(rulesBudget, in) {
		if l, ok := r.run(alone(in)); ok && (best.off == nil || l.makespan < best.makespan) {
			best = l
		}
	}
	return best
}

// TestCruxReachesTheLoad on a 1F1B pipeline, in which the room that a backward needs
// has to lie elsewhere for each micro-batch. No rule reaches the load, and neither do
// the searches that place one buffer after the other.
func TestCruxReachesTheLoad(t *testing.T) {
	p := generate(pipeline{Layers: 3, Chunks: 1, Stages: 3, MicroBatches: 6, Iterations: 2, PerLayer: 5}, 1)
	in := instanceOf(t, p)
	best := bestRule(in)
	if best.makespan == in.bound {
		t.Fatal("expected no rule to reach the load, or the case tests nothing")
	}
	for i, r := range []refinement{squeakyWheel, eject} {
		if l := refineFrom(in, r, best, 2); l.makespan == in.bound {
			t.Errorf("expected refinement %d not to reach the load, or the case tests nothing", i)
		}
	}
	l := refineFrom(in, crux, best, 2)
	if err := Validate(p, in.placement(l)); err != nil {
		t.Fatal(err)
	}
	if l.makespan != in.bound {
		t.Errorf("expected the load %d, found %d", in.bound, l.makespan)
	}
}

// TestCruxOnlyImproves on problems of all kinds, from a good layout and a bad one.
func TestCruxOnlyImproves(t *testing.T) {
	onlyImproves(t, crux, rand.New(rand.NewPCG(17, 18)), 90)
}

// onlyImproves refines a good layout and a bad one of each of some problems of all
// kinds, and returns how often that gained.
func onlyImproves(t *testing.T, refine refinement, rng *rand.Rand, problems int) (gained int) {
	for i := range problems {
		p := randomProblem(rng, 1+rng.IntN(150), 80, 1000)
		switch i % 3 {
		case 1:
			p = fullProblem(rng, 120, 60, 20)
		case 2:
			p = generate(pipeline{Layers: 2, Chunks: 1 + i%2, Stages: 2, MicroBatches: 4, Iterations: 2, PerLayer: 3, Jitter: rng.Float64() / 3}, uint64(i))
		}
		p.Alignment = Bytes(1 + rng.IntN(600))
		in := instanceOf(t, p)
		first, _ := portfolio[0].run(alone(in))
		for _, from := range []layout{first, bestRule(in)} {
			l := refineFrom(in, refine, from, 2)
			if err := Validate(p, in.placement(l)); err != nil {
				t.Fatalf("%v: %v", err, p.Buffers)
			}
			if l.makespan > from.makespan {
				t.Fatalf("expected a makespan of at most %d, found %d: %v", from.makespan, l.makespan, p.Buffers)
			}
			if l.makespan < from.makespan {
				gained++
			}
		}
	}
	return gained
}

// TestRefinementsSameWithAnyWorkers on cases that end at the target and above it.
func TestRefinementsSameWithAnyWorkers(t *testing.T) {
	for _, spec := range []pipeline{
		{Layers: 2, Chunks: 1, Stages: 4, MicroBatches: 4, Iterations: 2, PerLayer: 5},
		{Layers: 2, Chunks: 2, Stages: 2, MicroBatches: 4, Iterations: 1, PerLayer: 3, Jitter: 0.2},
	} {
		in := instanceOf(t, generate(spec, 1))
		best := bestRule(in)
		for i, refine := range []refinement{crux, windows, squeakyWheel, eject} {
			want := refineFrom(in, refine, best, 1)
			for _, workers := range []int{2, 7} {
				if got := refineFrom(in, refine, best, workers); !reflect.DeepEqual(got, want) {
					t.Errorf("%+v, refinement %d with %d workers: expected %d by %s, found %d by %s", spec, i, workers,
						want.makespan, want.heuristic, got.makespan, got.heuristic)
				}
			}
		}
	}
}

// TestOnly: only makes the same instance as newInstance makes of the same buffers.
func TestOnly(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	for range 300 {
		in := instanceOf(t, randomProblem(rng, 1+rng.IntN(60), 40, 9))
		var members []int32
		p := &Problem{Alignment: 1}
		for b := range int32(in.n) {
			if rng.IntN(3) > 0 {
				members = append(members, b)
				p.Buffers = append(p.Buffers, Buffer{Start: in.start[b], End: in.end[b], Size: Bytes(in.size[b])})
			}
		}
		if len(members) == 0 {
			continue
		}
		if got, want := in.only(members), instanceOf(t, p); !reflect.DeepEqual(got, want) {
			t.Fatalf("expected %+v, found %+v", want, got)
		}
	}
}

// TestBottlenecksAreNearThePeak: each bottleneck holds all large buffers that live at a
// high enough load, and no two are the same.
func TestBottlenecksAreNearThePeak(t *testing.T) {
	in := instanceOf(t, generate(pipeline{Layers: 4, Chunks: 1, Stages: 4, MicroBatches: 8, Iterations: 2, PerLayer: 7, Jitter: 0.1}, 2))
	small := in.size[0] / 4
	seen := map[int]bool{}
	for _, n := range newBottlenecks(in, small) {
		if seen[n.in.n] {
			t.Errorf("expected one bottleneck of %d buffers, found two", n.in.n)
		}
		seen[n.in.n] = true
		lowest := in.bound
		for _, b := range n.members {
			if in.size[b] <= small {
				t.Errorf("buffer %d: expected a size above %d, found %d", b, small, in.size[b])
			}
			lowest = min(lowest, in.crest[b])
		}
		inside := 0
		for b := range in.n {
			if in.size[b] > small && in.crest[b] >= lowest {
				inside++
			}
		}
		if inside != n.in.n {
			t.Errorf("expected %d buffers, those that live at a load of %d or more, found %d", inside, lowest, n.in.n)
		}
	}
	if len(seen) < 3 {
		t.Errorf("expected at least 3 bottlenecks, found %d", len(seen))
	}
}
