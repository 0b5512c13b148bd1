package packing

import "math"

// try places b at its lowest offset, searches on, and takes it back. open says
// whether anything unplaced overlaps b in time.
func (e *exact) try(part []int32, first, last, b int32, from int64) (v verdict, open bool) {
	leasts, floors := len(e.leastTrail), len(e.floorTrail)
	e.off[b] = e.least[b]
	open, ok := e.lift(b)
	if ok = e.settle(b) && ok; ok && e.off[b] > from {
		ok = e.roomAbove(first, last, e.off[b])
	}
	v = infeasible
	if ok {
		v = e.searchOn(part, first, last, b)
	}
	e.rewind(leasts, floors)
	for s := e.in.lo[b]; s < e.in.hi[b]; s++ {
		e.rest[s] += e.in.size[b]
	}
	e.off[b] = notPlaced
	return v, open
}

// settle moves the floors of b's sections to its top, and reports whether what
// is left there still fits.
func (e *exact) settle(b int32) bool {
	top, ok := e.off[b]+e.in.size[b], true
	for s := e.in.lo[b]; s < e.in.hi[b]; s++ {
		e.rest[s] -= e.in.size[b]
		ok = e.setFloor(s, top) && ok
	}
	if !ok {
		return false
	}
	// Every section that a lifted buffer lives in, and maybe some between.
	lo, hi := e.in.lo[b], e.in.hi[b]
	for _, o := range e.overlap[b] {
		if e.off[o] == notPlaced && e.least[o] == top {
			lo, hi = min(lo, e.in.lo[o]), max(hi, e.in.hi[o])
		}
	}
	e.looks += int64(hi - lo)
	for s := lo; s < hi; s++ {
		if l := e.lowest(s); l > e.floor[s] && !e.setFloor(s, l) {
			return false
		}
	}
	return true
}

// lift raises the lowest offset of everything unplaced over b, and reports
// whether there is anything, and whether each still fits.
func (e *exact) lift(b int32) (open, ok bool) {
	top := e.off[b] + e.in.size[b]
	ok = true
	e.looks += int64(len(e.overlap[b]))
	for _, o := range e.overlap[b] {
		if e.off[o] != notPlaced {
			continue
		}
		open = true
		if e.least[o] < top {
			e.leastTrail = append(e.leastTrail, undo{o, e.least[o]})
			e.least[o] = top
			ok = ok && top+e.in.size[o] <= e.ceiling
		}
	}
	return open, ok
}

// lowest is the lowest offset that anything unplaced in section s can take. The
// buffer that proves the floor right moves to the front of the list, where the
// next look finds it first. A section with nothing left has no floor to raise.
func (e *exact) lowest(s int32) int64 {
	low, list := int64(math.MaxInt64), e.members[s]
	for i, b := range list {
		e.looks++
		if e.off[b] != notPlaced || e.least[b] >= low {
			continue
		}
		low = e.least[b]
		if low <= e.floor[s] {
			list[0], list[i] = list[i], list[0]
			return low
		}
	}
	if low == math.MaxInt64 {
		return e.floor[s]
	}
	return low
}

func (e *exact) setFloor(s int32, floor int64) bool {
	e.floorTrail = append(e.floorTrail, undo{s, e.floor[s]})
	e.floor[s] = floor
	return floor+e.rest[s] <= e.ceiling
}

// roomAbove reports whether every section still holds what is to be placed in
// it when nothing more goes below offset.
func (e *exact) roomAbove(first, last int32, offset int64) bool {
	e.looks += int64(last - first)
	for s := first; s < last; s++ {
		if rest := e.rest[s]; rest > 0 && max(offset, e.floor[s])+rest > e.ceiling {
			return false
		}
	}
	return true
}

// searchOn continues above b, apart where b was the last to join two stretches
// of sections.
func (e *exact) searchOn(part []int32, first, last, b int32) verdict {
	var seams []int32
	for s := e.in.lo[b]; s+1 < e.in.hi[b]; s++ {
		if e.joints[s]--; e.joints[s] == 0 {
			seams = append(seams, s+1)
		}
	}
	var v verdict
	if len(seams) == 0 {
		v = e.search(part, first, last, e.off[b], e.rank[b])
	} else {
		for _, o := range part {
			if e.off[o] != notPlaced {
				e.best[o] = e.off[o]
			}
		}
		v = e.solveBetween(part, first, append(seams, last))
	}
	for s := e.in.lo[b]; s+1 < e.in.hi[b]; s++ {
		e.joints[s]++
	}
	return v
}

// rewind takes back every change since the trails had these lengths.
func (e *exact) rewind(leasts, floors int) {
	for i := len(e.leastTrail) - 1; i >= leasts; i-- {
		e.least[e.leastTrail[i].index] = e.leastTrail[i].value
	}
	for i := len(e.floorTrail) - 1; i >= floors; i-- {
		e.floor[e.floorTrail[i].index] = e.floorTrail[i].value
	}
	e.leastTrail, e.floorTrail = e.leastTrail[:leasts], e.floorTrail[:floors]
}
