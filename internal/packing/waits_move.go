package packing

import (
	"context"
	"slices"
)

// mover takes one buffer after the other, in the order of their starts or
// against it, and puts it where the cost is least among the places that are
// free throughout its life. Whatever it does, the layout stays valid under its
// top, and what less compares never grows.
//
// While buffer b is at hand, past says for each byte which of the buffers before
// b had it last, and next which of those after b has it first. That is enough: a
// byte is free throughout b's life where the one has ended and the other has not
// begun, and the waits that b can change are those between the two and b. next
// comes from a sweep in the other direction whose steps are taken back one by
// one; so each pass is two sweeps.
type mover struct {
	in   *instance
	uses []Use
	off  []int64
	top  int64 // no buffer ends above it
	cost waitCost

	past, next *ownerMap

	less          func(a, b waitCost) bool // what is the better cost, for now
	looks, budget int64

	free  run     // scratch: the run at hand
	tries []int64 // scratch: offsets to weigh
	seen  []int64 // the last stamp of each buffer
	stamp int64
}

// The work of one mover: so many passes in a row, and looks at a range of bytes for each
// buffer and in all, after which nothing moves any more. The sweeps of a pass
// count as so many looks a buffer.
const (
	waitPasses   = 12
	waitLooksPer = 2_000
	waitLooks    = 80_000_000
	sweepLooks   = 16
)

func newMover(in *instance, uses []Use, l layout, top int64) *mover {
	return &mover{in: in, uses: uses, off: slices.Clone(l.off), top: top, seen: make([]int64, in.n),
		budget: min(waitLooks, waitLooksPer*int64(in.n))}
}

func (m *mover) layout() layout {
	l := layout{off: m.off}
	for b, x := range m.off {
		l.makespan = max(l.makespan, x+m.in.size[b])
	}
	return l
}

// settleAll looks for the least cost.
func (m *mover) minimize(ctx context.Context) {
	m.alternate(ctx, waitCost.less)
	m.cost = m.costOf()
}

// settleAcross tries once more where waits between streams are left. Under a
// long-lived buffer of another stream one wait becomes many as soon as what
// was last there has gone and what was before it shows: a while in which the
// memory of these waits comes first, and not their number, gets over that.
func (m *mover) retryCrossFirst(ctx context.Context) {
	if m.cost.crossUnits == 0 {
		return
	}
	known, least := slices.Clone(m.off), m.cost
	m.alternate(ctx, waitCost.lessCrossFirst)
	m.minimize(ctx)
	if !m.cost.less(least) {
		m.off, m.cost = known, least
	}
}

// toAndFro makes passes until neither way moves a buffer.
func (m *mover) alternate(ctx context.Context, less func(a, b waitCost) bool) {
	m.less = less
	for k, still := 0, 0; k < waitPasses && still < 2 && m.looks < m.budget && ctx.Err() == nil; k++ {
		still++
		if m.pass(ctx, k%2 == 0) > 0 {
			still = 0
		}
	}
}

// pass takes every buffer once and says how many have moved.
func (m *mover) pass(ctx context.Context, forward bool) (moved int) {
	n := m.in.n
	m.looks += sweepLooks * int64(n)
	m.past, m.next = newOwnerMap(m.top), newOwnerMap(m.top)
	behind, ahead := m.past, m.next
	nth := func(i int) int32 { return int32(i) }
	if !forward {
		behind, ahead = m.next, m.past
		nth = func(i int) int32 { return int32(n - 1 - i) }
	}
	var undo, scratch []piece
	from := make([]int, n) // undo from there on is what buffer nth(i) covered
	for i := n - 1; i >= 0; i-- {
		b := nth(i)
		from[i] = len(undo)
		undo = ahead.set(m.off[b], m.off[b]+m.in.size[b], b, undo)
	}
	for i := range n {
		if m.looks >= m.budget || i%stopEvery == 0 && ctx.Err() != nil {
			return moved
		}
		b := nth(i)
		for _, p := range undo[from[i]:] {
			scratch = ahead.set(p.lo, p.hi, p.own, scratch[:0])
		}
		undo = undo[:from[i]]
		if x := m.bestOffset(b); x != m.off[b] {
			m.off[b] = x
			moved++
		}
		scratch = behind.set(m.off[b], m.off[b]+m.in.size[b], b, scratch[:0])
	}
	return moved
}

// settle is the place for b: where it is, or another with a smaller cost. A
// buffer that has to do with no wait stays, and the search ends at the first
// place without one.
func (m *mover) bestOffset(b int32) int64 {
	best, size := m.off[b], m.in.size[b]
	if m.uses[b].Pinned {
		return best
	}
	var least waitCost
	noisy := false
	m.runs(b, best, best+size, func(r run) bool {
		least, noisy = m.delta(r, b, best)
		return false
	})
	if !noisy {
		return best
	}
	m.runs(b, 0, m.top, func(r run) bool {
		for _, x := range m.candidates(r, size) {
			t, waits := m.delta(r, b, x)
			if m.less(t, least) {
				best, least, noisy = x, t, waits
			}
			if !noisy {
				return false
			}
		}
		return true
	})
	return best
}

// runs calls visit for each run of [lo, hi) that is free throughout b's life,
// by offset, until it says false.
func (m *mover) runs(b int32, lo, hi int64, visit func(run) bool) {
	start, end := m.in.start[b], m.in.end[b]
	m.free = m.free[:0]
	more := true
	m.walk(lo, hi, func(l link) bool {
		if (l.p < 0 || m.in.end[l.p] <= start) && (l.q < 0 || m.in.start[l.q] >= end) {
			m.free = append(m.free, l)
			return true
		}
		if len(m.free) > 0 {
			more = visit(m.free)
			m.free = m.free[:0]
		}
		return more
	})
	if more && len(m.free) > 0 {
		visit(m.free)
	}
}

// candidates are the offsets in r where the cost of size units can be least:
// those where they begin or end where an owner does.
func (m *mover) candidates(r run, size int64) []int64 {
	m.tries = m.tries[:0]
	for i, l := range r {
		if l.lo+size <= r.hi() {
			m.tries = append(m.tries, l.lo)
		}
		if x := l.hi - size; x >= r.lo() && (i > 0 || x > l.lo) {
			m.tries = append(m.tries, x)
		}
	}
	return m.tries
}
