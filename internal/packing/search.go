package packing

import (
	"cmp"
	"context"
	"math"
)

// search is one run of Pack.
type search struct {
	caller context.Context
	ctx    context.Context // with the time limit
	cancel context.CancelFunc
	in     *instance
	opt    Options
	work   work
	target int64 // in units: a makespan up to it ends the search

	proven int64 // in units: the largest proven lower bound of the makespan

	steps, total int
	timeLimitHit bool
}

// work bounds one search.
type work struct {
	// rulesOnly leaves the refinements out.
	rulesOnly bool
	// budget is what the rules may cost in all; rules.go has the unit.
	budget int
	// below, in bytes, if above 0: only a smaller makespan is of use. Rules give up as
	// soon as they reach it, and the search ends with errNotBelow if all did.
	below Bytes
}

// everything is the work of a full search: all rules in rulesBudget, and the
// refinements.
var everything = work{budget: rulesBudget}

func newSearch(ctx context.Context, in *instance, opt Options, work work) *search {
	s := &search{caller: ctx, in: in, opt: opt, work: work, proven: in.bound, target: max(in.bound, int64(opt.Capacity/in.unit))}
	s.ctx, s.cancel = ctx, func() {}
	if opt.TimeLimit > 0 {
		s.ctx, s.cancel = context.WithTimeout(ctx, opt.TimeLimit)
	}
	return s
}

// run tries the portfolio of rules, then every refinement in turn while there is a gap.
func (s *search) run() (layout, error) {
	if s.in.n == 0 {
		return layout{heuristic: "none"}, s.caller.Err()
	}
	rules, refinements := rulesWithin(s.work.budget, s.in), refinements
	if s.work.rulesOnly {
		refinements = nil
	}
	s.total = len(rules) + len(refinements)*refinementSteps
	known := int64(math.MaxInt64)
	if s.work.below > 0 {
		known = int64((s.work.below - 1) / s.in.unit)
	}
	best, ok := s.decide(contest{
		tasks:      len(rules),
		target:     s.target,
		known:      known,
		mustFinish: true,
		run: func(i int, j *job) (layout, bool) {
			if j.stopped() {
				return layout{}, false // before the rule sorts the buffers
			}
			l, ok := rules[i].run(j)
			l.heuristic = rules[i].name
			return l, ok
		},
		done: func(best int64) { s.step(s.steps+1, best) },
	})
	if !ok || best.makespan > known {
		s.timeLimitHit = s.ctx.Err() != nil
		return layout{}, cmp.Or(s.caller.Err(), errNotBelow)
	}
	if s.in.n > fuseAbove {
		s.target = max(s.target, s.in.bound+int64(s.opt.Tolerance/s.in.unit))
	}
	for i, r := range refinements {
		if s.finished(best) || s.ctx.Err() != nil {
			break
		}
		best = r(s, best)
		s.step(len(rules)+(i+1)*refinementSteps, best.makespan)
	}
	s.step(s.total, best.makespan)
	s.timeLimitHit = s.ctx.Err() != nil
	return best, s.caller.Err()
}

// finished reports whether the search is over: the target is reached or proven to be
// out of reach, or the makespan is proven to be the smallest.
func (s *search) finished(best layout) bool {
	return best.makespan <= max(s.target, s.proven) || s.opt.Capacity > 0 && s.proven > s.target
}

// refinement looks for a layout with a smaller makespan than best, and returns best
// itself if it finds none. Its work is bounded by counting, never by a clock.
type refinement func(s *search, best layout) layout

// refinements run in this order.
var refinements = []refinement{exactBriefly, windows, crux, exactFully, squeakyWheel, eject, windows}

// refinementSteps is what one refinement counts in Options.Progress, where a rule
// counts 1.
const refinementSteps = 20

func (s *search) step(done int, best int64) {
	s.steps = min(done, s.total)
	if s.opt.Progress != nil && best < math.MaxInt64 {
		s.opt.Progress(s.steps, s.total, Bytes(best)*s.in.unit)
	}
}
