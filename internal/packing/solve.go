package packing

import "math"

// The work of solve: no instance above so many buffers, where a node costs too
// much and decides too little. For one capacity so many nodes of the exact
// search; for the least makespan so many looks, half of them for the target,
// which most often decides, and then an eighth for each ceiling.
const (
	solveBuffers       = 1 << 10
	solveCapacityNodes = 1 << 24
	solveLooks         = 1 << 31
)

// solve asks the exact search for lower and lower ceilings: the target first,
// and then halfway between the highest that is not known to be possible and the
// best makespan. What it proves to be impossible raises the lower bound.
func solve(s *search, best layout) layout {
	if s.in.n > solveBuffers {
		return best
	}
	e := newExact(s.in)
	nodes, looks := int64(solveCapacityNodes), int64(math.MaxInt64)
	if s.opt.Capacity == 0 {
		nodes, looks = math.MaxInt64, solveLooks
	}
	e.maxLooks = looks / 2
	stop := func() bool { return s.ctx.Err() != nil }
	for low, ceiling := s.target, s.target; !s.settled(best) && low < best.makespan && nodes > 0 && looks > 0 && !stop(); {
		verdict := e.decide(ceiling, nodes, stop)
		nodes, looks = nodes-e.spent, looks-e.looks
		e.maxLooks = min(e.maxLooks, solveLooks/8)
		if verdict == fits {
			best = e.layout()
		} else {
			low = ceiling + 1
		}
		if verdict == infeasible {
			s.proven = max(s.proven, low)
		}
		ceiling = low + (best.makespan-1-low)/2
	}
	return best
}
