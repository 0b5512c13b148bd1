package packing

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// some is the problem of some buffers of p alone.
func some(p *Problem, buffers []int) *Problem {
	q := &Problem{Alignment: p.Alignment}
	for _, b := range buffers {
		q.Buffers = append(q.Buffers, p.Buffers[b])
	}
	return q
}

// checkWitness: the buffers that it lists alone need what it says, which is above the
// load and no more than the lower bound; and none of them can be left out.
func checkWitness(t *testing.T, p *Problem, pl Placement) {
	t.Helper()
	w := pl.Witness
	if w == nil {
		t.Fatalf("no witness for %d over the load %d: %v", pl.LowerBound, pl.MaxLoad.Load, p.Buffers)
	}
	if w.Bytes != pl.LowerBound || w.Bytes <= pl.MaxLoad.Load || len(w.Buffers) > WitnessBuffers || !slices.IsSorted(w.Buffers) {
		t.Fatalf("witness %+v of load %d and lower bound %d", *w, pl.MaxLoad.Load, pl.LowerBound)
	}
	if best := optimum(some(p, w.Buffers)); best < w.Bytes {
		t.Fatalf("the witness %v fits in %d, want %d: %v", w.Buffers, best, w.Bytes, p.Buffers)
	}
	for i := range w.Buffers {
		if best := optimum(some(p, slices.Delete(slices.Clone(w.Buffers), i, i+1))); best >= w.Bytes {
			t.Fatalf("the witness %v needs %d without buffer %d too: %v", w.Buffers, best, w.Buffers[i], p.Buffers)
		}
	}
}

// TestWitness: the two known problems and random ones whose optimum is above the
// load, padded with buffers that have nothing to do with it.
func TestWitness(t *testing.T) {
	for _, c := range aboveLoad {
		p := c.p
		for k := range Time(30) {
			p.Buffers = append(slices.Clone(p.Buffers), Buffer{Start: 20 + k, End: 21 + k, Size: c.load})
		}
		checkWitness(t, &p, mustPack(t, &p, Options{}))
	}
	rng := rand.New(rand.NewPCG(27, 28))
	found := 0
	for range 3000 {
		p := fullProblem(rng, 13, 5, 5)
		pl := mustPack(t, p, Options{Workers: 1})
		if pl.LowerBound > pl.MaxLoad.Load {
			checkWitness(t, p, pl)
			found++
		} else if pl.Witness != nil {
			t.Fatalf("a witness for the load: %v", p.Buffers)
		}
	}
	if found < 5 {
		t.Errorf("expected several problems whose optimum is above their load, found %d", found)
	}
}
