package packing

import (
	"math"
	"slices"
)

// order is an order in which buffers are placed: by key, lexicographically, larger keys
// first, and equal keys by number.
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

// sort sorts some buffers by o, in place.
func (o order) sort(in *instance, members []int32) []int32 {
	type keyed struct {
		key sortKey
		b   int32
	}
	all := make([]keyed, len(members))
	for i, b := range members {
		all[i] = keyed{o.key(in, b), b}
	}
	// No key is NaN. The first key mostly decides, and sorting is a good part of a rule's
	// time, so nothing else is compared before it is known to be equal.
	slices.SortFunc(all, func(x, y keyed) int {
		for i, k := range x.key {
			if k != y.key[i] {
				if k > y.key[i] {
					return -1
				}
				return 1
			}
		}
		return int(x.b) - int(y.b)
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

// Orders by size, area (size × life) and life, largest first: the oldest ones for this
// problem. The best fit of TensorFlow Lite and of XLA sorts by size.
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

// Orders by crest start with the buffers that live at the highest loads. T, W and A
// (total, width, area) are minimalloc's names for its preorderings (google/minimalloc,
// src/solver.h). Width counts sections, or instants if the name has "time".
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

// Orders by crest, then by time: a buffer is placed right after the one that it can
// take over from, and often gets the same offset.
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

// away is the distance in sections between buffer b's life and the peak, negated so
// that the nearest come first.
func (in *instance) away(b int32) float64 {
	switch {
	case in.hi[b] <= in.peak:
		return float64(in.hi[b] - in.peak - 1)
	case in.lo[b] > in.peak:
		return float64(in.peak - in.lo[b])
	}
	return 0
}

// Orders by distance from the peak: the buffers of the peak are placed first, while
// every offset is still free.
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

// byStart is the order in which the program allocates.
var byStart = order{"start", func(in *instance, b int32) sortKey {
	return sortKey{-float64(in.lo[b]), in.lifeKey(b), in.sizeKey(b)}
}}

// residentsFirst puts the buffers that live to the end first, in the order of their
// starts, so that first fit stacks them in a block at the bottom without holes below or
// between them. Buffers that end before a resident starts can use its room until then.
// The others follow in o's order.
func residentsFirst(o order) order {
	return order{"residents+" + o.name, func(in *instance, b int32) sortKey {
		if in.resident(b) {
			return sortKey{math.Inf(1), -float64(in.lo[b]), in.sizeKey(b)}
		}
		return o.key(in, b)
	}}
}
