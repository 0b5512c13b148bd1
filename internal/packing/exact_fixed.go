package packing

import "math"

// obstacle is a range of offsets that is taken during sections [lo, hi) of an instance:
// a buffer that the exact search may not move.
type obstacle struct {
	lo, hi int32
	at     span
}

// unusable is the offsets that none of a section's buffers can use.
type unusable struct {
	spans spans
	above []int64 // of each span: the sum of its length and of those above it
}

// setObstacles gives the search ranges of offsets that are taken. All of them lie below
// the ceilings that the search will be asked about; they may overlap one another. A
// canonical layout among obstacles is one in which no buffer can sink. Among all
// layouts under a ceiling take one with the least sum of offsets: each buffer lies at
// the lowest free offset above the buffers that overlap it and start lower, and that is
// where the search puts it.
//
// A hole is unusable in a section if it is too small for each of the section's buffers,
// or taken for each of them at some other time of its life.
func (e *exact) setObstacles(taken []obstacle) {
	e.blocked = make([]spans, e.in.n)
	for b := range int32(e.in.n) {
		var l spans
		for _, o := range taken {
			if o.lo < e.in.hi[b] && e.in.lo[b] < o.hi {
				l = l.add(o.at)
			}
		}
		e.blocked[b] = l
	}
	open := make([]spans, e.in.n)
	for b, taken := range e.blocked {
		open[b] = e.openTo(int32(b), taken)
	}
	e.unusable = make([]unusable, e.in.sections)
	for s, members := range e.members {
		var any spans
		for _, b := range members {
			for _, o := range open[b] {
				any = any.add(o)
			}
			if len(any) == 1 && any[0].lo == 0 {
				break // every offset can be used, which is the usual case
			}
		}
		e.unusable[s] = complement(any)
	}
}

// openTo is the ranges in which b can lie: the holes in taken that are large enough.
func (e *exact) openTo(b int32, taken spans) (open spans) {
	x := int64(0)
	for _, t := range taken {
		if t.lo-x >= e.in.size[b] {
			open = append(open, span{x, t.lo})
		}
		x = t.hi
	}
	return append(open, span{x, math.MaxInt64})
}

// complement is the ranges below the last span of open that open leaves out.
func complement(open spans) unusable {
	var c unusable
	x := int64(0)
	for _, o := range open {
		if o.lo > x {
			c.spans = append(c.spans, span{x, o.lo})
		}
		x = o.hi
	}
	c.above = make([]int64, len(c.spans))
	sum := int64(0)
	for i := len(c.spans) - 1; i >= 0; i-- {
		sum += c.spans[i].hi - c.spans[i].lo
		c.above[i] = sum
	}
	return c
}

// pastObstacles is the lowest offset from x up at which b meets no obstacle.
func (e *exact) pastObstacles(b int32, x int64) int64 {
	if e.blocked == nil {
		return x
	}
	l, size := e.blocked[b], e.in.size[b]
	for i := l.after(0, x); i < len(l) && l[i].lo < x+size; i++ {
		x = l[i].hi
	}
	return x
}

// unusableAbove is how many units of section s above floor no buffer can use.
func (e *exact) unusableAbove(s int32, floor int64) int64 {
	if e.unusable == nil {
		return 0
	}
	c := &e.unusable[s]
	i := c.spans.after(0, floor)
	if i == len(c.spans) {
		return 0
	}
	return c.above[i] - max(0, floor-c.spans[i].lo)
}

// roomAtStart reports whether the load of each section fits beside the obstacles, and
// each buffer by itself.
func (e *exact) roomAtStart() bool {
	if e.unusable == nil {
		return true
	}
	for s, l := range e.in.load {
		if l > 0 && l+e.unusableAbove(int32(s), 0) > e.ceiling {
			return false
		}
	}
	for b := range int32(e.in.n) {
		if e.pastObstacles(b, 0)+e.in.size[b] > e.ceiling {
			return false
		}
	}
	return true
}
