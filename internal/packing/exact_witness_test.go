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

// checkWitness checks that the witness is the lower bound, that its buffers alone need
// that many bytes, and that none of them can be left out.
func checkWitness(t *testing.T, p *Problem, pl Placement) {
	t.Helper()
	w := pl.Witness
	if w == nil {
		t.Fatalf("expected a witness for the lower bound %d above the load %d, found none: %v", pl.LowerBound, pl.MaxLoad.Load, p.Buffers)
	}
	if w.Bytes != pl.LowerBound || w.Bytes <= pl.MaxLoad.Load || len(w.Buffers) > WitnessBuffers || !slices.IsSorted(w.Buffers) {
		t.Fatalf("expected at most %d sorted buffers that prove the lower bound %d above the load %d, found %+v",
			WitnessBuffers, pl.LowerBound, pl.MaxLoad.Load, *w)
	}
	if best := optimum(some(p, w.Buffers)); best < w.Bytes {
		t.Fatalf("expected the witness %v to need %d, found that it fits in %d: %v", w.Buffers, w.Bytes, best, p.Buffers)
	}
	for i := range w.Buffers {
		if best := optimum(some(p, slices.Delete(slices.Clone(w.Buffers), i, i+1))); best >= w.Bytes {
			t.Fatalf("expected the witness %v to need less without buffer %d, found %d: %v", w.Buffers, w.Buffers[i], best, p.Buffers)
		}
	}
}

// TestWitness finds witnesses of problems with an optimum above their load: the two of
// aboveLoad, with buffers added that live later, and random ones.
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
	const enough = 5 // such problems: one in 200 is
	for k := 0; k < 3000 && found < enough; k++ {
		p := fullProblem(rng, 13, 5, 5)
		pl := mustPack(t, p, Options{Workers: 1})
		if pl.LowerBound > pl.MaxLoad.Load {
			checkWitness(t, p, pl)
			found++
		} else if pl.Witness != nil {
			t.Fatalf("expected no witness if the lower bound is the load, found %v: %v", pl.Witness, p.Buffers)
		}
	}
	if found < enough {
		t.Errorf("expected several problems whose optimum is above their load, found %d", found)
	}
}
