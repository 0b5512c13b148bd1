package packing

import "math"

// The work of exactFully: no instance above so many buffers, where a node costs too
// much and decides too little. For one capacity so many nodes of the exact
// search. For the least makespan so many looks in all, a part of them for the
// target, which most often decides, and a smaller one for each other ceiling in
// the first round; a round ends where what is undecided is such a part of the
// bound, and the next gives each ceiling twice as much. exactBriefly has its own.
const (
	solveBuffers       = 1 << 10
	briefLooks         = 1 << 26
	solveCapacityNodes = 1 << 24
	solveLooks         = 1 << 31
	solveTargetLooks   = solveLooks >> 3
	solveCeilingLooks  = solveLooks >> 5
	solveResolution    = 1 << 9
)

// exactBriefly asks the exact search for the target, and not for long: where it is
// lucky, nothing else is needed.
func exactBriefly(s *search, best layout) layout {
	if s.in.n > solveBuffers || s.in.mates != nil {
		return best
	}
	return s.below(newExact(s.in), best, s.target, math.MaxInt64, briefLooks)
}

// exactFully asks the exact search for lower and lower ceilings: the target first,
// and then halfway between the highest that is not known to be possible and the
// best makespan. What it proves to be impossible raises the lower bound.
func exactFully(s *search, best layout) layout {
	if s.in.n > solveBuffers || s.in.mates != nil {
		return best
	}
	e := newExact(s.in)
	if s.opt.Capacity > 0 {
		return s.below(e, best, s.target, solveCapacityNodes, math.MaxInt64)
	}
	looks := int64(solveLooks)
	best = s.below(e, best, s.target, math.MaxInt64, solveTargetLooks)
	looks -= e.looks
	for quota := int64(solveCeilingLooks); looks > 0 && s.ctx.Err() == nil; quota *= 2 {
		low := max(s.target, s.proven)
		for !s.finished(best) && low < best.makespan && looks > 0 && s.ctx.Err() == nil {
			ceiling, was := low+(best.makespan-1-low)/2, best.makespan
			best = s.below(e, best, ceiling, math.MaxInt64, min(quota, looks))
			looks -= e.looks
			if low = max(low, s.proven); best.makespan < was || s.proven > ceiling {
				continue
			}
			if low = ceiling + 1; best.makespan-low <= s.in.bound/solveResolution {
				break
			}
		}
		if s.finished(best) {
			break
		}
	}
	return best
}

// below asks the exact search for a layout under the ceiling and returns it, or
// best without one. What turns out to be impossible raises s.proven.
func (s *search) below(e *exact, best layout, ceiling, nodes, looks int64) layout {
	e.maxLooks = looks
	switch e.decide(ceiling, nodes, func() bool { return s.ctx.Err() != nil }) {
	case fits:
		return e.layout()
	case infeasible:
		s.proven = max(s.proven, ceiling+1)
	}
	return best
}
