package packing

import (
	"cmp"
	"slices"
)

// Reuse says that buffer Later takes over bytes whose most recent previous
// owner is buffer Earlier. Both are indices into Problem.Buffers.
type Reuse struct{ Earlier, Later int32 }

// Reuses lists every reuse of a valid placement, sorted by Later, then
// Earlier, each once. A byte that nobody owned before is no reuse.
// O((n + r) log n) for r reuses.
func Reuses(p *Problem, pl Placement) []Reuse {
	unit := max(p.Alignment, 1)
	extent := func(b int32) (lo, hi Bytes) {
		return pl.Offsets[b], pl.Offsets[b] + (p.Buffers[b].Size+unit-1)/unit*unit
	}
	byStart := make([]int32, len(p.Buffers))
	coords := make([]Bytes, 0, 2*len(p.Buffers))
	for i := range byStart {
		byStart[i] = int32(i)
		lo, hi := extent(int32(i))
		coords = append(coords, lo, hi)
	}
	slices.SortStableFunc(byStart, func(a, b int32) int { return cmp.Compare(p.Buffers[a].Start, p.Buffers[b].Start) })
	slices.Sort(coords)
	coords = slices.Compact(coords)

	owners := newOwners(len(coords))
	var out []Reuse
	var before []int32
	for _, later := range byStart {
		x, y := extent(later)
		lo, _ := slices.BinarySearch(coords, x)
		hi, _ := slices.BinarySearch(coords, y)
		before = owners.replace(lo, hi, later, before[:0])
		slices.Sort(before)
		for _, earlier := range slices.Compact(before) {
			out = append(out, Reuse{Earlier: earlier, Later: later})
		}
	}
	slices.SortFunc(out, func(a, b Reuse) int {
		return cmp.Or(cmp.Compare(a.Later, b.Later), cmp.Compare(a.Earlier, b.Earlier))
	})
	return out
}

// owners says who owned each range between neighbouring coordinates last.
// A node whose range has one owner holds it, and what is below is void.
type owners struct {
	n    int
	last []int32
}

const (
	nobody  int32 = -1
	several int32 = -2
)

func newOwners(n int) *owners {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	o := &owners{n: leaves, last: make([]int32, 2*leaves)}
	for i := range o.last {
		o.last[i] = nobody
	}
	return o
}

// replace makes b the owner of [lo, hi) and appends who was to before, with
// repetitions. Each piece it passes is merged into one, so that all calls
// together cost O(log n) for each.
func (o *owners) replace(lo, hi int, b int32, before []int32) []int32 {
	return o.descend(1, 0, o.n, lo, hi, b, before)
}

func (o *owners) descend(v, from, to, lo, hi int, b int32, before []int32) []int32 {
	if hi <= from || to <= lo {
		return before
	}
	if lo <= from && to <= hi {
		before = o.collect(v, before)
		o.last[v] = b
		return before
	}
	if own := o.last[v]; own != several {
		o.last[2*v], o.last[2*v+1] = own, own
		o.last[v] = several
	}
	mid := (from + to) / 2
	before = o.descend(2*v, from, mid, lo, hi, b, before)
	return o.descend(2*v+1, mid, to, lo, hi, b, before)
}

func (o *owners) collect(v int, before []int32) []int32 {
	switch own := o.last[v]; own {
	case nobody:
		return before
	case several:
		return o.collect(2*v+1, o.collect(2*v, before))
	default:
		return append(before, own)
	}
}
