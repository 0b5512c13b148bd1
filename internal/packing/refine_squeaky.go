package packing

import (
	"cmp"
	"slices"
)

// squeakyWheel is squeaky wheel optimization (Joslin and Clements, JAIR 10, 1999):
// first fit places all buffers in an order, those that end above the lower bound move
// towards the front of the order, and so on. The result depends much on the first
// order, so it runs from several, side by side.
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

// squeakPlacements bounds one start, in buffers placed: 0.5 to 1 s of processor time on
// recorded pipelines of 15,000 to 23,000 buffers.
const squeakPlacements = 250_000

// squeakMinRounds is the smallest number of rounds that squeakPlacements has to be
// enough for: instances of more than 62,500 buffers are left alone, since fewer rounds
// change their order too little.
const squeakMinRounds = 4

// squeakMaxRounds bounds one start on instances of fewer than 125 buffers, in rounds.
// On larger ones squeakPlacements ends it first.
const squeakMaxRounds = 2_000

// squeakFrom runs squeaky wheel optimization from one order. ok is false if not even
// the first round finished.
func squeakFrom(j *job, seq []int32, target int64) (best layout, ok bool) {
	in := j.in
	unlimited := j.unlimited()
	score := make([]float64, in.n)
	for rank, b := range seq {
		score[b] = float64(rank)
	}
	for range min(squeakPlacements/in.n, squeakMaxRounds) {
		l, done := firstFit(unlimited, seq)
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
