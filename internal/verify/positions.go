package verify

import (
	"math/bits"
	"slices"
)

// positions is a set of integers below a fixed number that finds the nearest member at
// or before any of them, and the nearest after it. It is a tree of bit sets: level 0
// has a bit for each integer, and each level above has a bit for each word of the one
// below, set if that word is not 0. An operation takes a step per level, so log64(n)
// steps.
type positions struct {
	levels [][]uint64 // levels[0] has the members
}

// newPositions is the empty set of integers from 0 to n-1.
func newPositions(n int) *positions {
	p := &positions{}
	for words := (n + 63) / 64; ; words = (words + 63) / 64 {
		p.levels = append(p.levels, make([]uint64, max(1, words)))
		if words <= 1 {
			return p
		}
	}
}

func (p *positions) clone() *positions {
	c := &positions{}
	for _, level := range p.levels {
		c.levels = append(c.levels, slices.Clone(level))
	}
	return c
}

func (p *positions) insert(i int) {
	for _, level := range p.levels {
		level[i>>6] |= 1 << (i & 63)
		i >>= 6
	}
}

func (p *positions) remove(i int) {
	for _, level := range p.levels {
		level[i>>6] &^= 1 << (i & 63)
		if level[i>>6] != 0 {
			return
		}
		i >>= 6
	}
}

// at is the largest member that is at most i, -1 if there is none.
func (p *positions) at(i int) int {
	for h := 0; ; h++ {
		level := p.levels[h]
		if low := level[i>>6] << (63 - i&63); low != 0 {
			return p.last(h, i-bits.LeadingZeros64(low))
		}
		if i >>= 6; i == 0 {
			return -1
		}
		i-- // to the words before
	}
}

// last is the largest member below bit i of level h, which is set.
func (p *positions) last(h, i int) int {
	for h--; h >= 0; h-- {
		i = i<<6 + 63 - bits.LeadingZeros64(p.levels[h][i])
	}
	return i
}

// after is the smallest member above i, or n if there is none.
func (p *positions) after(i, n int) int {
	for h, level := range p.levels {
		if i++; i>>6 >= len(level) {
			return n
		}
		if high := level[i>>6] >> (i & 63); high != 0 {
			return p.first(h, i+bits.TrailingZeros64(high))
		}
		i >>= 6
	}
	return n
}

// first is the smallest member below bit i of level h, which is set.
func (p *positions) first(h, i int) int {
	for h--; h >= 0; h-- {
		i = i<<6 + bits.TrailingZeros64(p.levels[h][i])
	}
	return i
}
