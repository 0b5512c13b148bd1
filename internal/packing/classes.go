package packing

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"

	"github.com/stplan/stplan/internal/fusion"
)

// Sizes that vary a little, as with sequences of other lengths, spoil what is simple: a
// buffer that is a hair larger than the last one leaves its hole empty, and no two
// iterations are the same. So tryClasses packs the buffers as if all of a class, a range
// of sizes, had the same size. That problem repeats where the program does, so it folds,
// and fits leave little of it unused. Of its placement only the order of the offsets is
// kept, and compact places the buffers with their own sizes in that order. A buffer above
// others then lies as high as they are together, and what one of them takes more than the
// mean of its class another one takes less.

// classing is a division of sizes into classes.
type classing struct {
	// width is the largest size of a class, as a share of the smallest, less 1.
	width float64
	// digits is the number of binary digits of the size that stands for a class. The mean
	// of a class is off by chance. With few digits it is as if it were not, and what takes
	// two buffers of one class takes one of a class twice as large.
	digits int
}

// classings are tried in this order. Sizes that vary by 6 and by 11 % up and down are one
// class. If they vary more, they overlap with those of other classes.
var classings = []classing{{1.0 / 8, 4}, {1.0 / 4, 4}}

// classRules pack the classes. All go in the program's order, in which a buffer depends
// on few others: rules by size that reached the load of the classes left two to four
// times the gap with the buffers' own sizes.
var classRules = []rule{
	{"sweep-FF", costSweep, true, 0, sweep((*freeList).first)},
	{"start-BF", costBestFit, false, 0, func(j *job) (layout, bool) { return bestFit(j, byStart.sorted(j.in)) }},
}

// classBudget bounds the cost of tryClasses, in the unit of cost.
const classBudget = smallBudget

// compactCost is the cost of compact for each buffer.
const compactCost = 4

// classesShare is the smallest number of different sizes in a class, on average. If there
// are fewer, the sizes do not vary, and the rules on the buffers do well.
const classesShare = 4

// sizes returns the size that stands for the class of each size. It is false if the
// classes hold too few different sizes.
func (c classing) sizes(own []int64) ([]int64, bool) {
	sorted := slices.Clone(own)
	slices.Sort(sorted)
	stands, classes := map[int64]int64{}, 0
	for i := 0; i < len(sorted); {
		last := float64(sorted[i]) * (1 + c.width)
		j, sum := i, 0.0
		for ; j < len(sorted) && float64(sorted[j]) <= last; j++ {
			sum += float64(sorted[j])
		}
		mean := roundDigits(int64(math.Round(sum/float64(j-i))), c.digits)
		for ; i < j; i++ {
			stands[sorted[i]] = mean
		}
		classes++
	}
	if len(stands) < classesShare*classes {
		return nil, false
	}
	sizes := make([]int64, len(own))
	for b, size := range own {
		sizes[b] = stands[size]
	}
	return sizes, true
}

// roundDigits rounds size, above 0, to so many binary digits.
func roundDigits(size int64, digits int) int64 {
	shift := max(0, bits.Len64(uint64(size))-digits)
	return (size + 1<<shift/2) >> shift << shift
}

// classed is a problem whose buffers have the sizes of their classes.
type classed struct {
	fold *fusion.Reduced
	in   *instance // of the folded problem
}

// newClassed is false if the sizes do not form classes, or the sizes of the classes add
// up to more than an int64.
func (c classing) newClassed(in *instance) (classed, bool) {
	sizes, ok := c.sizes(in.size)
	if !ok {
		return classed{}, false
	}
	buffers := make([]Buffer, in.n)
	for b := range buffers {
		buffers[b] = Buffer{Start: in.start[b], End: in.end[b], Size: Bytes(sizes[b])}
	}
	fold, err := fusion.Fold(buffers)
	if err != nil {
		return classed{}, false
	}
	folded, err := newInstance(&Problem{Alignment: 1, Buffers: fold.Buffers})
	return classed{fold, folded}, err == nil
}

// same says whether c packs like d, the sizes being equal.
func (c classed) same(d classed) bool { return slices.Equal(c.fold.Buffers, d.fold.Buffers) }

// place packs the classes by a rule, and then the buffers of j in the order of offsets.
func (c classed) place(j *job, r rule) (layout, bool) {
	classes := j.unlimited()
	classes.in = c.in
	l, ok := r.run(classes)
	if !ok || j.stopped() {
		return layout{}, false
	}
	l = compact(j.in, c.fold.Expand(c.in.placement(l).Offsets))
	l.heuristic = r.name
	return l, true
}

// classAttempt is a rule for the classes.
type classAttempt struct {
	classed
	rule rule
}

// classAttempts are the attempts on in within classBudget, and the first in any case.
func classAttempts(in *instance) []classAttempt {
	var all []classAttempt
	left := classBudget
	for _, c := range classings {
		problem, ok := c.newClassed(in)
		if !ok || slices.ContainsFunc(all, func(a classAttempt) bool { return a.same(problem) }) {
			continue
		}
		for _, r := range classRules {
			if left -= r.cost.perBuffer*problem.in.n + compactCost*in.n; left < 0 && all != nil {
				return all
			}
			all = append(all, classAttempt{problem, r})
		}
	}
	return all
}

// tryClasses keeps the best placement of the folded problem by classes, if it is smaller
// than the best so far.
func (f *fused) tryClasses(ctx context.Context, fold *fusion.Reduced) error {
	in, err := newInstance(&Problem{Alignment: f.problem.Alignment, Buffers: fold.Buffers})
	if err != nil {
		return err
	}
	attempts := classAttempts(in)
	s := newSearch(ctx, in, f.remaining(), work{})
	defer s.cancel()
	found, ok := s.decide(contest{
		tasks:  len(attempts),
		target: s.target,
		known:  int64(f.best.Makespan/in.unit) - 1,
		run:    func(i int, j *job) (layout, bool) { return attempts[i].place(j, attempts[i].rule) },
	})
	if ok && Bytes(found.makespan)*in.unit < f.best.Makespan {
		pl := in.placement(found)
		f.best.Offsets, f.best.Makespan, f.best.Heuristic = fold.Expand(pl.Offsets), pl.Makespan, "classes, "+pl.Heuristic
	}
	f.best.TimeLimitHit = f.best.TimeLimitHit || s.ctx.Err() != nil
	return s.caller.Err()
}

// compact places the buffers in the order of their offsets in another placement, each
// right above those placed before it that live at the same time. So of two buffers that
// live at once the upper one stays the upper one. It is the one-dimensional compaction of
// circuit layouts (Lengauer, Combinatorial Algorithms for Integrated Circuit Layout,
// 1990, chapter 10): each offset is the longest path to the buffer in the graph of what
// lies above what.
func compact(in *instance, offsets []Bytes) layout {
	seq := make([]int32, in.n)
	for b := range seq {
		seq[b] = int32(b)
	}
	slices.SortFunc(seq, func(x, y int32) int { return cmp.Or(cmp.Compare(offsets[x], offsets[y]), cmp.Compare(x, y)) })
	l := layout{off: make([]int64, in.n)}
	surface := newRangeMax(in.sections)
	for _, b := range seq {
		x := surface.max(in.lo[b], in.hi[b])
		l.off[b] = x
		l.makespan = max(l.makespan, x+in.size[b])
		surface.raise(in.lo[b], in.hi[b], x+in.size[b])
	}
	return l
}
