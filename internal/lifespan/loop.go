package lifespan

import (
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// loop is a repetition that may be the outermost one.
type loop struct {
	s          *sequence
	beats      []beat
	at         []int32       // a boundary in each repetition, as positions in the sequence
	live       []trace.Bytes // the load before each of at
	iterations Iterations
	likeness   float64 // of the iterations, see meanLikeness
}

// candidates is the number of loops that are looked at, from the outermost inward. A
// program nests few loops (steps, micro-batches or tokens, layers), and each of them may
// also show a chance one that skips some of its repetitions.
const candidates = 6

// chooseLoop finds the outermost loop. In a program whose iterations differ, some grams
// recur in every second or third iteration only, by chance: those of one shape of batches.
// They make a loop that seems to be further out. But it consists of the repetitions of the
// loop inside, these are about as much alike, and nothing shows where it begins.
func chooseLoop(tl *Timeline, s *sequence) *loop {
	groups := loopsOf(s.beats(), s.gram)
	var loops []*loop
	for _, beats := range groups[:min(len(groups), candidates)] {
		loops = append(loops, s.loop(tl, sameCount(beats)))
	}
	for i, outer := range loops {
		chance := slices.ContainsFunc(loops[i+1:], func(inner *loop) bool {
			if inner.likeness < asLike*outer.likeness {
				return false
			}
			n := newNest(outer, inner)
			return n.tiled() && n.evidence(tl.PeakAllocated.Bytes/grains+1) < enoughEvidence
		})
		if !chance {
			return outer
		}
	}
	return nil
}

// loop finds the boundaries of a loop with the given beats.
func (s *sequence) loop(tl *Timeline, beats []beat) *loop {
	f := newBoundarySearch(tl, s, beats)
	l := &loop{s: s, beats: beats, at: f.best()}
	for _, p := range l.at {
		l.live = append(l.live, f.before(p))
	}
	l.iterations = newIterations(s.times(tl, s.cuts(l.at)), SourcePeriodicity)
	l.likeness = s.meanLikeness(tl, l.iterations.Starts)
	return l
}

// gap is the number of boundaries of l up to a position. Gap k ends at boundary k.
func (l *loop) gap(p int32) int {
	return sort.Search(len(l.at), func(i int) bool { return l.at[i] > p })
}

// nearest is the boundary of l that is nearest to a position.
func (l *loop) nearest(p int32) int {
	k := l.gap(p)
	if k == len(l.at) || k > 0 && p-l.at[k-1] < l.at[k]-p {
		return k - 1
	}
	return k
}

// distance is how far a position is from the nearest boundary of l.
func (l *loop) distance(p int32) int32 {
	d := p - l.at[l.nearest(p)]
	return max(d, -d)
}

// nest is a pair of loops, one inside the other or not.
type nest struct {
	outer, inner *loop
	// gaps has the gap of the inner loop that a beat of the outer one lies in, for each
	// repetition.
	gaps   []int
	marked map[int]bool // the same as a set
}

// newNest takes the beat of outer that stays farthest from all boundaries of inner, so
// that the same gap of inner has it in every repetition.
func newNest(outer, inner *loop) *nest {
	n := &nest{outer: outer, inner: inner, marked: map[int]bool{}}
	var farthest int32 = -1
	var best beat
	for i := 0; i < len(outer.beats); i += 1 + len(outer.beats)/sampled {
		nearest := inner.distance(outer.beats[i].at[0])
		for _, p := range outer.beats[i].at {
			nearest = min(nearest, inner.distance(p))
		}
		if nearest > farthest {
			farthest, best = nearest, outer.beats[i]
		}
	}
	for _, p := range best.at {
		n.gaps = append(n.gaps, inner.gap(p))
		n.marked[inner.gap(p)] = true
	}
	return n
}

// length is the length of a whole gap of the inner loop.
func (n *nest) length(gap int) int32 { return n.inner.at[gap] - n.inner.at[gap-1] }

// news is the news of a whole gap of the inner loop.
func (n *nest) news(gap int) float64 {
	return n.inner.s.newsBetween(n.inner.at[gap-1], n.inner.at[gap])
}

// whole are the first gap and the one after the last that are whole and lie within the
// repetitions of outer.
func (n *nest) whole() (first, after int) {
	return max(1, n.gaps[0]), min(len(n.inner.at), n.gaps[len(n.gaps)-1]+1)
}

// tiled says whether the inner loop is most of what the outer one does: whether gaps of
// about the same news cover three quarters of most of its repetitions.
func (n *nest) tiled() bool {
	first, after := n.whole()
	if after-first < len(n.gaps) {
		return false
	}
	var lengths []float64
	for k := first; k < after; k++ {
		lengths = append(lengths, n.news(k))
	}
	slices.Sort(lengths)
	usual := lengths[len(lengths)/2]
	tiled := 0
	for i, from := range n.gaps[:len(n.gaps)-1] {
		var covered, all float64
		for k := max(1, from); k < min(after, n.gaps[i+1]); k++ {
			news := n.news(k)
			all += news
			if 2*usual > news && usual < 2*news {
				covered += news
			}
		}
		if 4*covered > 3*all {
			tiled++
		}
	}
	return 2*tiled > len(n.gaps)-1
}

// What shows that the outer loop of a nest is one.
const (
	// enoughEvidence is the sum of points that is enough.
	enoughEvidence = 2
	// apart is the share by which gaps have to differ for a point. Batches of other shapes
	// differ by a fifth of that in number of allocations, an optimizer's step makes several
	// times as much. Gaps that differ by the factor spread give enough points by
	// themselves.
	apart = 1. / 64
	// muchMore is the number of grains by which the load at most boundaries of the inner
	// loop has to exceed that at the outer ones to be enough by itself: 1/16 of the peak.
	muchMore = grains / 16
	// sameShare is the divisor of the mean gap that two boundaries may be apart to be at the
	// same place in the inner repetition.
	sameShare = 8
)

// evidence counts the points for the outer loop: one if all of its repetitions have the
// same number of inner ones; one or two if the inner ones around its beats have another
// length than all others; and one or two if the inner ones hand memory on that it does not
// hand on, as micro-batches do with gradients. The grain is that of loads, in bytes.
func (n *nest) evidence(grain trace.Bytes) int {
	points := n.differ(-1)
	for _, shift := range []int{0, 1} {
		points = max(points, n.differ(shift))
	}
	if n.evenly() {
		points++
	}
	return points + n.handOn(grain)
}

// evenly says whether all repetitions have the same number of inner ones. The first one
// may be without beats that the others have, so it does not count if there are enough.
func (n *nest) evenly() bool {
	gaps := n.gaps
	if len(gaps) > minOccurrences {
		gaps = gaps[1:]
	}
	for i := range gaps[2:] {
		if gaps[i+2]-gaps[i+1] != gaps[1]-gaps[0] {
			return false
		}
	}
	return true
}

// differ compares the gaps at this distance behind marked ones with all others.
func (n *nest) differ(shift int) int {
	var with, without []int32
	first, after := n.whole()
	for k := first; k < after; k++ {
		if n.marked[k-shift] {
			with = append(with, n.length(k))
		} else {
			without = append(without, n.length(k))
		}
	}
	if len(with) < 2 || len(without) < 2 {
		return 0
	}
	above := float64(slices.Min(with)) / float64(slices.Max(without))
	below := float64(slices.Min(without)) / float64(slices.Max(with))
	switch ratio := max(above, below); {
	case ratio >= spread:
		return enoughEvidence
	case ratio >= 1+apart:
		return 1
	}
	return 0
}

// handOn compares the loads at those boundaries of the inner loop that are also boundaries
// of the outer one with the loads at all others.
func (n *nest) handOn(grain trace.Bytes) int {
	var most trace.Bytes
	among := map[int]bool{}
	first, after := n.whole()
	for _, p := range n.outer.at[1 : len(n.outer.at)-1] {
		k := n.inner.nearest(p)
		if sameShare*n.inner.distance(p) > (n.inner.at[after-1]-n.inner.at[first-1])/int32(after-first) {
			return 0
		}
		among[k] = true
		most = max(most, n.inner.live[k])
	}
	among[n.inner.nearest(n.outer.at[0])] = true
	among[n.inner.nearest(n.outer.at[len(n.outer.at)-1])] = true
	var others []trace.Bytes
	for k := first; k < after; k++ {
		if !among[k] {
			others = append(others, n.inner.live[k])
		}
	}
	if len(others) == 0 {
		return 0
	}
	slices.Sort(others)
	switch {
	case others[len(others)/2] >= most+muchMore*grain:
		return enoughEvidence
	case others[0] >= most+grain:
		return 1
	}
	return 0
}
