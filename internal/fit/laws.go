package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// Laws say how the sizes of a job's allocations follow its size, the number of samples in
// a batch or of tokens in a sequence, from recordings at several sizes.
//
// Each allocation of one recording is looked for in the others (lifespan.Match). Its law
// goes through the sizes that it has in the recordings: a straight line between two
// neighbours and beyond the last ones, so that it is affine if all of them lie on one line.
// If it grows faster than in proportion, but no faster than the square, it is a power between
// the two, as of attention that keeps a square of the length. An allocation that falls, or grows
// faster than the square, is not a tensor but for example a workspace of a library that has
// taken another algorithm. That one, and an allocation that no other recording has, grows in
// proportion from the nearest recording, which the error bars count as not known.
type Laws struct {
	// Jobs are the recordings by size, and Sizes are theirs.
	Jobs  []*Job
	Sizes []float64
	// Given says that the sizes were given. Otherwise they are multiples of the first
	// recording's, found by what grows most.
	Given bool
	// Found are, for each recording, the sizes in units of the first one that the
	// allocations show.
	Found []float64
	// matches[k] says which buffer of recording i each buffer of recording k is.
	matches [][][]int32
	// within are the laws of a single recording, nil for those of several.
	within *lengths
}

// FindLaws matches recordings of a job at several sizes; sizes is nil if these are not
// known. It is an error if the recordings do not differ in size, have too little in common
// to be of one job, or one began after the first allocation.
func FindLaws(jobs []*Job, sizes []float64) (*Laws, error) {
	for _, j := range jobs {
		if len(j.Device.Initial) > 0 {
			return nil, fmt.Errorf("%s: device %d: recorded from the middle: what was allocated before has no law", j.Trace.Name, j.Device.Ordinal)
		}
	}
	l := &Laws{Jobs: jobs, Given: sizes != nil}
	for k := range jobs {
		match := lifespan.Match(jobs[0].Timeline, jobs[k].Timeline)
		if share := common(jobs[0], jobs[k], match); share < leastCommon {
			return nil, fmt.Errorf("%s: device %d: expected a recording of the same job as %s, found %.0f %% of the allocations in common, expected at least %.0f %%",
				jobs[k].Trace.Name, jobs[k].Device.Ordinal, jobs[0].Trace.Name, 100*share, 100*leastCommon)
		}
		l.Found = append(l.Found, growth(jobs[0], jobs[k], match))
	}
	if l.Sizes = sizes; sizes == nil {
		l.Sizes = l.Found
	}
	if err := l.sort(); err != nil {
		return nil, err
	}
	l.matches = make([][][]int32, len(jobs))
	for k := range jobs {
		l.matches[k] = make([][]int32, len(jobs))
		for i := range jobs {
			if i != k {
				l.matches[k][i] = lifespan.Match(l.Jobs[i].Timeline, l.Jobs[k].Timeline)
			}
		}
	}
	return l, nil
}

// sort puts the recordings in the order of their sizes, and refuses equal ones.
func (l *Laws) sort() error {
	order := make([]int, len(l.Jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l.Sizes[a], l.Sizes[b]) })
	sorted := *l
	sorted.Jobs, sorted.Sizes, sorted.Found = nil, nil, nil
	for n, i := range order {
		if n > 0 && l.Sizes[i] < sameSize*l.Sizes[order[n-1]] {
			return fmt.Errorf("%s and %s: expected recordings at different sizes, found the same size", l.Jobs[order[n-1]].Trace.Name, l.Jobs[i].Trace.Name)
		}
		sorted.Jobs, sorted.Sizes, sorted.Found = append(sorted.Jobs, l.Jobs[i]), append(sorted.Sizes, l.Sizes[i]), append(sorted.Found, l.Found[i])
	}
	*l = sorted
	return nil
}

const (
	// sameSize is the ratio of two sizes below which they are the same: 0.1 % more is what
	// rounding may show.
	sameSize = 1.001
	// growthStep is the width of a class of ratios of sizes, as a share. Sizes that grow in
	// proportion have the same ratio, but for roundings of small ones.
	growthStep = 1e-4
	// leastCommon is the least share of the allocations of the shorter recording that another
	// of the same job has as well, as for compile --merge. Of different jobs among the
	// examples and the shared recordings it is 0.38 at most.
	leastCommon = 0.5
	// mostPower is the largest power that a law has: tensors grow with the square of a length at
	// most, and 0.05 is for roundings.
	mostPower = 2.05
	// mostBytes bounds what a law gives for one allocation, in bytes: more than any device
	// has, so that a law far beyond the recordings does not overflow.
	mostBytes = 1 << 44
)

// common is the share of the allocations of the shorter of two recordings that a match has
// found in the other one.
func common(a, b *Job, match []int32) float64 {
	matched := 0
	for _, i := range match {
		if i >= 0 {
			matched++
		}
	}
	return float64(matched) / float64(max(1, min(len(a.Timeline.Buffers), len(b.Timeline.Buffers))))
}

// growth is the ratio by which the bytes of allocations grow from a to b: that of the most
// bytes, of all that do not stay the same. 1 if all stay the same.
func growth(a, b *Job, match []int32) float64 {
	type class struct{ bytes, largest, ratio float64 }
	classes := map[int]class{}
	best := class{ratio: 1}
	for k, i := range match {
		if i < 0 {
			continue
		}
		x, y := float64(a.Timeline.Buffers[i].Requested), float64(b.Timeline.Buffers[k].Requested)
		if x == 0 || y == 0 || x == y {
			continue
		}
		key := int(math.Round(math.Log(y/x) / growthStep))
		c := classes[key]
		c.bytes += max(x, y)
		if max(x, y) > c.largest { // the largest shows the ratio best
			c.largest, c.ratio = max(x, y), y/x
		}
		classes[key] = c
		if c.bytes > best.bytes {
			best = c
		}
	}
	return best.ratio
}

// point is a size that an allocation has in a recording.
type point struct{ x, bytes float64 }

// lawAt is what a law through points, which are by x, says at x. It is not known if there is
// one point, or if the two next to x are of no tensor.
func lawAt(points []point, x float64) (bytes float64, known bool) {
	if len(points) == 1 {
		return points[0].inProportion(x), false
	}
	k, _ := slices.BinarySearchFunc(points, x, func(p point, x float64) int { return cmp.Compare(p.x, x) })
	k = min(max(k, 1), len(points)-1)
	p, q := points[k-1], points[k]
	power := math.Log(q.bytes/p.bytes) / math.Log(q.x/p.x)
	switch {
	case p.bytes == q.bytes:
		return p.bytes, true
	case q.bytes*sameSize < p.bytes || p.bytes > 0 && power > mostPower:
		if x*x <= p.x*q.x { // nearer to p, by ratio
			return p.inProportion(x), false
		}
		return q.inProportion(x), false
	case p.bytes > 0 && q.bytes*p.x > p.bytes*q.x*sameSize:
		return p.bytes * math.Pow(x/p.x, power), true
	}
	return max(0, p.bytes+(q.bytes-p.bytes)*(x-p.x)/(q.x-p.x)), true
}

// inProportion is what an allocation takes at x if it grows in proportion.
func (p point) inProportion(x float64) float64 { return p.bytes * x / p.x }

// nearest is the recording whose size is the nearest to x, by ratio, of those in use.
func (l *Laws) nearest(x float64, use []int) int {
	return slices.MinFunc(use, func(a, b int) int {
		return cmp.Compare(math.Abs(math.Log(l.Sizes[a]/x)), math.Abs(math.Log(l.Sizes[b]/x)))
	})
}

// all are the indices of the recordings.
func (l *Laws) all() []int {
	use := make([]int, len(l.Jobs))
	for i := range use {
		use[i] = i
	}
	return use
}

// At is the job at a size: the requests of the nearest recording in their order, with the
// sizes that the laws give.
func (l *Laws) At(x float64) (*Job, error) {
	if l.within != nil {
		return l.within.at(x)
	}
	return l.at(x, l.nearest(x, l.all()), l.all())
}

// at is the job at a size in the order of recording base, by the laws of the recordings in
// use.
func (l *Laws) at(x float64, base int, use []int) (*Job, error) {
	return l.Jobs[base].resized(func(i int) trace.Bytes {
		bytes, _ := lawAt(l.points(base, i, use), x)
		return trace.Bytes(math.Round(min(bytes, mostBytes)))
	})
}

// points are the sizes of buffer i of recording base in the recordings in use, by x.
func (l *Laws) points(base, i int, use []int) []point {
	points := make([]point, 0, len(use))
	for _, k := range use {
		at := int32(i)
		if k != base {
			at = l.matches[base][k][i]
		}
		if at >= 0 {
			points = append(points, point{l.Sizes[k], float64(l.Jobs[k].Timeline.Buffers[at].Requested)})
		}
	}
	if len(points) == 0 { // base is not in use, and nothing else has the buffer
		points = append(points, point{l.Sizes[base], float64(l.Jobs[base].Timeline.Buffers[i].Requested)})
	}
	return points
}
