package packing

// try is one branch of the exact search: it places b at its lowest offset, propagates
// the bounds, searches the rest, and takes b out again. open reports whether an
// unplaced buffer overlaps b in time.
func (e *exact) try(part []int32, first, last, b int32) (v verdict, open bool) {
	mark, least, size := len(e.trail), e.least[b], e.in.size[b]
	e.off[b], e.least[b] = least, leastOfPlaced
	for s := e.in.lo[b]; s < e.in.hi[b]; s++ {
		e.rest[s] -= size
		open = open || e.rest[s] > 0
	}
	v = infeasible
	if e.lift(b, least+size) && e.fit(mark) {
		if v = e.searchOn(part, first, last, b); v == fits {
			e.best[b] = least
		}
	}
	for i := len(e.trail) - 1; i >= mark; i-- {
		e.least[e.trail[i].index] = e.trail[i].value
	}
	e.trail = e.trail[:mark]
	for s := e.in.lo[b]; s < e.in.hi[b]; s++ {
		e.rest[s] += size
	}
	e.off[b], e.least[b] = notPlaced, least
	return v, open
}

// lift raises the lowest offset of every unplaced buffer that overlaps b to b's top,
// and reports whether each still fits under the ceiling.
func (e *exact) lift(b int32, top int64) bool {
	e.looks += int64(len(e.overlap[b]))
	for _, o := range e.overlap[b] {
		if l := e.least[o]; l < top {
			e.trail = append(e.trail, undo{o, l})
			l = e.pastObstacles(o, top)
			e.least[o] = l
			if l+e.in.size[o] > e.ceiling {
				return false
			}
		}
	}
	return true
}

// fit reports whether the unplaced buffers still fit in each section of the buffers on
// the trail from mark on.
func (e *exact) fit(mark int) bool {
	if len(e.trail) == mark {
		return true
	}
	lo, hi := int32(e.in.sections), int32(0)
	for _, u := range e.trail[mark:] {
		lo, hi = min(lo, e.in.lo[u.index]), max(hi, e.in.hi[u.index])
	}
	e.looks += int64(hi - lo)
	for s := lo; s < hi; s++ {
		if e.rest[s] > 0 && !e.holds(s, e.witness[s]) && !e.anyHolds(s) {
			return false
		}
	}
	return true
}

// holds reports whether everything unplaced in section s fits above the lowest offset
// of b. While one unplaced buffer of s has that, the bound of s does not rule the node
// out.
func (e *exact) holds(s, b int32) bool {
	l := e.least[b]
	return l <= e.ceiling-e.rest[s] && (e.unusable == nil || l+e.unusableAbove(s, l)+e.rest[s] <= e.ceiling)
}

// anyHolds looks for a new witness of section s: a buffer with holds.
func (e *exact) anyHolds(s int32) bool {
	for i, b := range e.members[s] {
		if e.holds(s, b) {
			e.looks += int64(i)
			e.witness[s] = b
			return true
		}
	}
	e.looks += int64(len(e.members[s]))
	return false
}

// roomAbove reports whether the unplaced buffers of every section fit above offset.
func (e *exact) roomAbove(first, last int32, offset int64) bool {
	e.looks += int64(last - first)
	room := e.ceiling - offset
	for s := first; s < last; s++ {
		if rest := e.rest[s]; rest > room || e.unusable != nil && rest > 0 && rest > room-e.unusableAbove(s, offset) {
			return false
		}
	}
	return true
}

// searchOn places what is left, from b's offset up. If b was the last buffer to cross a
// border of two sections, the stretches on its two sides are solved one by one.
func (e *exact) searchOn(part []int32, first, last, b int32) verdict {
	var borders []int32
	for s := e.in.lo[b]; s+1 < e.in.hi[b]; s++ {
		if e.crossing[s]--; e.crossing[s] == 0 {
			borders = append(borders, s+1)
		}
	}
	var v verdict
	if len(borders) == 0 {
		v = e.search(part, first, last, e.off[b], e.rank[b])
	} else {
		v = e.solveBetween(part, first, append(borders, last))
	}
	for s := e.in.lo[b]; s+1 < e.in.hi[b]; s++ {
		e.crossing[s]++
	}
	return v
}
