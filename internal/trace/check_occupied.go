package trace

import (
	"math/bits"
	"slices"
)

// occupied is a set of ranges of memory that do not overlap. All addresses at which
// ranges may begin are known beforehand. So a range's neighbours are found in a
// bitmap of these addresses, and no search tree is needed.
type occupied struct {
	addresses []uint64 // ascending
	sizes     []Bytes  // of the range at an address
	// levels[0] has a bit for every address; it is set if a range begins there.
	// levels[n+1] has a bit for every word of levels[n]; it is set if the word is
	// not 0.
	levels [][]uint64
}

// newOccupied makes an empty set for ranges at the given addresses.
func newOccupied(addresses []uint64) occupied {
	o := occupied{addresses: slices.Clone(addresses)}
	slices.Sort(o.addresses)
	o.addresses = slices.Compact(o.addresses)
	o.sizes = make([]Bytes, len(o.addresses))
	for n := len(o.addresses); n > 1 || len(o.levels) == 0; {
		n = (n + 63) / 64
		o.levels = append(o.levels, make([]uint64, n))
	}
	return o
}

// find returns the index of a known address. For another address it returns the
// index of the next one above, which may be len(addresses).
func (o *occupied) find(address uint64) int {
	k, _ := slices.BinarySearch(o.addresses, address)
	return k
}

func (o *occupied) has(k int) bool { return o.levels[0][k>>6]>>(k&63)&1 != 0 }

// take adds a range at address k. It must not overlap another.
func (o *occupied) take(k int, size Bytes) {
	o.sizes[k] = size
	for _, level := range o.levels {
		word := &level[k>>6]
		known := *word != 0 // then the levels above have its bit
		*word |= 1 << (k & 63)
		if known {
			return
		}
		k >>= 6
	}
}

// release removes the range at address k.
func (o *occupied) release(k int) {
	for _, level := range o.levels {
		word := &level[k>>6]
		if *word &^= 1 << (k & 63); *word != 0 {
			return
		}
		k >>= 6
	}
}

// overlap returns a range that shares bytes with the given one, or -1. A range at
// the same address counts even if one of the sizes is 0.
func (o *occupied) overlap(k int, size Bytes) int {
	if o.has(k) {
		return k
	}
	if i := o.below(k); i >= 0 && o.addresses[k]-o.addresses[i] < uint64(o.sizes[i]) {
		return i
	}
	if i := o.above(k); i >= 0 && o.addresses[i]-o.addresses[k] < uint64(size) {
		return i
	}
	return -1
}

// below returns the last range before address k, or -1.
func (o *occupied) below(k int) int {
	for n, level := range o.levels {
		if word := level[k>>6] & (1<<(k&63) - 1); word != 0 {
			k = k&^63 | (63 - bits.LeadingZeros64(word))
			for n--; n >= 0; n-- {
				k = k<<6 | (63 - bits.LeadingZeros64(o.levels[n][k]))
			}
			return k
		}
		k >>= 6
	}
	return -1
}

// above returns the first range after address k, or -1.
func (o *occupied) above(k int) int {
	for n, level := range o.levels {
		if word := level[k>>6] &^ (2<<(k&63) - 1); word != 0 {
			k = k&^63 | bits.TrailingZeros64(word)
			for n--; n >= 0; n-- {
				k = k<<6 | bits.TrailingZeros64(o.levels[n][k])
			}
			return k
		}
		k >>= 6
	}
	return -1
}
