package packing

// try places b at its lowest offset, searches on, and takes it back. open says
// whether anything unplaced overlaps b in time.
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

// lift raises the lowest offset of everything unplaced over b to b's top, and
// reports whether each still fits.
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

// fit reports whether what is left still fits in the sections of all buffers on
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

// holds reports whether what is left in section s fits above the lowest offset
// of b. If it does so for one buffer that is left there, nothing is lost yet.
func (e *exact) holds(s, b int32) bool {
	l := e.least[b]
	return l <= e.ceiling-e.rest[s] && (e.unusable == nil || l+e.unusableAbove(s, l)+e.rest[s] <= e.ceiling)
}

// anyHolds looks for a new witness of section s.
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

// roomAbove reports whether every section still holds what is to be placed in
// it when nothing more goes below offset.
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

// searchOn continues above b, apart where b was the last to join two stretches
// of sections.
func (e *exact) searchOn(part []int32, first, last, b int32) verdict {
	var seams []int32
	for s := e.in.lo[b]; s+1 < e.in.hi[b]; s++ {
		if e.crossing[s]--; e.crossing[s] == 0 {
			seams = append(seams, s+1)
		}
	}
	var v verdict
	if len(seams) == 0 {
		v = e.search(part, first, last, e.off[b], e.rank[b])
	} else {
		v = e.solveBetween(part, first, append(seams, last))
	}
	for s := e.in.lo[b]; s+1 < e.in.hi[b]; s++ {
		e.crossing[s]++
	}
	return v
}
