package verify

import (
	"math/bits"
	"slices"
)

// positions is a set of integers below a fixed number, with the nearest member
// at or before, and after, any of them: one bit each, and above each 64 words
// one word that says which of them are not empty.
type positions struct {
	levels [][]uint64 // levels[0] has the members
}

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

// at is the largest member up to i, -1 if there is none.
func (p *positions) at(i int) int {
	for h := 0; ; h++ {
		level := p.levels[h]
		if low := level[i>>6] << (63 - i&63); low != 0 {
			return p.last(h, i-bits.LeadingZeros64(low))
		}
		if i >>= 6; i == 0 {
			return -1
		}
		i-- // to the words before; the highest level has but one
	}
}

// last is the largest member under position i of level h.
func (p *positions) last(h, i int) int {
	for h--; h >= 0; h-- {
		i = i<<6 + 63 - bits.LeadingZeros64(p.levels[h][i])
	}
	return i
}

// after is the smallest member above i, or n, an integer above all members.
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

// first is the smallest member under position i of level h.
func (p *positions) first(h, i int) int {
	for h--; h >= 0; h-- {
		i = i<<6 + bits.TrailingZeros64(p.levels[h][i])
	}
	return i
}
