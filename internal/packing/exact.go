package packing

import (
	"cmp"
	"math"
	"slices"
)

// The exact search decides whether an instance fits under a ceiling: a depth
// first search over canonical layouts, in which every buffer rests on the
// bottom or on another one and buffers are placed in order of their offsets.
// Its inferences are those of minimalloc (Moffitt, "MiniMalloc: A Lightweight
// Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023),
// kept up to date incrementally:
//
//   - in each section, what is still to be placed has to fit above the lowest
//     offset that any of it can take, and above the offset placed last;
//   - a buffer is not placed where an unplaced one would fit entirely below;
//   - a buffer that nothing unplaced overlaps in time needs one try only;
//   - sections between which nothing unplaced remains are solved apart.
//
// Places that are taken already (exact_fixed.go) are jumped over. The search is
// complete: without a layout it has proven that there is none.

// verdict is what the exact search knows about a ceiling.
type verdict int

const (
	undecided verdict = iota
	fits
	infeasible
)

const (
	notPlaced     = int64(-1)     // as an offset
	leastOfPlaced = math.MaxInt64 // as the lowest offset of a buffer that is placed
)

// exact searches one instance. All sizes and offsets are in units.
type exact struct {
	in      *instance
	ceiling int64
	overlap [][]int32 // of each buffer: those that overlap it in time
	members [][]int32 // of each section: its buffers

	off      []int64 // current offsets, or notPlaced
	best     []int64 // offsets of the parts solved so far
	least    []int64 // of each buffer: its lowest possible offset, or settled
	rest     []int64 // of each section: the sizes still to be placed
	witness  []int32 // of each section: the buffer that last proved that these fit
	crossing []int32 // unplaced buffers that cross from section s to s+1
	rank     []int32 // of each buffer in the order of its part

	blocked  []spans    // of each buffer: what is taken during its life; nil without obstacles
	unusable []unusable // of each section: what no buffer in it can use; nil without obstacles

	nodes, limit int64 // of the order under way
	spent        int64 // nodes of all turns of the last decide
	looks        int64 // at a buffer or a section, in the last decide
	maxLooks     int64 // ends decide like its budget of nodes
	stop         func() bool
	trail        []undo  // the trail of least
	candidates   []int32 // a stack of the candidates of all open nodes
	byOrder      exactOrder
	round        uint64 // of turns in the last decide
}

// undo is a value to put back.
type undo struct {
	index int32
	value int64
}

// stopNodes is how many nodes pass between two looks at the clock.
const stopNodes = 1 << 8

// newExact prepares the search of one instance. It keeps crests of its own.
func newExact(of *instance) *exact {
	own := *of
	own.crest = slices.Clone(of.crest)
	in := &own
	e := &exact{
		in: in, overlap: make([][]int32, in.n), members: make([][]int32, in.sections),
		off: make([]int64, in.n), best: make([]int64, in.n), least: make([]int64, in.n),
		rest: make([]int64, in.sections), witness: make([]int32, in.sections), crossing: make([]int32, in.sections),
		rank: make([]int32, in.n), maxLooks: math.MaxInt64,
	}
	for b := range int32(in.n) {
		for s := in.lo[b]; s < in.hi[b]; s++ {
			e.members[s] = append(e.members[s], b)
		}
		for o := range int32(in.n) {
			if o != b && in.lo[o] < in.hi[b] && in.lo[b] < in.hi[o] {
				e.overlap[b] = append(e.overlap[b], o)
			}
		}
	}
	for s, members := range e.members {
		if len(members) > 0 {
			e.witness[s] = members[0]
		}
	}
	return e
}

// decide takes turns with exactOrders, giving each twice as many nodes in every
// round, until the question is answered, all of budget or of e.maxLooks is used or
// stop says so.
// With fits, e.best holds the offsets.
func (e *exact) decide(ceiling, budget int64, stop func() bool) verdict {
	e.ceiling, e.stop, e.spent, e.looks = ceiling, stop, 0, 0
	if e.in.bound > ceiling || !e.roomAtStart() {
		return infeasible
	}
	e.round = 0
	for share := int64(2 * e.in.n); ; share *= 2 {
		e.round++
		for _, t := range exactOrders {
			e.reset(t, min(share, budget-e.spent))
			v := e.solveParts()
			e.spent += e.nodes
			if v != undecided || e.spent >= budget || e.looks >= e.maxLooks || stop() {
				return v
			}
		}
	}
}

// layout is what decide found.
func (e *exact) layout() layout {
	l := layout{off: slices.Clone(e.best), heuristic: "exact(" + e.byOrder.String() + ")"}
	for b, o := range l.off {
		l.makespan = max(l.makespan, o+e.in.size[b])
	}
	return l
}

func (e *exact) reset(t exactOrder, limit int64) {
	e.byOrder, e.nodes, e.limit = t, 0, limit
	e.trail, e.candidates = e.trail[:0], e.candidates[:0]
	for b := range e.least {
		e.least[b] = e.pastObstacles(int32(b), 0)
	}
	clear(e.rest)
	clear(e.crossing)
	for b := range int32(e.in.n) {
		e.off[b] = notPlaced
		for s := e.in.lo[b]; s < e.in.hi[b]; s++ {
			e.rest[s] += e.in.size[b]
			if s+1 < e.in.hi[b] {
				e.crossing[s]++
			}
		}
	}
}

// solveParts solves each run of sections that buffers join, one after the other.
func (e *exact) solveParts() verdict {
	all := make([]int32, e.in.n)
	for b := range all {
		all[b] = int32(b)
	}
	var seams []int32
	for s, joined := range e.crossing {
		if joined == 0 {
			seams = append(seams, int32(s)+1)
		}
	}
	return e.solveBetween(all, 0, seams)
}

// solveBetween solves the unplaced buffers of part apart, one stretch of
// sections after the other; seams are the ends of the stretches from section
// first on.
func (e *exact) solveBetween(part []int32, first int32, seams []int32) verdict {
	for _, last := range seams {
		var inside []int32
		for _, b := range part {
			if e.off[b] == notPlaced && e.in.lo[b] >= first && e.in.hi[b] <= last {
				inside = append(inside, b)
			}
		}
		if len(inside) > 0 {
			if v := e.solvePart(inside, first, last); v != fits {
				return v
			}
		}
		first = last
	}
	return fits
}

// solvePart orders the buffers of one part and searches it from the bottom. The
// part's own crests count: what is placed already no longer competes.
func (e *exact) solvePart(part []int32, first, last int32) verdict {
	type ranked struct {
		key  sortKey
		b    int32
		rank int32 // in the enclosing part, to be put back
	}
	ordered := make([]ranked, len(part))
	for i, b := range part {
		e.in.crest[b] = slices.Max(e.rest[e.in.lo[b]:e.in.hi[b]])
		ordered[i] = ranked{e.byOrder.keyIn(e.in, b, e.round), b, e.rank[b]}
	}
	slices.SortFunc(ordered, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(y.key[0], x.key[0]), cmp.Compare(y.key[1], x.key[1]), cmp.Compare(y.key[2], x.key[2]),
			cmp.Compare(x.b, y.b))
	})
	for i, r := range ordered {
		part[i] = r.b
		e.rank[r.b] = int32(i)
	}
	v := e.search(part, first, last, 0, -1)
	for _, r := range ordered {
		e.rank[r.b] = r.rank
	}
	return v
}

// search places the unplaced buffers of part, which live in sections [first,
// last), at offset from or above it; at from itself only those ranked at least
// after. It leaves the state as it found it but for the order of part, and a
// layout in best.
func (e *exact) search(part []int32, first, last int32, from int64, after int32) verdict {
	if e.nodes >= e.limit || e.looks >= e.maxLooks || e.nodes%stopNodes == stopNodes-1 && e.stop() {
		return undecided
	}
	e.nodes++
	base := len(e.candidates)
	if part = e.choose(part, from, after); len(part) == 0 {
		return fits
	}
	v, highest := infeasible, notPlaced
	for _, b := range e.candidates[base:] {
		if e.least[b] > highest {
			if highest = e.least[b]; !e.roomAbove(first, last, highest) {
				break // nor is there above a higher one
			}
		}
		var open bool
		if v, open = e.try(part, first, last, b); v != infeasible || !open {
			break // with nothing over b, its place decides nothing else
		}
	}
	e.candidates = e.candidates[:base]
	return v
}

// choose pushes the buffers worth trying next, lowest offset first, and returns
// what is left to place, which it moves to the front of part. A buffer that
// could only lie where another one fits entirely below is not worth it: that one
// could sink into the gap.
func (e *exact) choose(part []int32, from int64, after int32) []int32 {
	roof, left := int64(math.MaxInt64), len(part)
	for i := 0; i < left; {
		b := part[i]
		if l := e.least[b]; l != leastOfPlaced {
			roof = min(roof, l+e.in.size[b])
			i++
			continue
		}
		left--
		part[i], part[left] = part[left], b
	}
	part = part[:left]
	e.looks += 2 * int64(left)
	base := len(e.candidates)
	for _, b := range part {
		l := e.least[b]
		if l >= roof || l < from || l == from && e.rank[b] < after {
			continue
		}
		e.candidates = append(e.candidates, b)
		for i := len(e.candidates) - 1; i > base; i-- {
			c := e.candidates[i-1]
			if e.least[c] < l || e.least[c] == l && e.rank[c] < e.rank[b] {
				break
			}
			e.candidates[i-1], e.candidates[i] = b, c
		}
	}
	return part
}
