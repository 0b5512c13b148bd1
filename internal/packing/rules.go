package packing

// rule is one greedy heuristic: it places every buffer once.
type rule struct {
	name string
	cost cost
	// noGaps says that the rule does not keep mates at one offset, so that it cannot
	// place instances with gaps.
	noGaps bool
	// from is the smallest problem, in buffers, that the rule is tried on at this place of
	// the list.
	from int
	run  func(j *job) (layout, bool)
}

// cost is the time that a rule takes to place one buffer, in units of the time of a
// first-fit sweep, and the largest problem, in buffers, that the rule is tried on.
type cost struct{ perBuffer, upTo int }

// Costs as measured on 10,000 to 100,000 buffers.
var (
	// Sweeps with first and with best fit place millions of buffers a second.
	costSweep     = cost{1, maxBuffers}
	costSweepBest = cost{2, maxBuffers}
	// First fit and best fit in an order place hundreds of thousands a second; the
	// two-ended fit costs as much as best fit.
	costFit     = cost{4, maxBuffers}
	costBestFit = cost{5, maxBuffers}
	// Best fit in the program's order touches neighbouring parts of the tree one after the
	// other, and so costs less on a large problem than a fit in any other order.
	costStartBest = cost{3, maxBuffers}
	// A skyline places tens of thousands a second, and fewer the more buffers there
	// are, so it has a limit.
	costSkyline = cost{48, 50_000}
)

// startBestFrom is the number of buffers from which best fit in the program's order is
// tried before any order by size. So few rules fit into the budget there that without it
// none of its kind would: on 2 million buffers of varying sizes it leaves a sixth of the
// gap of the others.
const startBestFrom = 1_000_000

// rulesBudget bounds the cost of all rules on one problem: each rule costs
// cost.perBuffer for each buffer. Within it all rules run on 20,000 buffers, and the
// two sweeps and a best fit on two million; that takes about 10 s at most.
const rulesBudget = 14_000_000

// skylineShare is the part of a budget, in eighths, that skylines may cost on top of
// what the other rules cost. It lets all nine of them run on 20,000 buffers. If they
// shared one budget, leaving the skylines out of a larger problem would give it more
// rules than a smaller one has.
const skylineShare = 5

// portfolio is every rule in the order of its index: the fastest first, then those that
// reach the lower bound most often, then the rest by cost.
var portfolio = makePortfolio()

func makePortfolio() []rule {
	rules := []rule{
		{"sweep-FF", costSweep, true, 0, sweep((*freeList).first)},
		{"sweep-BF", costSweepBest, true, 0, sweep((*freeList).best)},
		{"start-BF", costStartBest, false, startBestFrom, func(j *job) (layout, bool) { return bestFit(j, byStart.sorted(j.in)) }},
	}
	add := func(suffix string, c cost, pass func(*job, []int32) (layout, bool), orders ...order) {
		for _, o := range orders {
			rules = append(rules, rule{o.name + "-" + suffix, c, suffix == "sky", 0, func(j *job) (layout, bool) { return pass(j, o.sorted(j.in)) }})
		}
	}
	add("FF", costFit, firstFit, byCrestSize, byStart, bySizeStart, byCrestEnd, byTimeArea, byCrestStart, byCrestLast, residentsFirst(byStart),
		residentsFirst(bySize))
	add("BF", costBestFit, bestFit, byStart, residentsFirst(byStart), byPeakEnd)
	add("2E", costBestFit, twoEnded, byPeakEnd)
	add("sky", costSkyline, skyline, byCrestSize, byTimeArea, byCrestTime)
	add("FF", costFit, firstFit, byCrestTime, byArea, byCrestArea, byCrestLife, byPeakEnd, byPeakSize, byPeakLast, byPeakStart,
		byPeakLife, bySize, residentsFirst(bySizeStart), byLife)
	add("BF", costBestFit, bestFit, byCrestLast, byCrestSize, byCrestEnd, byCrestTime, byTimeArea, bySize, byArea,
		byPeakSize, byPeakLife, residentsFirst(bySize))
	add("2E", costBestFit, twoEnded, byCrestSize, byCrestEnd, byTimeArea, residentsFirst(bySize))
	add("sky", costSkyline, skyline, bySizeStart, byArea, byCrestArea, byCrestLife, byPeakLife, byLifeArea)
	return rules
}

// rulesWithin lists the rules that can place the instance within a budget, in the order
// of their index. Skylines have a budget of their own, skylineShare of it; the other
// rules have all of it. Of each of the two kinds it takes the first ones, up to the
// first that exceeds its budget: the more buffers there are, the fewer rules run. The
// first rule that can place the instance is always one of them.
func rulesWithin(budget int, in *instance) []rule {
	var rules []rule
	left := map[bool]int{false: budget, true: budget / 8 * skylineShare} // by whether it is a skyline
	for _, r := range portfolio {
		if in.mates != nil && r.noGaps || in.n < r.from {
			continue
		}
		kind := r.cost == costSkyline
		left[kind] -= r.cost.perBuffer * in.n
		if left[kind] >= 0 && in.n <= r.cost.upTo || rules == nil {
			rules = append(rules, r)
		}
	}
	return rules
}
