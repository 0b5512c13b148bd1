package packing

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// fitsAmong reports whether the buffers of in fit under the ceiling beside the
// obstacles. It tries every offset of every buffer.
func fitsAmong(in *instance, taken []obstacle, ceiling int64) bool {
	placed := slices.Clone(taken)
	var descend func(b int) bool
	descend = func(b int) bool {
		if b == in.n {
			return true
		}
		for x := int64(0); x+in.size[b] <= ceiling; x++ {
			at := span{x, x + in.size[b]}
			if slices.ContainsFunc(placed, func(o obstacle) bool {
				return o.lo < in.hi[b] && in.lo[b] < o.hi && o.at.lo < at.hi && at.lo < o.at.hi
			}) {
				continue
			}
			placed = append(placed, obstacle{in.lo[b], in.hi[b], at})
			if descend(b + 1) {
				return true
			}
			placed = placed[:len(placed)-1]
		}
		return false
	}
	return descend(0)
}

// TestExactAmongObstacles: beside obstacles the exact search finds a layout exactly if
// trying all offsets finds one, and its layout overlaps no obstacle.
func TestExactAmongObstacles(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	found := map[verdict]int{}
	for range 4000 {
		p := fullProblem(rng, 8+rng.IntN(4), 6, 5)
		in := instanceOf(t, p)
		l, _ := skyline(alone(in), byCrestSize.sorted(in))
		lo, hi := int32(rng.IntN(in.sections)), int32(in.sections)
		r := newRepairs(alone(in), slices.Clone(l.off))
		for b := range r.off {
			if rng.IntN(4) == 0 {
				r.off[b] += rng.Int64N(2) // obstacles need not be canonical, and may overlap
			}
		}
		free, taken := r.window(lo, hi)
		if len(free) == 0 || len(free) > 6 {
			continue
		}
		w := in.within(free, lo, hi)
		e := newExact(w)
		e.setObstacles(taken)
		ceiling := in.bound + 1 - rng.Int64N(4)
		for _, o := range taken {
			ceiling = max(ceiling, o.at.hi)
		}
		v := e.decide(ceiling, 1<<20, never)
		found[v]++
		if want := fitsAmong(w, taken, ceiling); want != (v == fits) || v == undecided {
			t.Fatalf("ceiling %d: expected fits=%v, as from trying all offsets, found verdict %d: %v beside %v", ceiling, want, v, p.Buffers, taken)
		}
		if v != fits {
			continue
		}
		for b := range int32(w.n) {
			at := span{e.best[b], e.best[b] + w.size[b]}
			for _, o := range taken {
				if o.lo < w.hi[b] && w.lo[b] < o.hi && o.at.lo < at.hi && at.lo < o.at.hi {
					t.Fatalf("buffer %d: expected no overlap with obstacle %v, found %v", b, o, at)
				}
			}
		}
	}
	if found[fits] < 100 || found[infeasible] < 100 {
		t.Errorf("expected each verdict at least 100 times, found %v", found)
	}
}

// TestWindowsGainIfEverythingLivesNearThePeak on interleaved pipelines in which all
// buffers are in the bottleneck.
func TestWindowsGainIfEverythingLivesNearThePeak(t *testing.T) {
	var gap, was int64
	seeds := []uint64{4, 5, 6}
	if !large() {
		seeds = seeds[:1]
	}
	for _, seed := range seeds {
		in := instanceOf(t, generate(pipeline{Layers: 4, Chunks: 4, Stages: 4, MicroBatches: 16, Iterations: 1, PerLayer: 6, Jitter: 0.05}, seed))
		best := bestRule(in)
		if l := refineFrom(in, crux, best, 2); l.makespan < best.makespan {
			t.Errorf("seed %d: expected no gain from crux, or the case tests nothing", seed)
		}
		was += best.makespan - in.bound
		gap += refineFrom(in, windows, best, 2).makespan - in.bound
	}
	if 3*gap > 2*was {
		t.Errorf("expected at least a third of the gaps of %d closed, found %d left", was, gap)
	}
}

// TestWindowsOnlyImprove on problems of all kinds, from a good layout and a bad one.
func TestWindowsOnlyImprove(t *testing.T) {
	gained := onlyImproves(t, windows, rand.New(rand.NewPCG(23, 24)), 30)
	if gained < 20 {
		t.Errorf("expected a gain from at least 20 of 60 layouts, found %d", gained)
	}
}

// TestWithin: the instance of a window keeps the sections and has the load of its own
// buffers; obstacles are the buffers that cross its borders.
func TestWithin(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	for range 300 {
		in := instanceOf(t, randomProblem(rng, 2+rng.IntN(60), 40, 9))
		lo := int32(rng.IntN(in.sections))
		hi := lo + 1 + int32(rng.IntN(in.sections-int(lo)))
		r := newRepairs(alone(in), make([]int64, in.n))
		free, taken := r.window(lo, hi)
		w := in.within(free, lo, hi)
		for s := lo; s < hi; s++ {
			load, crossing := w.load[s-lo], 0
			for b := range in.n {
				if in.lo[b] <= s && s < in.hi[b] {
					load -= in.size[b]
					if in.lo[b] < lo || in.hi[b] > hi {
						load, crossing = load+in.size[b], crossing+1
					}
				}
			}
			for _, o := range taken {
				if o.lo <= s-lo && s-lo < o.hi {
					crossing--
				}
			}
			if load != 0 || crossing != 0 {
				t.Fatalf("section %d of [%d, %d): expected no difference, found %d units of load and %d crossing buffers", s, lo, hi, load, crossing)
			}
		}
	}
}
