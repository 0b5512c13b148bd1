package packing

// skyline always places next the buffer that can lie lowest above all buffers placed so
// far during its life, the first in the given order among equals. Offsets never
// decrease, which is the canonical form that minimalloc searches (google/minimalloc,
// src/solver.cc); this is the first descent of that search.
func skyline(j *job, seq []int32) (layout, bool) {
	in := j.in
	l := layout{off: make([]int64, in.n)}
	surface := newRangeMax(in.sections)
	waiting := make(floorHeap, in.n)
	for rank := range waiting {
		waiting[rank] = floorItem{0, int32(rank)}
	}
	// A floor in the heap may be out of date, but the surface only rises: if the floor
	// of the first buffer is current, no other buffer can lie lower.
	for step := 0; len(waiting) > 0; step++ {
		if j.halted(step, l.makespan) {
			return layout{}, false
		}
		b := seq[waiting[0].rank]
		x := surface.max(in.lo[b], in.hi[b])
		if x > waiting[0].floor {
			waiting[0].floor = x
			waiting.sink()
			continue
		}
		waiting = waiting.pop()
		l.off[b] = x
		l.makespan = max(l.makespan, x+in.size[b])
		surface.raise(in.lo[b], in.hi[b], x+in.size[b])
	}
	return l, l.makespan <= j.limit.Load()
}

// floorItem is a floor, the lowest offset of a buffer above the surface when it was
// last computed, with the buffer's rank in the given order.
type floorItem struct {
	floor int64
	rank  int32
}

func (a floorItem) before(b floorItem) bool {
	return a.floor < b.floor || a.floor == b.floor && a.rank < b.rank
}

// floorHeap is a binary heap, least item first. It is written out, since the skyline
// spends most of its time here.
type floorHeap []floorItem

// sink restores the heap after its first item has grown.
func (h floorHeap) sink() {
	item, i := h[0], 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(item) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = item
}

// pop is h without its first item.
func (h floorHeap) pop() floorHeap {
	last := len(h) - 1
	h[0] = h[last]
	if h = h[:last]; last > 0 {
		h.sink()
	}
	return h
}
