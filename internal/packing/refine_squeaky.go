package packing

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
)

// squeakyWheel improves orders by experience: first fit, then whatever ended above
// the lower bound moves towards the front, and again (squeaky wheel
// optimization, Joslin and Clements, JAIR 10, 1999). Where it ends depends
// much on where it starts, so several orders start side by side.
func squeakyWheel(s *search, best layout) layout {
	if squeakPlacements/s.in.n < squeakMinRounds {
		return best
	}
	starts := []order{byCrestSize, byCrestEnd, byTimeArea, bySize}
	found, ok := s.decide(contest{
		tasks:  len(starts),
		target: s.target,
		known:  best.makespan - 1,
		run: func(i int, j *job) (layout, bool) {
			l, ok := squeakFrom(j, starts[i].sorted(j.in), s.target)
			l.heuristic = "squeaky(" + starts[i].name + ")"
			return l, ok && l.makespan < best.makespan
		},
	})
	if !ok {
		return best
	}
	return found
}

// The work of one start: so many buffers placed, in at most so many rounds. A
// problem that this is not even squeakMinRounds for is left alone.
const (
	squeakPlacements = 250_000
	squeakMinRounds  = 4
	squeakMaxRounds  = 2_000
)

func squeakFrom(j *job, seq []int32, target int64) (best layout, ok bool) {
	in := j.in
	free := *j // its rounds may be worse than what is known
	free.limit = new(atomic.Int64)
	free.limit.Store(math.MaxInt64)

	score := make([]float64, in.n)
	for rank, b := range seq {
		score[b] = float64(rank)
	}
	for range min(squeakPlacements/in.n, squeakMaxRounds) {
		l, done := firstFit(&free, seq)
		if !done {
			return best, ok
		}
		if !ok || l.makespan < best.makespan {
			best, ok = l, true
		}
		if best.makespan <= target {
			return best, true
		}
		for b := range score {
			if l.off[b]+in.size[b] > in.bound {
				score[b] = score[b]/2 - 1
			}
		}
		slices.SortStableFunc(seq, func(x, y int32) int { return cmp.Compare(score[x], score[y]) })
	}
	return best, ok
}
