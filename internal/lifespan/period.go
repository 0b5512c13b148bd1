package lifespan

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// beat is a gram that recurs at even distances.
type beat struct {
	at     []int32 // positions in the sequence
	period int32   // the median distance between neighbours
}

// Bounds on what counts as a period.
const (
	// minOccurrences is how often a gram has to occur: two distances are the
	// fewest that can be even.
	minOccurrences = 3
	// minCover is the share of the recording that the repetitions cover: the
	// building of the model or a final evaluation may take the rest.
	minCover = 1. / 2
	// spread is how far apart the periods of beats of one loop can be: with
	// data-dependent skips every iteration has another length.
	spread = 1.25
	// minLikeness is how alike neighbouring iterations are, see likeness.
	minLikeness = 0.5
)

// fromPeriod finds the outermost repetition in the sequence alone. Most grams
// recur in inner loops (layers, micro-batches), many times an iteration; the
// few at the seam of an iteration (gradient clipping, the optimizer, the first
// accumulation of a gradient) recur once. So the beats are sorted by period,
// and the longest period that enough of them share is the iteration.
func fromPeriod(tl *Timeline, s *sequence) Iterations {
	loop := sameCount(outermost(s.beats(), s.gram))
	if len(loop) == 0 {
		return Iterations{}
	}
	at := newSeams(tl, s, loop).best()
	it := newIterations(s.times(tl, s.cuts(at)), "periodicity")
	if s.meanLikeness(tl, it.Starts) < minLikeness {
		return Iterations{}
	}
	return it
}

// times are the starts of the allocations at the given positions; the end of
// the recording for one past the last.
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

// beats lists the grams that recur evenly over enough of the recording, no
// closer than they are long: a run of equal allocations is no loop.
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

// even says whether sorted distances are within a factor of 2 of each other.
// Beyond it a repetition was missed. One in five may be: an evaluation or a
// checkpoint comes between some iterations.
func even(distances []int32) bool {
	return distances[len(distances)-1-len(distances)/5] < 2*distances[0]
}

// outermost picks the beats of the longest period that enough beats share. An
// inner loop repeats in its whole body and an outer one only in its seam, so it
// has fewer. But a stretch that recurs by chance is hardly longer than a gram,
// and makes one beat for each allocation beyond: twice the gram is enough, or
// half of what the loop with the most has.
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

// sameCount picks the beats that occur equally often: the most often that is
// still common, since many grams are missing from the first iteration. They
// are by position.
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

// cuts are the positions where iterations end, given one position in each. The
// first of them ends an iteration if most of one lies before it, and iterations
// from which the beat was missing are counted back from there. The last begins
// one if most of one follows; it then runs for another period, or to the end of
// the recording where that is near.
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

// ahead is at with what its first positions say about the beginning: more of
// them where iterations lie before, fewer where not even one does.
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
