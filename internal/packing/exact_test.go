package packing

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

func never() bool { return false }

// decideFor asks the exact search about one ceiling and checks a layout that it finds.
func decideFor(t *testing.T, p *Problem, ceiling, budget int64) verdict {
	t.Helper()
	in, err := newInstance(p)
	if err != nil {
		t.Fatal(err)
	}
	e := newExact(in)
	v := e.decide(ceiling, budget, never)
	if v == fits {
		l := e.layout()
		if l.makespan > ceiling {
			t.Fatalf("expected a makespan of at most the ceiling %d, found %d", ceiling, l.makespan)
		}
		if err := Validate(p, in.placement(l)); err != nil {
			t.Fatalf("ceiling %d: %v: %v", ceiling, err, p.Buffers)
		}
	}
	return v
}

// TestExactAgainstExhaustiveSearch: the optimum fits and one unit less does not, on
// problems of all kinds and on the two with an optimum above their load.
func TestExactAgainstExhaustiveSearch(t *testing.T) {
	const enough = 1 << 20
	check := func(p *Problem, best Bytes) {
		t.Helper()
		if v := decideFor(t, p, int64(best), enough); v != fits {
			t.Fatalf("the optimum %d: expected the verdict fits, found %d: %v", best, v, p.Buffers)
		}
		if v := decideFor(t, p, int64(best)-1, enough); v != infeasible {
			t.Fatalf("below the optimum %d: expected the verdict infeasible, found %d: %v", best, v, p.Buffers)
		}
	}
	for _, c := range aboveLoad {
		check(&c.p, c.optimum)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 3000 {
		p := randomProblem(rng, 1+rng.IntN(7), 8, 9)
		if i%2 == 1 {
			p = fullProblem(rng, 9, 5, 5)
		}
		check(p, optimum(p))
	}
}

// TestExactLeavesNoTrace: a search that has been used before gives the same answer as a
// new one, so it puts everything back that it changes.
func TestExactLeavesNoTrace(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 100 {
		p := fullProblem(rng, 40, 12, 9)
		in, err := newInstance(p)
		if err != nil {
			t.Fatal(err)
		}
		used := newExact(in)
		for ceiling := in.bound + 3; ceiling >= in.bound; ceiling-- {
			fresh := newExact(in)
			got, want := used.decide(ceiling, 20_000, never), fresh.decide(ceiling, 20_000, never)
			if got != want || used.spent != fresh.spent {
				t.Fatalf("ceiling %d: expected verdict %d after %d nodes, as from a new search, found %d after %d", ceiling, want, fresh.spent, got, used.spent)
			}
		}
	}
}

// TestExactBudget: the search keeps within its budget of nodes and of looks, and gives
// no verdict if that is too small.
func TestExactBudget(t *testing.T) {
	p := readInstance(t, "minimalloc-A.csv")
	in, err := newInstance(p)
	if err != nil {
		t.Fatal(err)
	}
	e := newExact(in)
	if v := e.decide(1<<20, 500, never); v != undecided || e.spent > 500 {
		t.Errorf("expected no verdict after at most 500 nodes, found %d after %d", v, e.spent)
	}
	if v := e.decide(1<<20, 1<<40, func() bool { return true }); v != undecided {
		t.Errorf("expected no verdict after a stop, found %d", v)
	}
	e.maxLooks = 10_000
	if v := e.decide(1<<20, 1<<40, never); v != undecided || e.looks < 10_000 || e.looks > 20_000 {
		t.Errorf("expected no verdict after 10000 to 20000 looks, found %d after %d", v, e.looks)
	}
}

// TestHardInstance: minimalloc's A fits its capacity, which is its load. No greedy rule
// gets near.
func TestHardInstance(t *testing.T) {
	p := readInstance(t, "minimalloc-A.csv")
	pl := mustPack(t, p, Options{Capacity: 1 << 20})
	if pl.Makespan != 1<<20 || pl.LowerBound != 1<<20 {
		t.Errorf("expected a makespan and lower bound of %d, found %d and %d", 1<<20, pl.Makespan, pl.LowerBound)
	}
}

// TestProvenBound: a ceiling that the exact search rules out raises the lower bound,
// and a capacity below that bound is infeasible.
func TestProvenBound(t *testing.T) {
	for _, c := range aboveLoad {
		if pl := mustPack(t, &c.p, Options{}); pl.LowerBound != c.optimum {
			t.Errorf("expected the optimum %d as the lower bound, found %d", c.optimum, pl.LowerBound)
		}
		_, err := Pack(context.Background(), &c.p, Options{Capacity: c.load})
		over, ok := err.(*CapacityError)
		if !ok || !over.Infeasible() {
			t.Errorf("capacity %d: expected a proof that it is infeasible, found %v", c.load, err)
		}
	}
}

// TestMinimallocInstances packs minimalloc's eleven hard instances at the capacity at
// which its authors solve them.
func TestMinimallocInstances(t *testing.T) {
	files, err := filepath.Glob("../../../shared/instances/minimalloc/[A-K].*.csv")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no ../shared/instances beside the repository; TestHardInstance has one of them")
	}
	for _, file := range files {
		p := readInstance(t, filepath.Join("..", file))
		if _, err := Pack(context.Background(), p, Options{Capacity: 1 << 20}); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}
