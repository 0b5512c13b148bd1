package packing

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
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

// checkOverlaps sweeps over time. No two of the live rectangles share a byte, so they have
// an order by offset, and one that starts can only overlap its two neighbours in it.
func checkOverlaps(rects []rect) error {
	byLow := sortedBy(rects, func(r *rect) int64 { return int64(r.lo) })
	place := make([]int32, len(rects)) // of each rectangle: its place in byLow
	for k, i := range byLow {
		place[i] = int32(k)
	}
	starts := sortedBy(rects, func(r *rect) int64 { return int64(r.start) })
	ends := sortedBy(rects, func(r *rect) int64 { return int64(r.end) })
	live := newPlaces(len(rects))
	for _, i := range starts {
		r := &rects[i]
		// Ends come first at the same instant: live ranges are half-open.
		for ; len(ends) > 0 && rects[ends[0]].end <= r.start; ends = ends[1:] {
			live.remove(int(place[ends[0]]))
		}
		if r.start >= r.end || r.lo >= r.hi {
			continue // never live, or no bytes
		}
		k := int(place[i])
		if p := live.before(k); p >= 0 && rects[byLow[p]].hi > r.lo {
			return overlapAt(rects, int(i))
		}
		if n := live.after(k); n >= 0 && rects[byLow[n]].lo < r.hi {
			return overlapAt(rects, int(i))
		}
		live.add(k)
	}
	return nil
}

// sortedBy is the rectangles by a key, ascending.
func sortedBy(rects []rect, key func(*rect) int64) []int32 {
	type keyed struct {
		key int64
		i   int32
	}
	all := make([]keyed, len(rects))
	for i := range rects {
		all[i] = keyed{key(&rects[i]), int32(i)}
	}
	slices.SortFunc(all, func(a, b keyed) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return cmp.Compare(a.i, b.i)
	})
	out := make([]int32, len(all))
	for k, a := range all {
		out[k] = a.i
	}
	return out
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

// places is a set of places from 0 to n-1, as bits: in the first level one for each place,
// in each further level one for each word of the level below that is not 0. The last level
// is one word.
type places [][]uint64

func newPlaces(n int) places {
	var p places
	for {
		n = (n + 63) / 64
		p = append(p, make([]uint64, n))
		if n <= 1 {
			return p
		}
	}
}

func (p places) add(k int) {
	for _, level := range p {
		level[k/64] |= 1 << (k % 64)
		k /= 64
	}
}

func (p places) remove(k int) {
	for _, level := range p {
		level[k/64] &^= 1 << (k % 64)
		if k /= 64; level[k] != 0 {
			return
		}
	}
}

// before is the largest place in the set below k, -1 if there is none.
func (p places) before(k int) int {
	for l, level := range p {
		if word := level[k/64] & (1<<(k%64) - 1); word != 0 {
			k = k&^63 + bits.Len64(word) - 1
			for l--; l >= 0; l-- {
				k = 64*k + bits.Len64(p[l][k]) - 1
			}
			return k
		}
		k /= 64
	}
	return -1
}

// after is the smallest place in the set above k, -1 if there is none.
func (p places) after(k int) int {
	for l, level := range p {
		if word := level[k/64] &^ (1<<(k%64+1) - 1); word != 0 {
			k = k&^63 + bits.TrailingZeros64(word)
			for l--; l >= 0; l-- {
				k = 64*k + bits.TrailingZeros64(p[l][k])
			}
			return k
		}
		k /= 64
	}
	return -1
}
