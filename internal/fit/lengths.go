package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// lengths are the laws of one recording whose iterations differ in size, such as those of
// batches of varying length. Each iteration may hold several micro-batches, each with a
// length of its own. An allocation of the iteration that all are compared with is a slot.
// The slots of a micro-batch grow together from iteration to iteration, so slots whose sizes
// have the same ratios in all iterations tell its length; it is counted in bytes of the
// largest of them, which is the same tensor in every micro-batch. Every other slot is
// affine in one of these lengths, a parabola, constant, or not known
// (lifespan.LawOver).
type lengths struct {
	job   *Job
	slot  []int32 // of each buffer, none for those without one
	law   []lifespan.SizeLaw
	known []bool // by slot: it has a law
	// batches are the slots whose sizes stand for the lengths of the micro-batches.
	batches     []int
	steadyStart trace.Time
	// longest is the length of the longest micro-batch of the steady iterations.
	longest float64
	// spread is the share of longest by which the shortest one is shorter.
	spread float64
	// unknown is the most bytes live at once of buffers without a law.
	unknown trace.Bytes
}

const (
	none int32 = -1
	// fewestIterations is the least number of iterations that lengths can be told by: two
	// points make a line, and the third shows that it is one.
	fewestIterations = 3
	// sharedBytes is the share of the bytes of the largest group of slots that another
	// group has to have to be a micro-batch's.
	sharedBytes = 0.1
)

// FindLengths finds the laws of one recording whose iterations differ in size. Sizes are
// multiples of the longest micro-batch in its steady iterations. It is nil if the recording has fewer than three
// steady iterations or if they do not differ.
func FindLengths(j *Job) (*Laws, error) {
	if len(j.Device.Initial) > 0 {
		return nil, nil
	}
	it, err := lifespan.FindIterations(&j.Trace.Stacks, j.Device, j.Timeline, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: device %d: %w", j.Trace.Name, j.Device.Ordinal, err)
	}
	steady := it.Count - it.SteadyCount
	if it.SteadyCount < fewestIterations {
		return nil, nil
	}
	l := &lengths{job: j, steadyStart: it.SteadyStart}
	sizes := l.align(it)
	if !l.fit(sizes, steady) {
		return nil, nil
	}
	l.dropUnlike(sizes, it, steady)
	l.countUnknown()
	return &Laws{Jobs: []*Job{j}, Sizes: []float64{1}, Found: []float64{1}, within: l}, nil
}

// align matches the iterations with the last one, and returns the sizes of each of its
// allocations in all of them, by iteration; 0 if one lacks it.
func (l *lengths) align(it lifespan.Iterations) [][]float64 {
	tl := l.job.Timeline
	begins := make([]int, it.Count+1)
	for k := range begins {
		begins[k] = firstBuffer(tl, it.Starts[k])
	}
	part := func(k int) *lifespan.Timeline {
		return &lifespan.Timeline{Events: tl.Events, Buffers: tl.Buffers[begins[k]:begins[k+1]]}
	}
	last := it.Count - 1
	base := part(last)
	sizes := make([][]float64, len(base.Buffers))
	for i := range sizes {
		sizes[i] = make([]float64, it.Count)
	}
	l.slot = make([]int32, len(tl.Buffers))
	for i := range l.slot {
		l.slot[i] = none
	}
	for k := range it.Count {
		for i, at := range lifespan.Match(base, part(k)) {
			// What outlives its iteration is no slot that does not, such as a weight.
			if at >= 0 && (tl.Buffers[begins[k]+i].RequestedEnd >= it.Starts[k+1]) == (base.Buffers[at].RequestedEnd >= it.Starts[it.Count]) {
				l.slot[begins[k]+i] = at
				sizes[at][k] = float64(tl.Buffers[begins[k]+i].Requested)
			}
		}
	}
	return sizes
}

// firstBuffer is the index of the first buffer that starts at t or later.
func firstBuffer(tl *lifespan.Timeline, t trace.Time) int {
	n, _ := slices.BinarySearchFunc(tl.Buffers, t, func(b lifespan.Buffer, t trace.Time) int { return cmp.Compare(b.Start, t) })
	return n
}

// fit finds the micro-batches and the laws, from the steady iterations. It reports whether
// anything grows.
func (l *lengths) fit(sizes [][]float64, steady int) bool {
	l.batches = microBatches(sizes, steady)
	if len(l.batches) == 0 {
		return false
	}
	var lengths [][]float64
	shortest := math.Inf(1)
	for _, i := range l.batches {
		lengths = append(lengths, sizes[i][steady:])
		l.longest = max(l.longest, slices.Max(sizes[i][steady:]))
		shortest = min(shortest, slices.Min(sizes[i][steady:]))
	}
	l.spread = 1 - shortest/l.longest
	l.law, l.known = make([]lifespan.SizeLaw, len(sizes)), make([]bool, len(sizes))
	for i, s := range sizes {
		l.law[i], _, l.known[i] = lifespan.LawOver(s[steady:], lengths)
	}
	return true
}

// dropUnlike takes from their slots the buffers of the iterations before the steady state
// whose sizes no micro-batch of theirs explains: the first iteration begins with what is
// done once, and some of that is matched by chance.
func (l *lengths) dropUnlike(sizes [][]float64, it lifespan.Iterations, steady int) {
	tl := l.job.Timeline
	for k := range steady {
		for i := firstBuffer(tl, it.Starts[k]); i < firstBuffer(tl, it.Starts[k+1]); i++ {
			s, like := l.slot[i], false
			if s == none || !l.known[s] {
				continue
			}
			for _, b := range l.batches {
				if sizes[b][k] > 0 {
					like = like || l.law[s].Near(sizes[b][k], float64(tl.Buffers[i].Requested))
				}
			}
			if !like {
				l.slot[i] = none
			}
		}
	}
}

// microBatches are the slots whose sizes stand for the lengths of the micro-batches: of each
// group that grows together in the steady iterations, the largest.
func microBatches(sizes [][]float64, steady int) []int {
	late := make([][]float64, len(sizes))
	for i, s := range sizes {
		late[i] = s[steady:]
	}
	var out []int
	quantities := lifespan.Quantities(late)
	for _, q := range quantities {
		if q.Bytes >= sharedBytes*quantities[0].Bytes {
			out = append(out, q.Slot)
		}
	}
	slices.Sort(out)
	return out
}

// countUnknown finds how much of what lives at once has no law.
func (l *lengths) countUnknown() {
	unknown := lifespan.Timeline{Events: l.job.Timeline.Events}
	for i, b := range l.job.Timeline.Buffers {
		if !l.kept(i) && !l.early(i) && (l.slot[i] == none || !l.known[l.slot[i]]) {
			unknown.Buffers = append(unknown.Buffers, b)
		}
	}
	l.unknown = unknown.Load(lifespan.EndRequested).Peak().Bytes
}

// kept says that a buffer without a slot has the size of something that stays, such as a
// weight.
func (l *lengths) kept(i int) bool { return l.slot[i] == none && l.job.Timeline.Buffers[i].Resident }

// matching is Laws.Matching for the laws of one recording.
func (l *lengths) matching() Matching {
	tl := l.job.Timeline
	m := Matching{Allocations: len(tl.Buffers), Unknown: l.unknown}
	for i, b := range tl.Buffers {
		kept, s := l.kept(i), l.slot[i]
		if s != none && l.known[s] {
			m.Matched++
			kept = l.law[s].Growth == 0 && l.law[s].Square == 0
		}
		if at := tl.PeakAllocated.At; kept && b.Start <= at && b.RequestedEnd > at {
			m.Constant += b.Size
		}
	}
	return m
}

// early says that a buffer without a slot is of the iterations before the steady state. At
// sizes beyond the recorded ones these do not bind: the steady iterations do the same.
func (l *lengths) early(i int) bool {
	return l.slot[i] == none && l.job.Timeline.Buffers[i].Start < l.steadyStart
}

// at is the job with every micro-batch x times as long as the longest that was recorded.
func (l *lengths) at(x float64) (*Job, error) {
	return l.job.resized(func(i int) trace.Bytes {
		b := &l.job.Timeline.Buffers[i]
		switch s := l.slot[i]; {
		case l.kept(i):
			return b.Requested
		case l.early(i):
			return trace.Bytes(math.Round(min(1, x) * float64(b.Requested)))
		case s == none || !l.known[s]:
			return trace.Bytes(math.Round(max(1, x) * float64(b.Requested)))
		default:
			return trace.Bytes(math.Round(max(0, l.law[s].At(l.longest*x))))
		}
	})
}
