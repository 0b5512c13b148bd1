package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// lengths are the laws of one recording whose iterations differ in size, such as those of
// batches of varying length. Each iteration may hold several micro-batches, each with a
// length of its own. An allocation of the iteration that all are compared with is a slot.
// The slots of a micro-batch grow together from iteration to iteration, so slots whose sizes
// have the same ratios in all iterations tell its length; it is counted in bytes of the
// largest of them, which is the same tensor in every micro-batch. Every other slot is
// affine in one of these lengths, constant, or not known.
type lengths struct {
	job   *Job
	slot  []int32 // of each buffer, none for those without one
	law   []affine
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

// affine is a law: bytes = constant + growth × length.
type affine struct{ constant, growth float64 }

// near says that the law gives about so many bytes at a length.
func (a affine) near(x, bytes float64) bool {
	return math.Abs(a.constant+a.growth*x-bytes) <= max(1, exact*bytes)
}

const (
	none int32 = -1
	// fewestIterations is the least number of iterations that lengths can be told by: two
	// points make a line, and the third shows that it is one.
	fewestIterations = 3
	// sharedBytes is the share of the bytes of the largest group of slots that another
	// group has to have to be a micro-batch's.
	sharedBytes = 0.1
	// exact is the share by which sizes may lie off a law: roundings of small sizes.
	exact = 1e-3
)

// FindLengths finds the laws of one recording whose iterations differ in size. Sizes are
// multiples of the longest micro-batch in its steady iterations. It is nil if the recording has fewer than three
// steady iterations or if they do not differ.
func FindLengths(j *Job) (*Laws, error) {
	if len(j.Device.Initial) > 0 {
		return nil, nil
	}
	it, err := lifespan.FindIterations(j.Device, j.Timeline, nil)
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
	l.law, l.known = make([]affine, len(sizes)), make([]bool, len(sizes))
	for i, s := range sizes {
		l.law[i], l.known[i] = lawOver(s[steady:], lengths)
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
					like = like || l.law[s].near(sizes[b][k], float64(tl.Buffers[i].Requested))
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
	type group struct {
		bytes   float64
		largest int
	}
	groups := map[string]*group{}
	for i, s := range sizes {
		key, ok := ratios(s[steady:])
		if !ok {
			continue
		}
		g := groups[key]
		if g == nil {
			g = &group{largest: i}
			groups[key] = g
		}
		g.bytes += s[steady]
		if s[steady] > sizes[g.largest][steady] {
			g.largest = i
		}
	}
	most := 0.
	for _, g := range groups {
		most = max(most, g.bytes)
	}
	var out []int
	for _, g := range groups {
		if g.bytes >= sharedBytes*most {
			out = append(out, g.largest)
		}
	}
	slices.Sort(out)
	return out
}

// ratios is a text that slots of the same micro-batch have in common. ok is false for a
// slot that some iteration lacks, or whose size never changes.
func ratios(s []float64) (key string, ok bool) {
	var b strings.Builder
	for _, n := range s {
		if n == 0 {
			return "", false
		}
		ok = ok || n != s[0]
		b.WriteString(strconv.Itoa(int(math.Round(math.Log(n/s[0])/exact))) + " ")
	}
	return b.String(), ok
}

// lawOver is the law of a slot with these sizes, in the length of one of the micro-batches.
// ok is false if there is none.
func lawOver(s []float64, batches [][]float64) (law affine, ok bool) {
	for _, x := range batches {
		low, high, n := -1, -1, 0
		for k := range s {
			if s[k] == 0 {
				continue
			}
			n++
			if low < 0 || x[k] < x[low] {
				low = k
			}
			if high < 0 || x[k] > x[high] {
				high = k
			}
		}
		if n < 2 || x[low] == x[high] {
			continue
		}
		law.growth = (s[high] - s[low]) / (x[high] - x[low])
		law.constant = s[low] - law.growth*x[low]
		fits := true
		for k := range s {
			fits = fits && (s[k] == 0 || law.near(x[k], s[k]))
		}
		if fits && law.growth >= 0 {
			return law, true
		}
	}
	return affine{}, false
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
			kept = l.law[s].growth == 0
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
			return trace.Bytes(math.Round(max(0, l.law[s].constant+l.law[s].growth*l.longest*x)))
		}
	})
}
