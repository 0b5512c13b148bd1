package packing

import (
	"cmp"
	"math"
	"slices"
)

// The exact search is a depth-first branch and bound that decides whether an instance
// fits under a ceiling. It visits canonical layouts only, in which every buffer rests
// on the bottom or on another buffer, and places the buffers in the order of their
// offsets. Its inferences are those of minimalloc (Moffitt, "MiniMalloc: A Lightweight
// Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023), with
// bounds that are kept up to date incrementally:
//
//   - in each section, the unplaced buffers have to fit above the lowest offset
//     that any of them can take, and above the offset placed last;
//   - a buffer is not placed at an offset if an unplaced one fits entirely below
//     that offset;
//   - a buffer that overlaps no unplaced buffer in time is tried once only;
//   - parts of the time that no unplaced buffer joins are solved one by one.
//
// Offsets that are taken already (exact_fixed.go) are skipped. The search is
// complete: if it ends without a layout, it has proven that there is none
// (docs/packing.md, "The integer program").

// verdict is the answer of the exact search to a ceiling.
type verdict int

const (
	undecided verdict = iota
	fits
	infeasible
)

const (
	notPlaced     = int64(-1)     // the offset of a buffer that is not placed
	leastOfPlaced = math.MaxInt64 // exact.least of a buffer that is placed
)

// exact searches one instance. All sizes and offsets are in units.
type exact struct {
	in      *instance
	ceiling int64
	overlap [][]int32 // of each buffer: the buffers that overlap it in time
	members [][]int32 // of each section: its buffers

	off      []int64 // of each buffer: its offset now, or notPlaced
	best     []int64 // of each buffer: its offset in the parts solved so far
	least    []int64 // of each buffer: its lowest possible offset, or leastOfPlaced
	rest     []int64 // of each section: the sum of the sizes still to be placed
	witness  []int32 // of each section: the buffer that last proved that these fit
	crossing []int32 // of each section s: the unplaced buffers live in both s and s+1
	rank     []int32 // of each buffer: its place in the order of its part

	blocked  []spans    // of each buffer: offsets taken during its life; nil without obstacles
	unusable []unusable // of each section: offsets that no buffer in it can use; nil without obstacles

	nodes, limit int64 // nodes searched by the restart under way, and their limit
	spent        int64 // nodes searched by all restarts of the last decide
	looks        int64 // buffers and sections examined by the last decide
	maxLooks     int64 // decide ends when looks reaches it
	stop         func() bool
	trail        []undo  // values of least to put back on backtracking
	candidates   []int32 // a stack of the candidates of all open nodes
	byOrder      exactOrder
	round        uint64 // of restarts, in the last decide; from 1
}

// undo is a value of exact.least to put back.
type undo struct {
	index int32
	value int64
}

// stopNodes is the number of nodes between two calls of exact.stop, which looks at the
// clock. With more the search would stop later, with fewer it would be slower.
const stopNodes = 1 << 8

// newExact prepares the search of one instance. It copies the crests, since solvePart
// changes them.
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

// decide restarts the search with each of exactOrders in turn. In every round each
// order gets twice as many nodes as in the round before; in the first, two nodes a
// buffer, since a descent without backtracking takes one. decide ends when the question
// is answered, when budget nodes or e.maxLooks are used up, or when stop returns true.
// If the verdict is fits, e.best holds the offsets.
func (e *exact) decide(ceiling, budget int64, stop func() bool) verdict {
	e.ceiling, e.stop, e.spent, e.looks = ceiling, stop, 0, 0
	if e.in.bound > ceiling || !e.roomAtStart() {
		return infeasible
	}
	e.round = 0
	for share := int64(2 * e.in.n); ; share *= 2 {
		e.round++
		for _, o := range exactOrders {
			e.reset(o, min(share, budget-e.spent))
			v := e.solveParts()
			e.spent += e.nodes
			if v != undecided || e.spent >= budget || e.looks >= e.maxLooks || stop() {
				return v
			}
		}
	}
}

// layout is the layout that decide found.
func (e *exact) layout() layout {
	l := layout{off: slices.Clone(e.best), heuristic: "exact(" + e.byOrder.String() + ")"}
	for b, o := range l.off {
		l.makespan = max(l.makespan, o+e.in.size[b])
	}
	return l
}

// reset takes everything out for a restart with order o.
func (e *exact) reset(o exactOrder, limit int64) {
	e.byOrder, e.nodes, e.limit = o, 0, limit
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

// solveParts splits the instance at the borders of sections that no buffer crosses, and
// solves the parts one by one.
func (e *exact) solveParts() verdict {
	all := make([]int32, e.in.n)
	for b := range all {
		all[b] = int32(b)
	}
	var borders []int32
	for s, crossing := range e.crossing {
		if crossing == 0 {
			borders = append(borders, int32(s)+1)
		}
	}
	return e.solveBetween(all, 0, borders)
}

// solveBetween solves the unplaced buffers of part, one stretch of sections after the
// other. The first stretch begins at section first; borders are the ends of the
// stretches.
func (e *exact) solveBetween(part []int32, first int32, borders []int32) verdict {
	for _, last := range borders {
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

// solvePart sorts the buffers of one part and searches it from the bottom. The crests
// are those of the unplaced buffers alone.
func (e *exact) solvePart(part []int32, first, last int32) verdict {
	type ranked struct {
		key  sortKey
		b    int32
		rank int32 // in the enclosing part, put back at the end
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

// search places the unplaced buffers of part, which live in sections [first, last), at
// offset from or above. At from itself it places only buffers ranked at or behind
// after, so that each layout has one branch. If the verdict is fits, best holds the
// offsets. All other state is as before, except the order of part.
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
				break // above a higher one there is less room still
			}
		}
		var open bool
		if v, open = e.try(part, first, last, b); v != infeasible || !open {
			break // if b overlaps nothing unplaced, its offset decides nothing else
		}
	}
	e.candidates = e.candidates[:base]
	return v
}

// choose pushes the buffers to try next onto candidates, lowest offset first. It
// returns the buffers that are left to place, which it moves to the front of part. A
// buffer is left out (dominated) if another unplaced one fits entirely below its lowest
// offset: that one could sink into the hole.
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
