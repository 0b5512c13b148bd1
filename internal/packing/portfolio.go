package packing

// rule is one greedy heuristic: it places every buffer once.
type rule struct {
	name string
	// maxBuffers keeps a slow rule away from instances on which it would take
	// more than seconds.
	maxBuffers int
	run        func(j *job) (layout, bool)
}

// How many buffers a rule takes on, by what it costs.
const (
	anyNumber = maxBuffers
	manyTimes = 300_000 // several passes over the occupancy tree stay in seconds
	slowly    = 50_000  // skyline: tens of thousands of buffers a second
)

// portfolio is every rule in the order of its index: the fastest first, then
// those that reach the lower bound most often, then the rest by cost.
var portfolio = makePortfolio()

func makePortfolio() []rule {
	rules := []rule{
		{"sweep-FF", anyNumber, sweep((*freeList).first)},
		{"sweep-BF", manyTimes, sweep((*freeList).best)},
	}
	add := func(suffix string, maxBuffers int, pass func(*job, []int32) (layout, bool), orders ...order) {
		for _, o := range orders {
			rules = append(rules, rule{o.name + "-" + suffix, maxBuffers, func(j *job) (layout, bool) { return pass(j, o.sorted(j.in)) }})
		}
	}
	add("FF", anyNumber, firstFit, byCrestSize, byCrestEnd, byTimeArea)
	add("FF", manyTimes, firstFit, byCrestStart, byCrestLast, residentsFirst(byStart), residentsFirst(bySize))
	add("BF", manyTimes, bestFit, byPeakEnd)
	add("sky", slowly, skyline, byCrestSize, byTimeArea, byCrestTime)
	add("FF", manyTimes, firstFit, byCrestTime, byArea, byCrestArea, byCrestLife, byPeakEnd, byPeakSize, byPeakLast, byPeakStart,
		byPeakLife, bySize, bySizeStart, residentsFirst(bySizeStart), byLife, byStart)
	add("BF", manyTimes, bestFit, byCrestLast, byCrestSize, byCrestEnd, byCrestTime, byTimeArea, bySize, byArea,
		byPeakSize, byPeakLife, residentsFirst(bySize))
	add("2E", manyTimes, twoEnded, byCrestSize, byCrestEnd, byTimeArea, byPeakEnd, residentsFirst(bySize))
	add("sky", slowly, skyline, bySizeStart, byArea, byCrestArea, byCrestLife, byPeakLife, byLifeArea)
	return rules
}

// rulesFor is the portfolio without the rules that n buffers are too many for.
func rulesFor(n int) []rule {
	var rules []rule
	for _, r := range portfolio {
		if n <= r.maxBuffers {
			rules = append(rules, r)
		}
	}
	return rules
}
