package packing

// rule is one greedy heuristic: it places every buffer once.
type rule struct {
	name string
	cost cost
	// whole rules place each buffer without regard to its mates: they are for
	// instances without gaps.
	whole bool
	run   func(j *job) (layout, bool)
}

// cost is what a rule takes to place a buffer, and the most buffers that it is
// let near.
type cost struct{ each, most int }

// The costs, measured on 10,000 to 100,000 buffers: a sweep places millions a
// second, a first fit hundreds of thousands, and a skyline tens of thousands, the
// fewer the more there are.
var (
	costSweep     = cost{1, maxBuffers}
	costSweepBest = cost{2, maxBuffers}
	costFit       = cost{4, maxBuffers}
	costBestFit   = cost{5, maxBuffers}
	costSkyline   = cost{48, 50_000}
)

// rulesBudget is what the rules may cost for one problem, unless Options.Rules
// says otherwise. It is enough for all of them on 20,000 buffers, for all but
// skylines on 75,000, and for the sweeps and a first fit on two million.
const rulesBudget = 14_000_000

// portfolio is every rule in the order of its index: the fastest first, then
// those that reach the lower bound most often, then the rest by cost.
var portfolio = makePortfolio()

func makePortfolio() []rule {
	rules := []rule{
		{"sweep-FF", costSweep, true, sweep((*freeList).first)},
		{"sweep-BF", costSweepBest, true, sweep((*freeList).best)},
	}
	add := func(suffix string, c cost, pass func(*job, []int32) (layout, bool), orders ...order) {
		for _, o := range orders {
			rules = append(rules, rule{o.name + "-" + suffix, c, suffix == "sky", func(j *job) (layout, bool) { return pass(j, o.sorted(j.in)) }})
		}
	}
	add("FF", costFit, firstFit, byCrestSize, byStart, byCrestEnd, byTimeArea, byCrestStart, byCrestLast, residentsFirst(byStart),
		residentsFirst(bySize))
	add("BF", costBestFit, bestFit, byStart, residentsFirst(byStart), byPeakEnd)
	add("2E", costBestFit, twoEnded, byPeakEnd)
	add("sky", costSkyline, skyline, byCrestSize, byTimeArea, byCrestTime)
	add("FF", costFit, firstFit, byCrestTime, byArea, byCrestArea, byCrestLife, byPeakEnd, byPeakSize, byPeakLast, byPeakStart,
		byPeakLife, bySize, bySizeStart, residentsFirst(bySizeStart), byLife)
	add("BF", costBestFit, bestFit, byCrestLast, byCrestSize, byCrestEnd, byCrestTime, byTimeArea, bySize, byArea,
		byPeakSize, byPeakLife, residentsFirst(bySize))
	add("2E", costBestFit, twoEnded, byCrestSize, byCrestEnd, byTimeArea, residentsFirst(bySize))
	add("sky", costSkyline, skyline, bySizeStart, byArea, byCrestArea, byCrestLife, byPeakLife, byLifeArea)
	return rules
}

// rulesFor is the portfolio without the rules that cannot place the instance, or
// that its buffers are too many for.
func rulesFor(in *instance) []rule { return rulesWithin(rulesBudget, in) }

// rulesWithin lists the rules that can place the instance within a budget, in
// the order of their index. The first that can is always one of them.
func rulesWithin(budget int, in *instance) []rule {
	var rules []rule
	for _, r := range portfolio {
		fits := r.cost.each*in.n <= budget && in.n <= r.cost.most
		if (in.mates == nil || !r.whole) && (fits || rules == nil) {
			rules = append(rules, r)
			budget -= r.cost.each * in.n
		}
	}
	return rules
}
