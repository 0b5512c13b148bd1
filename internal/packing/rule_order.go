package packing

import (
	"cmp"
	"math"
	"slices"
)

// order is a sequence in which buffers are placed: by key, lexicographically,
// the larger first, equal keys by number.
type order struct {
	name string
	key  func(in *instance, b int32) sortKey
}

type sortKey [3]float64

func (o order) sorted(in *instance) []int32 {
	all := make([]int32, in.n)
	for b := range all {
		all[b] = int32(b)
	}
	return o.sort(in, all)
}

// sort puts some buffers into the order, in place.
func (o order) sort(in *instance, members []int32) []int32 {
	type keyed struct {
		key sortKey
		b   int32
	}
	all := make([]keyed, len(members))
	for i, b := range members {
		all[i] = keyed{o.key(in, b), b}
	}
	slices.SortFunc(all, func(x, y keyed) int {
		return cmp.Or(cmp.Compare(y.key[0], x.key[0]), cmp.Compare(y.key[1], x.key[1]), cmp.Compare(y.key[2], x.key[2]),
			cmp.Compare(x.b, y.b))
	})
	for i, k := range all {
		members[i] = k.b
	}
	return members
}

func (in *instance) sizeKey(b int32) float64  { return float64(in.size[b]) }
func (in *instance) lifeKey(b int32) float64  { return float64(in.life(b)) }
func (in *instance) areaKey(b int32) float64  { return in.sizeKey(b) * in.lifeKey(b) }
func (in *instance) timeKey(b int32) float64  { return float64(in.end[b] - in.start[b]) }
func (in *instance) crestKey(b int32) float64 { return float64(in.crest[b]) }

// The orders by size, area and life are the oldest ones of the problem: large
// things first, while there is room. Size is what TensorFlow Lite's and XLA's
// best fit sort by.
var (
	bySize = order{"size", func(in *instance, b int32) sortKey {
		return sortKey{in.sizeKey(b), in.lifeKey(b)}
	}}
	bySizeStart = order{"size,start", func(in *instance, b int32) sortKey {
		return sortKey{in.sizeKey(b), -float64(in.lo[b])}
	}}
	byArea = order{"area", func(in *instance, b int32) sortKey {
		return sortKey{in.areaKey(b), in.sizeKey(b)}
	}}
	byLife = order{"life", func(in *instance, b int32) sortKey {
		return sortKey{in.lifeKey(b), in.sizeKey(b)}
	}}
)

// The crest orders start with the buffers that live where memory is scarcest.
// T, W and A (total, width, area) are minimalloc's names for its preorderings
// (google/minimalloc, src/solver.h). Width is a number of sections; where the
// name has "time", of instants.
var (
	byCrestSize = order{"TSize", func(in *instance, b int32) sortKey {
		return sortKey{in.crestKey(b), in.sizeKey(b), in.lifeKey(b)}
	}}
	byCrestLife = order{"TWA", func(in *instance, b int32) sortKey {
		return sortKey{in.crestKey(b), in.lifeKey(b), in.areaKey(b)}
	}}
	byCrestTime = order{"TWA(time)", func(in *instance, b int32) sortKey {
		return sortKey{in.crestKey(b), in.timeKey(b), in.sizeKey(b)}
	}}
	byCrestArea = order{"TAW", func(in *instance, b int32) sortKey {
		return sortKey{in.crestKey(b), in.areaKey(b), in.lifeKey(b)}
	}}
	byTimeArea = order{"TAW(time)", func(in *instance, b int32) sortKey {
		return sortKey{in.crestKey(b), in.timeKey(b) * in.sizeKey(b), in.timeKey(b)}
	}}
	byLifeArea = order{"WAT", func(in *instance, b int32) sortKey {
		return sortKey{in.lifeKey(b), in.areaKey(b), in.crestKey(b)}
	}}
	bySpanArea = order{"WAT(time)", func(in *instance, b int32) sortKey {
		return sortKey{in.timeKey(b), in.timeKey(b) * in.sizeKey(b), in.crestKey(b)}
	}}
)

// Within one crest, these go through time instead: buffers that hand over to
// one another are placed one after the other, and fall into each other's
// places.
var (
	byCrestStart = order{"TStart", func(in *instance, b int32) sortKey {
		return sortKey{in.crestKey(b), -float64(in.lo[b])}
	}}
	byCrestEnd = order{"TEnd", func(in *instance, b int32) sortKey {
		return sortKey{in.crestKey(b), -float64(in.hi[b])}
	}}
	byCrestLast = order{"TLast", func(in *instance, b int32) sortKey {
		return sortKey{in.crestKey(b), float64(in.hi[b])}
	}}
)

// away is the distance in sections between buffer b's life and the peak,
// negated so that the nearest come first.
func (in *instance) away(b int32) float64 {
	switch {
	case in.hi[b] <= in.peak:
		return float64(in.hi[b] - in.peak - 1)
	case in.lo[b] > in.peak:
		return float64(in.peak - in.lo[b])
	}
	return 0
}

// The peak orders pack the peak first and go outward from it: what the peak
// needs is decided while everything is still possible.
var (
	byPeakSize = order{"peakSz", func(in *instance, b int32) sortKey {
		return sortKey{in.away(b), in.sizeKey(b), in.lifeKey(b)}
	}}
	byPeakLife = order{"peakW", func(in *instance, b int32) sortKey {
		return sortKey{in.away(b), in.lifeKey(b), in.sizeKey(b)}
	}}
	byPeakEnd = order{"peakE", func(in *instance, b int32) sortKey {
		return sortKey{in.away(b), -float64(in.hi[b]), in.sizeKey(b)}
	}}
	byPeakLast = order{"peakL", func(in *instance, b int32) sortKey {
		return sortKey{in.away(b), float64(in.hi[b]), in.sizeKey(b)}
	}}
	byPeakStart = order{"peakS", func(in *instance, b int32) sortKey {
		return sortKey{in.away(b), -float64(in.lo[b]), in.sizeKey(b)}
	}}
)

// byStart is the order in which the program asks.
var byStart = order{"start", func(in *instance, b int32) sortKey {
	return sortKey{-float64(in.lo[b]), in.lifeKey(b), in.sizeKey(b)}
}}

// residentsFirst puts the buffers that live to the end into a block at the
// bottom, in the order of their starts: whatever dies before some of them
// start can use the room above, and nothing is ever left below them. The rest
// follows in o's order.
func residentsFirst(o order) order {
	return order{"residents+" + o.name, func(in *instance, b int32) sortKey {
		if in.resident(b) {
			return sortKey{math.Inf(1), -float64(in.lo[b]), in.sizeKey(b)}
		}
		return o.key(in, b)
	}}
}
