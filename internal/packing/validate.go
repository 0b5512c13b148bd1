package packing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Validate checks that pl is an answer to p: one offset per buffer, none below 0, all
// multiples of the alignment, no two buffers that are live at once on the same bytes,
// and the makespan as stated. It shares no code or state with the heuristics.
// O(n log n).
func Validate(p *Problem, pl Placement) error {
	if len(pl.Offsets) != len(p.Buffers) {
		return fmt.Errorf("expected %d offsets, one per buffer, found %d", len(p.Buffers), len(pl.Offsets))
	}
	unit := max(p.Alignment, 1)
	rects := make([]rect, 0, len(p.Buffers)+len(p.Gaps))
	gaps := p.Gaps
	var makespan Bytes
	for i, b := range p.Buffers {
		x := pl.Offsets[i]
		pad := (unit - b.Size%unit) % unit
		switch {
		case x < 0:
			return fmt.Errorf("buffer %d: expected an offset of 0 or more, found %d", i, x)
		case x%unit != 0:
			return fmt.Errorf("buffer %d: expected an offset that is a multiple of %d, found %d", i, unit, x)
		case b.Size < 0 || b.Size > math.MaxInt64-pad || x > math.MaxInt64-pad-b.Size:
			return fmt.Errorf("buffer %d: offset %d + size %d is out of range", i, x, b.Size)
		}
		for ; len(gaps) > 0 && gaps[0].Buffer == i; gaps = gaps[1:] {
			rects = append(rects, rect{b.Start, gaps[0].From, x, x + b.Size + pad, i})
			b.Start = gaps[0].To
		}
		rects = append(rects, rect{b.Start, b.End, x, x + b.Size + pad, i})
		makespan = max(makespan, x+b.Size+pad)
	}
	if makespan != pl.Makespan {
		return fmt.Errorf("expected a makespan of %d bytes, the largest offset + size, found %d", makespan, pl.Makespan)
	}
	return checkOverlaps(rects)
}

// rect is a buffer, or a piece of one between gaps, in the plane of time and offsets:
// live in [start, end), at bytes [lo, hi).
type rect struct {
	start, end Time
	lo, hi     Bytes
	buffer     int
}

func (r rect) overlaps(o rect) bool {
	return r.start < o.end && o.start < r.end && r.lo < o.hi && o.lo < r.hi
}

// checkOverlaps sweeps over time and counts, for each range of bytes between two
// neighbouring coordinates, the live buffers that hold it.
func checkOverlaps(rects []rect) error {
	coords := make([]Bytes, 0, 2*len(rects))
	for _, r := range rects {
		coords = append(coords, r.lo, r.hi)
	}
	slices.Sort(coords)
	coords = slices.Compact(coords)
	type moment struct {
		at    Time
		start bool
		rect  int32
	}
	moments := make([]moment, 0, 2*len(rects))
	for i, r := range rects {
		moments = append(moments, moment{r.start, true, int32(i)}, moment{r.end, false, int32(i)})
	}
	// Ends first at the same instant: live ranges are half-open.
	slices.SortFunc(moments, func(a, b moment) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.start == b.start {
			return c
		}
		if b.start {
			return -1
		}
		return 1
	})
	holders := newCounts(len(coords))
	for _, m := range moments {
		r := rects[m.rect]
		lo, _ := slices.BinarySearch(coords, r.lo)
		hi, _ := slices.BinarySearch(coords, r.hi)
		if !m.start {
			holders.add(lo, hi, -1)
			continue
		}
		if holders.max(lo, hi) > 0 {
			return overlapAt(rects, int(m.rect))
		}
		holders.add(lo, hi, 1)
	}
	return nil
}

func overlapAt(rects []rect, i int) error {
	for k, r := range rects {
		if k != i && r.overlaps(rects[i]) {
			a, b := min(i, k), max(i, k) // rects are sorted by buffer
			return fmt.Errorf("buffers %d and %d are live at once and overlap: bytes [%d, %d) and [%d, %d)",
				rects[a].buffer, rects[b].buffer, rects[a].lo, rects[a].hi, rects[b].lo, rects[b].hi)
		}
	}
	return fmt.Errorf("buffer %d: the sweep found an overlap that no pair confirms", i)
}

// counts is a segment tree with range addition and range maximum. whole[v] was added to
// all of node v's range; most[v] is the maximum within it, whole[v] included.
type counts struct {
	n           int
	whole, most []int32
}

func newCounts(n int) *counts {
	return &counts{n: n, whole: make([]int32, 2*n), most: make([]int32, 2*n)}
}

func (c *counts) add(lo, hi int, d int32) {
	for l, r := lo+c.n, hi+c.n; l < r; l, r = l/2, r/2 {
		if l&1 == 1 {
			c.whole[l] += d
			c.most[l] += d
			l++
		}
		if r&1 == 1 {
			r--
			c.whole[r] += d
			c.most[r] += d
		}
	}
	c.refresh(lo + c.n)
	c.refresh(hi - 1 + c.n)
}

func (c *counts) refresh(v int) {
	for v /= 2; v >= 1; v /= 2 {
		c.most[v] = max(c.most[2*v], c.most[2*v+1]) + c.whole[v]
	}
}

func (c *counts) max(lo, hi int) int32 {
	var m int32
	for l, r := lo+c.n, hi+c.n; l < r; l, r = l/2, r/2 {
		if l&1 == 1 {
			m = max(m, c.within(l))
			l++
		}
		if r&1 == 1 {
			r--
			m = max(m, c.within(r))
		}
	}
	return m
}

func (c *counts) within(v int) int32 {
	m := c.most[v]
	for v /= 2; v >= 1; v /= 2 {
		m += c.whole[v]
	}
	return m
}
