package packing

import "math"

// solveBuffers is the largest instance, in buffers, that the exact search gets as a
// whole. On larger ones a node costs more and decides less.
const solveBuffers = 1 << 10

// briefLooks bounds exactBriefly, in looks: a 32nd of solveLooks, about 0.4 s.
const briefLooks = 1 << 26

// solveCapacityNodes bounds exactFully if there is a capacity, in nodes. It is more
// than any of minimalloc's eleven hard instances needs at its capacity: all are solved
// within 0.84 s (docs/results/minimalloc.md).
const solveCapacityNodes = 1 << 24

// solveLooks bounds exactFully if there is no capacity, in looks. minimalloc's D and J
// use all of it, in 11 and 13 s of processor time.
const solveLooks = 1 << 31

// solveTargetLooks is the part of solveLooks for the target, the ceiling that most
// often decides.
const solveTargetLooks = solveLooks >> 3

// solveCeilingLooks is the part of solveLooks for each other ceiling in the first
// round. Each round gives a ceiling twice as much as the round before.
const solveCeilingLooks = solveLooks >> 5

// solveResolution ends a round when the undecided interval of ceilings is at most the
// load divided by it. A finer interval would spend the round on ceilings that hardly
// differ, and not on deciding one.
const solveResolution = 1 << 9

// exactBriefly asks the exact search for the target, with little work. If that finds a
// layout, no other refinement is needed.
func exactBriefly(s *search, best layout) layout {
	if s.in.n > solveBuffers || s.in.mates != nil {
		return best
	}
	return s.below(newExact(s.in), best, s.target, math.MaxInt64, briefLooks)
}

// exactFully is a binary search for the smallest makespan, with the exact search at
// each ceiling: the target first, and then halfway between the highest ceiling that was
// not reached and the best makespan. A ceiling that it proves infeasible raises the
// lower bound.
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

// below asks the exact search for a layout under the ceiling, within the given nodes
// and looks. It returns the layout, or best if there is none. If the ceiling is
// infeasible, it raises s.proven.
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
