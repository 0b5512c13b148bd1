package packing

import (
	"context"
	"slices"
)

// mover is a local search on the waits of a layout. It takes one buffer after the
// other, forwards or backwards in the order of their starts, and moves it to the offset
// with the least cost among those that are free throughout its life. After each move
// the layout is valid, ends at or below top, and costs no more in the current order of
// costs (less).
//
// While b is the current buffer, past holds for each byte its last owner among the
// buffers before b, and next its first owner among those after b. That is all that is
// needed. A byte is free throughout b's life if the first has ended and the second has
// not begun, and b can change only the waits among these two and b. A sweep in the
// opposite direction fills next, and its steps are undone one by one; so a pass is two
// sweeps.
type mover struct {
	in   *instance
	uses []Use
	off  []int64
	top  int64 // no buffer ends above it
	cost waitCost

	past, next *ownerMap

	less          func(a, b waitCost) bool // the current order of costs
	looks, budget int64

	free  run     // scratch: the current run
	tries []int64 // scratch: offsets to compare
	seen  []int64 // of each buffer: the last stamp
	stamp int64
}

// waitPasses bounds one call of alternate, in passes over all buffers. It ends before
// if two passes in a row move no buffer.
const waitPasses = 12

// waitLooks bounds one mover, in looks at a link. The search for fewer waits takes
// 0.7 to 18 s on the recordings (docs/results/waits.md).
const waitLooks = 80_000_000

// waitLooksPer bounds one mover on instances of fewer than 40,000 buffers, in looks for
// each buffer.
const waitLooksPer = 2_000

// sweepLooks is what the two sweeps of a pass count, in looks for each buffer.
const sweepLooks = 16

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

// minimize moves buffers until the cost does not fall any more, within the budget.
func (m *mover) minimize(ctx context.Context) {
	m.alternate(ctx, waitCost.less)
	m.cost = m.costOf()
}

// retryCrossFirst searches once more if waits between streams are left, and keeps the
// result if it costs less. It gets out of a local minimum: if a large buffer below a
// long-lived one of another stream moves away, one wait is replaced by waits for the
// several buffers that were there before. So some passes compare the memory of waits
// between streams first, and the number of waits last.
func (m *mover) retryCrossFirst(ctx context.Context) {
	if m.cost.cross == 0 {
		return
	}
	known, least := slices.Clone(m.off), m.cost
	m.alternate(ctx, waitCost.lessCrossFirst)
	m.minimize(ctx)
	if !m.cost.less(least) {
		m.off, m.cost = known, least
	}
}

// alternate makes passes forwards and backwards in turn, until neither moves a buffer.
func (m *mover) alternate(ctx context.Context, less func(a, b waitCost) bool) {
	m.less = less
	for k, still := 0, 0; k < waitPasses && still < 2 && m.looks < m.budget && ctx.Err() == nil; k++ {
		still++
		if m.pass(ctx, k%2 == 0) > 0 {
			still = 0
		}
	}
}

// pass takes every buffer once and returns how many have moved.
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
	from := make([]int, n) // undo[from[i]:] is what buffer nth(i) covered
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

// bestOffset is the offset for b: its own, or another with a smaller cost. A buffer
// that is part of no wait stays, and the search ends at the first offset where b is
// part of none.
func (m *mover) bestOffset(b int32) int64 {
	best, size := m.off[b], m.in.size[b]
	if m.uses[b].Pinned {
		return best
	}
	var least waitCost
	hasWait := false
	m.runs(b, best, best+size, func(r run) bool {
		least, hasWait = m.delta(r, b, best)
		return false
	})
	if !hasWait {
		return best
	}
	m.runs(b, 0, m.top, func(r run) bool {
		for _, x := range m.candidates(r, size) {
			cost, waits := m.delta(r, b, x)
			if m.less(cost, least) {
				best, least, hasWait = x, cost, waits
			}
			if !hasWait {
				return false
			}
		}
		return true
	})
	return best
}

// runs calls visit for each run of [lo, hi) that is free throughout b's life, by
// offset, until it returns false.
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

// candidates is the offsets in r at which the cost of size units can be least: those at
// which the units begin or end with a link.
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
