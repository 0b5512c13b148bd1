package packing

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
)

// TestRulesStayWithinTheirBudget: the list costs no more than the budget, its
// first rule aside, and without gaps every rule that is let near is in it where
// the budget is large.
func TestRulesStayWithinTheirBudget(t *testing.T) {
	for _, n := range []int{1, 1000, 40_000, 60_000, 1_000_000, maxBuffers} {
		for _, in := range []*instance{{n: n}, {n: n, mates: [][]int32{}}} {
			for budget := 1; budget < 1<<40; budget *= 4 {
				rules := rulesWithin(budget, in)
				spent := 0
				for _, r := range rules[1:] {
					spent += r.cost.each * n
					if n > r.cost.most || in.mates != nil && r.whole {
						t.Errorf("%d buffers: %s is not for them", n, r.name)
					}
				}
				if spent > budget {
					t.Errorf("%d buffers: expected a cost of at most %d, found %d", n, budget, spent)
				}
			}
		}
	}
	if n := len(rulesFor(&instance{n: 20_000})); n != len(portfolio) {
		t.Errorf("expected all %d rules for 20,000 buffers, found %d", len(portfolio), n)
	}
}

// TestBelow: Pack finds the same placement under a limit that it can reach, and
// nothing where it cannot.
func TestBelow(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 200 {
		p := randomProblem(rng, 2+rng.IntN(60), 40, 9)
		p.Alignment = Bytes(1 + rng.IntN(3))
		free := mustPack(t, p, Options{Rules: 1 << 40})
		limited, err := Pack(context.Background(), p, Options{Rules: 1 << 40, Below: free.Makespan + 1})
		if err != nil || limited.Makespan != free.Makespan {
			t.Fatalf("expected a makespan of %d, found %d and error %v", free.Makespan, limited.Makespan, err)
		}
		if _, err := Pack(context.Background(), p, Options{Rules: 1 << 40, Below: free.Makespan}); !errors.Is(err, ErrNotBelow) {
			t.Fatalf("expected ErrNotBelow under %d, found %v", free.Makespan, err)
		}
	}
}
