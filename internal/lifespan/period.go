package lifespan

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// beat is a gram that recurs at even distances.
type beat struct {
	at     []int32 // positions in the sequence, ascending
	period int32   // the median distance between neighbours, in allocations
	news   float64 // the median distance between neighbours, in news (see sequence)
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
	l := chooseLoop(tl, s)
	if l == nil || l.likeness < minLikeness {
		return Iterations{}
	}
	return l.iterations
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
	var news []float64
	before := s.news
	s.occurrences(func(at []int32) {
		if len(at) < minOccurrences {
			return
		}
		distances, news = distances[:0], news[:0]
		for i := range at[1:] {
			distances = append(distances, at[i+1]-at[i])
			news = append(news, before[at[i+1]]-before[at[i]])
		}
		slices.Sort(distances)
		slices.Sort(news)
		b := beat{at: at, period: distances[(len(distances)-1)/2], news: news[(len(news)-1)/2]}
		covered := before[at[len(at)-1]] - before[at[0]] + b.news
		if b.period >= int32(s.gram) && even(news) && covered >= minCover*before[len(before)-1] {
			out = append(out, b)
		}
	})
	return out
}

// even says whether sorted distances are within a factor of 2 of each other. A distance
// of twice another means that a repetition was missed. The longest fifth of the distances
// may be any length, because an evaluation or a checkpoint comes between some iterations.
func even(distances []float64) bool {
	return distances[len(distances)-1-len(distances)/5] < 2*distances[0]
}

// loopsOf sorts beats into loops, the outermost first: those of the longest period that
// enough beats share, and so on. All grams of an inner loop recur with its period, but only
// those near the boundary recur with the period of the outer loop, so the outer loop has
// fewer beats. A stretch that recurs by chance is hardly longer than a gram and makes only
// one beat for each allocation more. So enough is twice the length of a gram, or half of
// the beats of the loop with the most if that is less.
func loopsOf(beats []beat, gram int) [][]beat {
	slices.SortFunc(beats, func(x, y beat) int {
		return cmp.Or(cmp.Compare(x.news, y.news), cmp.Compare(x.at[0], y.at[0]))
	})
	lows := make([]int, len(beats)) // beats[lows[i]:i+1] have about beats[i]'s period
	most, low := 0, 0
	for i := range beats {
		for beats[low].news*spread <= beats[i].news {
			low++
		}
		lows[i] = low
		most = max(most, i+1-low)
	}
	enough := min(2*gram, (most+1)/2)
	var loops [][]beat
	for i := len(beats) - 1; i >= 0; i-- {
		if i+1-lows[i] >= enough {
			loops = append(loops, beats[lows[i]:i+1])
			i = lows[i]
		}
	}
	return loops
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
	period := at[last] - at[last-1]
	end := n
	if float64(n-at[last]) > spread*float64(period) {
		end = at[last] + period
	}

	cuts := s.ahead(at)
	if s.holds(at[last], n, at[max(0, last-compared):]) {
		cuts = append(cuts, end)
	}
	return cuts
}

// ahead is at with its beginning corrected. If no whole iteration lies before the first
// position, that position is left out. If several do, in which the beat is missing, their
// positions are added, a period apart.
func (s *sequence) ahead(at []int32) []int32 {
	others := at[:min(len(at), compared+1)]
	if !s.holds(0, at[0], others) {
		return slices.Clone(at[1:])
	}
	var early []int32
	period := s.newsBetween(at[0], at[1])
	for p := s.before(at[0], period); p > 0 && s.holds(0, p, others); p = s.before(p, period) {
		early = append(early, p)
	}
	slices.Reverse(early)
	return append(early, at...)
}

// holds says whether the positions [from, to) hold an iteration: whether they have half of
// the news of one of the iterations between neighbours of at, or three quarters of the
// different grams that those have at least.
func (s *sequence) holds(from, to int32, at []int32) bool {
	b := s.span(from, to)
	known := map[int32]bool{}
	least := len(s.grams)
	for i := range at[1:] {
		if 2*s.sharedNews(from, to, at[i], at[i+1]) >= s.newsBetween(at[i], at[i+1]) {
			return true
		}
		own := different(s.span(at[i], at[i+1]))
		least = min(least, len(own))
		maps.Copy(known, own)
	}
	found := 0
	for g := range different(b) {
		if known[g] {
			found++
		}
	}
	return 4*found >= 3*least
}

// countNews fills in the news (see sequence). Grams that occur less often than a beat are none.
func (s *sequence) countNews() {
	s.news = make([]float64, len(s.grams)+1)
	s.occurrences(func(at []int32) {
		if len(at) >= minOccurrences {
			for _, p := range at {
				s.news[p+1] = 1 / float64(len(at))
			}
		}
	})
	for i := range s.grams {
		s.news[i+1] += s.news[i]
	}
}

// newsBetween is the news of the positions [from, to).
func (s *sequence) newsBetween(from, to int32) float64 {
	n := int32(len(s.grams))
	return s.news[min(max(to, 0), n)] - s.news[min(max(from, 0), n)]
}

// before is the last position that is ahead of p by so much news. It is always ahead.
func (s *sequence) before(p int32, news float64) int32 {
	return min(p-1, int32(sort.SearchFloat64s(s.news, s.newsBetween(0, p)-news)))
}

// sharedNews is the news of the grams that the positions [from, to) and [from1, to1) share,
// as multisets.
func (s *sequence) sharedNews(from, to, from1, to1 int32) float64 {
	for _, g := range s.span(from1, to1) {
		s.count[g]++
	}
	news := 0.0
	for p, g := range s.span(from, to) {
		if s.count[g] > 0 {
			s.count[g]--
			at := from + int32(p)
			news += s.news[at+1] - s.news[at]
		}
	}
	for _, g := range s.span(from1, to1) {
		s.count[g] = 0
	}
	return news
}
