package packing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestRulesStayWithinTheirBudget: except for the first rule, the rules cost no more
// than the budget, and the skylines no more than their share of it. No rule is in the
// list that cannot place the instance.
func TestRulesStayWithinTheirBudget(t *testing.T) {
	for _, n := range []int{1, 1000, 40_000, 60_000, 1_000_000, maxBuffers} {
		for _, in := range []*instance{{n: n}, {n: n, mates: [][]int32{}}} {
			for budget := 1; budget < 1<<40; budget *= 4 {
				rules := rulesWithin(budget, in)
				spent := map[bool]int{}
				for _, r := range rules[1:] {
					spent[r.cost == costSkyline] += r.cost.perBuffer * n
					if n > r.cost.upTo || in.mates != nil && r.noGaps {
						t.Errorf("%d buffers: expected only rules that can place them, found %s", n, r.name)
					}
				}
				if spent[false] > budget || spent[true] > budget/8*skylineShare {
					t.Errorf("%d buffers: expected a cost of at most %d, and of %d for skylines, found %d and %d",
						n, budget, budget/8*skylineShare, spent[false], spent[true])
				}
			}
		}
	}
}

// rulesByBuffers is the table of docs/packing.md, "Rules": how many of the rules run on
// a problem without gaps, and how many of those are skylines.
var rulesByBuffers = []struct{ buffers, rules, skylines int }{
	{20_000, 50, 9}, {40_000, 45, 4}, {50_000, 44, 3}, {75_000, 41, 0}, {100_000, 33, 0}, {500_000, 8, 0}, {2_000_000, 3, 0}, {15_000_000, 1, 0},
}

// TestRulesByBuffers holds the table of docs/packing.md.
func TestRulesByBuffers(t *testing.T) {
	doc, err := os.ReadFile("../../docs/packing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range rulesByBuffers {
		rules := rulesWithin(rulesBudget, &instance{n: c.buffers})
		skylines := 0
		for _, r := range rules {
			if r.cost == costSkyline {
				skylines++
			}
		}
		if len(rules) != c.rules || skylines != c.skylines {
			t.Errorf("%d buffers: expected %d rules, %d of them skylines, found %d and %d", c.buffers, c.rules, c.skylines, len(rules), skylines)
		}
		row := fmt.Sprintf("| %s | %d | %d |", grouped(c.buffers), c.rules, c.skylines)
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/packing.md: expected the row %q, found none", row)
		}
	}
}

// grouped is n with thousands separators.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// TestFewerRulesForMoreBuffers: a larger problem never gets a rule that a smaller one
// does not, within any budget that a search has.
func TestFewerRulesForMoreBuffers(t *testing.T) {
	for _, budget := range []int{1_250_000, 4_000_000, rulesBudget} {
		for _, mates := range [][][]int32{nil, {}} {
			had := len(portfolio)
			for n := 1; n < maxBuffers/2; n += 1 + n/50 {
				has := len(rulesWithin(budget, &instance{n: n, mates: mates}))
				if has > had || has == 0 {
					t.Fatalf("budget %d: expected at most %d rules and at least 1 on %d buffers, found %d", budget, had, n, has)
				}
				had = has
			}
		}
	}
}

// TestBelow: with work.below a search finds the same makespan if it can get below it,
// and nothing if it cannot.
func TestBelow(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 200 {
		p := randomProblem(rng, 2+rng.IntN(60), 40, 9)
		p.Alignment = Bytes(1 + rng.IntN(3))
		rules := work{rulesOnly: true, budget: 1 << 40}
		free, err := packPlain(context.Background(), p, Options{Workers: 2}, rules)
		if err != nil {
			t.Fatal(err)
		}
		rules.below = free.Makespan + 1
		limited, err := packPlain(context.Background(), p, Options{Workers: 2}, rules)
		if err != nil || limited.Makespan != free.Makespan {
			t.Fatalf("expected a makespan of %d, found %d and error %v", free.Makespan, limited.Makespan, err)
		}
		rules.below = free.Makespan
		if _, err := packPlain(context.Background(), p, Options{Workers: 2}, rules); !errors.Is(err, errNotBelow) {
			t.Fatalf("expected errNotBelow under %d, found %v", free.Makespan, err)
		}
	}
}
