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
//   - a section's floor plus what is still to be placed in it must fit;
//   - a floor is at least the lowest offset that anything unplaced in its
//     section can still take, and at least the offset placed last;
//   - a buffer is not placed where an unplaced one would fit entirely below;
//   - a buffer that nothing unplaced overlaps in time needs one try only;
//   - sections between which nothing unplaced remains are solved apart.
//
// It is complete: without a layout it has proven that there is none.

// verdict is what the exact search knows about a ceiling.
type verdict int

const (
	undecided verdict = iota
	fits
	infeasible
)

// exactOrders are the preorderings that the search takes turns with, each
// deciding what is tried first among equal offsets. Which one is lucky differs
// from instance to instance by factors of a thousand, in sections or in time.
var exactOrders = []order{byLifeArea, byCrestArea, byCrestLife, bySpanArea, byTimeArea, byCrestTime}

const notPlaced = int64(-1)

// exact searches one instance. All sizes and offsets are in units.
type exact struct {
	in      *instance
	ceiling int64
	overlap [][]int32 // of each buffer: those that overlap it in time
	members [][]int32 // of each section: its buffers

	off    []int64 // current offsets, or notPlaced
	best   []int64 // offsets of the parts solved so far
	least  []int64 // of each unplaced buffer: its lowest possible offset
	floor  []int64 // of each section: nothing unplaced can lie lower
	rest   []int64 // of each section: the sizes still to be placed
	joints []int32 // unplaced buffers that cross from section s to s+1
	rank   []int32 // of each buffer in the order of its part

	nodes, limit int64 // of the turn under way
	spent        int64 // nodes of all turns of the last decide
	looks        int64 // at a buffer or a section, in the last decide
	maxLooks     int64 // ends decide like its budget of nodes
	stop         func() bool
	leastTrail   []undo
	floorTrail   []undo
	candidates   []int32 // a stack of the candidates of all open nodes
	byOrder      order
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
		floor: make([]int64, in.sections), rest: make([]int64, in.sections), joints: make([]int32, in.sections),
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
	return e
}

// decide takes turns with exactOrders, giving each twice as many nodes in every
// round, until the question is answered, all of budget or of e.maxLooks is used or
// stop says so.
// With fits, e.best holds the offsets.
func (e *exact) decide(ceiling, budget int64, stop func() bool) verdict {
	e.ceiling, e.stop, e.spent, e.looks = ceiling, stop, 0, 0
	if e.in.bound > ceiling {
		return infeasible
	}
	for share := int64(2 * e.in.n); ; share *= 2 {
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

// layout is what decide found.
func (e *exact) layout() layout {
	l := layout{off: slices.Clone(e.best), heuristic: "exact(" + e.byOrder.name + ")"}
	for b, o := range l.off {
		l.makespan = max(l.makespan, o+e.in.size[b])
	}
	return l
}

func (e *exact) reset(o order, limit int64) {
	e.byOrder, e.nodes, e.limit = o, 0, limit
	e.leastTrail, e.floorTrail, e.candidates = e.leastTrail[:0], e.floorTrail[:0], e.candidates[:0]
	clear(e.least)
	clear(e.floor)
	clear(e.rest)
	clear(e.joints)
	for b := range int32(e.in.n) {
		e.off[b] = notPlaced
		for s := e.in.lo[b]; s < e.in.hi[b]; s++ {
			e.rest[s] += e.in.size[b]
			if s+1 < e.in.hi[b] {
				e.joints[s]++
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
	for s, joined := range e.joints {
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
		ordered[i] = ranked{e.byOrder.key(e.in, b), b, e.rank[b]}
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
// after. It leaves the state as it found it, and a layout in best.
func (e *exact) search(part []int32, first, last int32, from int64, after int32) verdict {
	if e.nodes >= e.limit || e.looks >= e.maxLooks || e.nodes%stopNodes == stopNodes-1 && e.stop() {
		return undecided
	}
	e.nodes++
	base := len(e.candidates)
	if !e.choose(part, from, after) {
		for _, b := range part {
			e.best[b] = e.off[b]
		}
		return fits
	}
	v := infeasible
	for _, b := range e.candidates[base:] {
		var open bool
		if v, open = e.try(part, first, last, b, from); v != infeasible || !open {
			break // with nothing over b, its place decides nothing else
		}
	}
	e.candidates = e.candidates[:base]
	return v
}

// choose pushes the buffers worth trying next, lowest offset first, and reports
// whether anything is left to place. A buffer that could only lie where another
// one fits entirely below is not worth it: that one could sink into the gap.
func (e *exact) choose(part []int32, from int64, after int32) bool {
	e.looks += 2 * int64(len(part))
	roof := int64(math.MaxInt64)
	for _, b := range part {
		if e.off[b] == notPlaced {
			roof = min(roof, e.least[b]+e.in.size[b])
		}
	}
	base := len(e.candidates)
	for _, b := range part {
		if e.off[b] == notPlaced && e.least[b] < roof && (e.least[b] > from || e.least[b] == from && e.rank[b] >= after) {
			e.candidates = append(e.candidates, b)
		}
	}
	slices.SortFunc(e.candidates[base:], func(x, y int32) int {
		return cmp.Or(cmp.Compare(e.least[x], e.least[y]), cmp.Compare(e.rank[x], e.rank[y]))
	})
	return roof != math.MaxInt64
}
