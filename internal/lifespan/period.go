package lifespan

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// beat is a gram that recurs at even distances.
type beat struct {
	at     []int32 // positions in the sequence, ascending
	period int32   // the median distance between neighbours, in allocations
}

// What counts as a period.
const (
	// minOccurrences is the number of times that a gram has to occur. Two distances are
	// the fewest that can be compared.
	minOccurrences = 3
	// minCover is the share of the recording that the repetitions of a gram have to
	// cover. Building the model or a final evaluation may take the rest.
	minCover = 1. / 2
	// spread is the factor that the periods of the beats of one loop may differ by,
	// because data that skips allocations gives every iteration another length. At 1.5 a
	// steady iteration of gpt345-eval is lost, at 2 three shared recordings get another
	// number of iterations.
	spread = 1.25
	// minLikeness is the mean likeness (see likenessAhead) that iterations need to be
	// taken for repetitions. Below it the period is more likely a chance.
	minLikeness = 0.5
)

// fromPeriod finds the outermost repetition from the sequence of allocations alone. Most
// grams recur many times an iteration, in inner loops (layers, micro-batches). The few
// around the boundary between iterations (gradient clipping, the optimizer, the first
// accumulation of a gradient) recur once an iteration. So the beats are sorted by period,
// and the longest period that enough of them share is that of the iterations.
func fromPeriod(tl *Timeline, s *sequence) Iterations {
	loop := sameCount(outermost(s.beats(), s.gram))
	if len(loop) == 0 {
		return Iterations{}
	}
	at := newBoundarySearch(tl, s, loop).best()
	it := newIterations(s.times(tl, s.cuts(at)), SourcePeriodicity)
	if s.meanLikeness(tl, it.Starts) < minLikeness {
		return Iterations{}
	}
	return it
}

// times are the times of the allocations at the given positions. For a position past the
// last allocation it is the end of the recording.
func (s *sequence) times(tl *Timeline, positions []int32) []trace.Time {
	out := make([]trace.Time, len(positions))
	for i, at := range positions {
		out[i] = tl.Events
		if k := s.first + int(at); k < len(tl.Buffers) {
			out[i] = tl.Buffers[k].Start
		}
	}
	return out
}

// beats lists the grams that recur evenly over enough of the recording. Their period has
// to be at least the length of a gram: a run of equal allocations is no loop.
func (s *sequence) beats() []beat {
	var out []beat
	var distances []int32
	s.occurrences(func(at []int32) {
		if len(at) < minOccurrences {
			return
		}
		distances = distances[:0]
		for i := range at[1:] {
			distances = append(distances, at[i+1]-at[i])
		}
		slices.Sort(distances)
		period := distances[(len(distances)-1)/2]
		covered := float64(at[len(at)-1]-at[0]) + float64(period)
		if period >= int32(s.gram) && even(distances) && covered >= minCover*float64(len(s.grams)) {
			out = append(out, beat{at: at, period: period})
		}
	})
	return out
}

// even says whether sorted distances are within a factor of 2 of each other. A distance
// of twice another means that a repetition was missed. The longest fifth of the distances
// may be any length, because an evaluation or a checkpoint comes between some iterations.
func even(distances []int32) bool {
	return distances[len(distances)-1-len(distances)/5] < 2*distances[0]
}

// outermost picks the beats of the longest period that enough beats share. All grams of
// an inner loop recur with its period, but only those near the boundary recur with the
// period of the outer loop, so the outer loop has fewer beats. A stretch that recurs by
// chance is hardly longer than a gram and makes only one beat for each allocation more.
// So enough is twice the length of a gram, or half of the beats of the loop with the most
// if that is less.
func outermost(beats []beat, gram int) []beat {
	slices.SortFunc(beats, func(x, y beat) int {
		return cmp.Or(cmp.Compare(x.period, y.period), cmp.Compare(x.at[0], y.at[0]))
	})
	lows := make([]int, len(beats)) // beats[lows[i]:i+1] have about beats[i]'s period
	most, low := 0, 0
	for i := range beats {
		for float64(beats[low].period)*spread <= float64(beats[i].period) {
			low++
		}
		lows[i] = low
		most = max(most, i+1-low)
	}
	enough := min(2*gram, (most+1)/2)
	for i := len(beats) - 1; i >= 0; i-- {
		if i+1-lows[i] >= enough {
			return beats[lows[i] : i+1]
		}
	}
	return nil
}

// sameCount picks beats that occur equally often and returns them by position. Of the
// numbers of occurrences that at least a third as many beats have as the commonest one,
// it takes the highest, since many grams are missing from the first iteration.
func sameCount(loop []beat) []beat {
	votes := map[int]int{}
	most := 0
	for _, b := range loop {
		votes[len(b.at)]++
		most = max(most, votes[len(b.at)])
	}
	count := 0
	for n, v := range votes {
		if 3*v >= most {
			count = max(count, n)
		}
	}
	same := slices.DeleteFunc(slices.Clone(loop), func(b beat) bool { return len(b.at) != count })
	slices.SortFunc(same, func(x, y beat) int { return cmp.Compare(x.at[0], y.at[0]) })
	return same
}

// cuts are the positions at which iterations end. at has one position in each iteration,
// at least two in all. The first of them ends an iteration if most of one lies before it
// (see ahead). The last of them begins an iteration if most of one follows. That
// iteration then ends a period later, or at the end of the recording if no more than
// spread periods are left.
func (s *sequence) cuts(at []int32) []int32 {
	n := int32(len(s.grams) + s.gram - 1)
	last := len(at) - 1
	begins := s.mostly(s.span(at[last-1], at[last]), s.span(at[last], n))
	period := at[last] - at[last-1]
	end := n
	if float64(n-at[last]) > spread*float64(period) {
		end = at[last] + period
	}

	cuts := s.ahead(at)
	if begins {
		cuts = append(cuts, end)
	}
	return cuts
}

// ahead is at with its beginning corrected. If no whole iteration lies before the first
// position, that position is left out. If several do, in which the beat is missing, their
// positions are added, a period apart.
func (s *sequence) ahead(at []int32) []int32 {
	first := s.span(at[0], at[1])
	if !s.mostly(first, s.span(0, at[0])) {
		return slices.Clone(at[1:])
	}
	var early []int32
	period := at[1] - at[0]
	for p := at[0] - period; p > 0 && s.mostly(first, s.span(0, p)); p -= period {
		early = append(early, p)
	}
	slices.Reverse(early)
	return append(early, at...)
}

// mostly says whether b has most of a's grams.
func (s *sequence) mostly(a, b []int32) bool { return 2*s.shared(a, b) >= len(a) }
