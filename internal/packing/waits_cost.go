package packing

import (
	"cmp"
	"slices"
)

// waitCost is what waits cost: how many there are, the units of memory that change
// hands, and the instants between the end of the earlier and the start of the
// later; and the last two of those between two streams alone.
type waitCost struct {
	count, units, slack    int64
	crossUnits, crossSlack int64
}

// less orders costs: fewer waits, then less memory, then more time.
func (t waitCost) less(o waitCost) bool {
	return cmp.Or(cmp.Compare(t.count, o.count), cmp.Compare(t.units, o.units), cmp.Compare(o.slack, t.slack)) < 0
}

// lessAcross puts what goes between streams first: less memory, then more time,
// whatever happens to the number of waits.
func (t waitCost) lessCrossFirst(o waitCost) bool {
	if c := cmp.Or(cmp.Compare(t.crossUnits, o.crossUnits), cmp.Compare(o.crossSlack, t.crossSlack)); c != 0 {
		return c < 0
	}
	return t.less(o)
}

func (t waitCost) minus(o waitCost) waitCost {
	return waitCost{t.count - o.count, t.units - o.units, t.slack - o.slack, t.crossUnits - o.crossUnits, t.crossSlack - o.crossSlack}
}

// charge adds n units of a wait of b for a to t, and the wait itself where it is
// new.
func (m *mover) charge(t *waitCost, a, b int32, n int64, isNew bool) {
	slack := int64(0)
	if isNew {
		slack = int64(m.in.start[b] - m.in.end[a])
		t.count++
	}
	t.units += n
	t.slack += slack
	if m.uses[a].Stream != m.uses[b].Stream {
		t.crossUnits += n
		t.crossSlack += slack
	}
}

// ordered says that b has to wait where it takes over bytes of a.
func (m *mover) needsWait(a, b int32) bool {
	return m.uses[a].Stream != m.uses[b].Stream || m.uses[a].Settled > m.in.start[b]
}

// link is a range of bytes that was p's before the buffer at hand and is q's
// after it, or nobody's.
type link struct {
	lo, hi int64
	p, q   int32
}

// run is a range of bytes that is free throughout the life of the buffer at
// hand: links without a gap between them.
type run []link

func (r run) lo() int64 { return r[0].lo }
func (r run) hi() int64 { return r[len(r)-1].hi }

// from is the part of r behind offset x.
func (r run) from(x int64) run {
	i, _ := slices.BinarySearchFunc(r, x, func(l link, x int64) int {
		if l.hi <= x {
			return -1
		}
		return 1
	})
	return r[i:]
}

// weigh is by how much the cost changes when b comes to x, within r: what b
// waits for, what waits for b, less what no longer waits because b is between.
// any says that b has to do with a wait there.
func (m *mover) delta(r run, b int32, x int64) (change waitCost, any bool) {
	y := x + m.in.size[b]
	m.stamp++
	var gone waitCost
	r = r.from(x)
	for i, l := range r {
		if l.lo >= y {
			break
		}
		m.looks++
		n := min(y, l.hi) - max(x, l.lo)
		if l.p >= 0 && m.needsWait(l.p, b) {
			m.charge(&change, l.p, b, n, m.firstSeen(l.p))
			any = true
		}
		if l.q >= 0 && m.needsWait(b, l.q) {
			m.charge(&change, b, l.q, n, m.firstSeen(l.q))
			any = true
		}
		if l.p >= 0 && l.q >= 0 && m.needsWait(l.p, l.q) {
			m.charge(&gone, l.p, l.q, n, m.endsWait(r[:i], l, x, y))
		}
	}
	return change.minus(gone), any
}

// fresh says that weigh meets buffer a for the first time.
func (m *mover) firstSeen(a int32) bool {
	first := m.seen[a] != m.stamp
	m.seen[a] = m.stamp
	return first
}

// severs says that a buffer in [x, y) comes between the owners of l on all the
// bytes that one of them hands to the other, and that none of before did so.
func (m *mover) endsWait(before run, l link, x, y int64) bool {
	for _, o := range before {
		if o.p == l.p && o.q == l.q {
			return false
		}
	}
	lo := max(m.off[l.p], m.off[l.q])
	hi := min(m.off[l.p]+m.in.size[l.p], m.off[l.q]+m.in.size[l.q])
	return !m.handsOver(l.p, l.q, lo, min(hi, x)) && !m.handsOver(l.p, l.q, max(lo, y), hi)
}

// hands says that p hands a byte of [lo, hi) to q.
func (m *mover) handsOver(p, q int32, lo, hi int64) bool {
	found := false
	m.walk(lo, hi, func(l link) bool {
		found = l.p == p && l.q == q
		return !found
	})
	return found
}

// walk calls visit for each range of bytes in [lo, hi) with the same owners
// before and after the buffer at hand, by offset, until it says false.
func (m *mover) walk(lo, hi int64, visit func(link) bool) {
	if lo >= hi {
		return
	}
	p, q := m.past.at(lo), m.next.at(lo)
	for x := lo; x < hi; {
		m.looks++
		pEnd, qEnd := m.past.hi(p), m.next.hi(q)
		y := min(hi, pEnd, qEnd)
		if !visit(link{x, y, m.past.owner(p), m.next.owner(q)}) {
			return
		}
		if x = y; x == hi {
			return
		}
		if pEnd == y {
			p = m.past.after(p)
		}
		if qEnd == y {
			q = m.next.after(q)
		}
	}
}

// costOf is the cost of a whole layout.
func (m *mover) costOf() waitCost {
	owners := newOwnerMap(m.top)
	var sum waitCost
	var was []piece
	for b := range int32(m.in.n) {
		was = owners.set(m.off[b], m.off[b]+m.in.size[b], b, was[:0])
		m.stamp++
		for _, w := range was {
			if w.own >= 0 && m.needsWait(w.own, b) {
				m.charge(&sum, w.own, b, w.hi-w.lo, m.firstSeen(w.own))
			}
		}
	}
	return sum
}
