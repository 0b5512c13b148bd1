package packing

import "slices"

// freeList is a free list sorted by offset: the holes below top, in chunks that know
// the length of their longest hole, so that first fit can skip whole chunks.
type freeList struct {
	chunks []holes
	top    int64 // everything at or above it is free
}

// holes is a chunk of neighbouring holes.
type holes struct {
	spans   []span
	largest int64 // length of the longest hole
}

// chunkLen is the number of holes at which a chunk is split in two. Smaller chunks make
// a change cheaper, and the list of chunks that first fit scans longer.
const chunkLen = 128

// measure sets largest.
func (c *holes) measure() {
	c.largest = 0
	for _, h := range c.spans {
		c.largest = max(c.largest, h.hi-h.lo)
	}
}

// first is first fit: it takes size units from the lowest hole that has them, or at the
// top if none has.
func (f *freeList) first(size int64) int64 {
	for k := range f.chunks {
		if f.chunks[k].largest < size {
			continue
		}
		for i, h := range f.chunks[k].spans {
			if h.hi-h.lo >= size {
				return f.carve(k, i, size)
			}
		}
	}
	return f.grow(size)
}

// best is best fit: it takes size units from the smallest hole that has them, the
// lowest among equals, or at the top if none has.
func (f *freeList) best(size int64) int64 {
	atChunk, at, least := -1, 0, int64(0)
	for k := range f.chunks {
		if f.chunks[k].largest < size {
			continue
		}
		for i, h := range f.chunks[k].spans {
			if n := h.hi - h.lo; n >= size && (atChunk < 0 || n < least) {
				atChunk, at, least = k, i, n
			}
		}
	}
	if atChunk < 0 {
		return f.grow(size)
	}
	return f.carve(atChunk, at, size)
}

func (f *freeList) grow(size int64) int64 {
	f.top += size
	return f.top - size
}

// carve takes size units from the bottom of hole i of chunk k.
func (f *freeList) carve(k, i int, size int64) int64 {
	c := &f.chunks[k]
	h := c.spans[i]
	if h.hi-h.lo == size {
		f.remove(k, i)
		return h.lo
	}
	c.spans[i].lo += size
	if h.hi-h.lo == c.largest {
		c.measure()
	}
	return h.lo
}

func (f *freeList) remove(k, i int) {
	c := &f.chunks[k]
	n := c.spans[i].hi - c.spans[i].lo
	c.spans = slices.Delete(c.spans, i, i+1)
	if len(c.spans) == 0 {
		f.chunks = slices.Delete(f.chunks, k, k+1)
	} else if n == c.largest {
		c.measure()
	}
}

// release gives back s, which must be taken.
func (f *freeList) release(s span) {
	if len(f.chunks) == 0 {
		f.chunks = append(f.chunks, holes{spans: []span{s}, largest: s.hi - s.lo})
		return
	}
	k, i := f.find(s.lo)
	c := &f.chunks[k]
	if i < len(c.spans) && c.spans[i].lo == s.hi {
		c.spans[i].lo = s.lo
	} else {
		c.spans = slices.Insert(c.spans, i, s)
	}
	c.largest = max(c.largest, c.spans[i].hi-c.spans[i].lo)
	f.joinBelow(k, i)
	f.split(k)
}

// find is the position of a new hole at offset x: before hole i of chunk k. Only in the
// last chunk i may be the chunk's length.
func (f *freeList) find(x int64) (k, i int) {
	k, _ = slices.BinarySearchFunc(f.chunks, x, func(c holes, x int64) int {
		if c.spans[len(c.spans)-1].lo < x {
			return -1
		}
		return 1
	})
	k = min(k, len(f.chunks)-1)
	i, _ = slices.BinarySearchFunc(f.chunks[k].spans, x, func(h span, x int64) int {
		if h.lo < x {
			return -1
		}
		return 1
	})
	return k, i
}

// joinBelow merges hole i of chunk k into the one before it if they touch.
func (f *freeList) joinBelow(k, i int) {
	s := f.chunks[k].spans[i]
	below, j := k, i-1
	if j < 0 {
		if below--; below < 0 {
			return
		}
		j = len(f.chunks[below].spans) - 1
	}
	prev := &f.chunks[below].spans[j]
	if prev.hi != s.lo {
		return
	}
	prev.hi = s.hi
	f.chunks[below].largest = max(f.chunks[below].largest, s.hi-prev.lo)
	f.remove(k, i)
}

// split splits chunk k in two if it has chunkLen holes or more.
func (f *freeList) split(k int) {
	if k >= len(f.chunks) || len(f.chunks[k].spans) < chunkLen {
		return
	}
	upper := holes{spans: slices.Clone(f.chunks[k].spans[chunkLen/2:])}
	upper.measure()
	f.chunks[k].spans = f.chunks[k].spans[:chunkLen/2]
	f.chunks[k].measure()
	f.chunks = slices.Insert(f.chunks, k+1, upper)
}
