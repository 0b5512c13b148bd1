package packing

import (
	"cmp"
	"slices"
)

// waitCost is the cost of the waits of a layout. count is how many there are. units is
// the memory that changes hands with a wait. slack is the sum over the waits of the
// instants between the end of the earlier buffer and the start of the later one. cross,
// crossUnits and crossSlack are the parts of these that belong to waits between two
// streams.
type waitCost struct {
	count, units, slack           int64
	cross, crossUnits, crossSlack int64
}

// less orders costs: fewer waits between streams, then fewer waits, then less memory,
// then more slack. A wait between streams is for all that the device has been given up
// to the end of the earlier buffer. One within a stream is only for the other streams
// that still used the memory.
func (c waitCost) less(o waitCost) bool {
	return cmp.Or(cmp.Compare(c.cross, o.cross), cmp.Compare(c.count, o.count), cmp.Compare(c.units, o.units),
		cmp.Compare(o.slack, c.slack)) < 0
}

// lessCrossFirst orders costs by what waits between streams are for first: less memory,
// then more slack, then less.
func (c waitCost) lessCrossFirst(o waitCost) bool {
	if cross := cmp.Or(cmp.Compare(c.crossUnits, o.crossUnits), cmp.Compare(o.crossSlack, c.crossSlack)); cross != 0 {
		return cross < 0
	}
	return c.less(o)
}

func (c waitCost) minus(o waitCost) waitCost {
	return waitCost{c.count - o.count, c.units - o.units, c.slack - o.slack,
		c.cross - o.cross, c.crossUnits - o.crossUnits, c.crossSlack - o.crossSlack}
}

// charge adds to c that b takes over n units of a with a wait, and the wait itself if
// it is new.
func (m *mover) charge(c *waitCost, a, b int32, n int64, isNew bool) {
	waits, slack := int64(0), int64(0)
	if isNew {
		waits, slack = 1, int64(m.in.start[b]-m.in.end[a])
	}
	c.count, c.units, c.slack = c.count+waits, c.units+n, c.slack+slack
	if m.uses[a].Stream != m.uses[b].Stream {
		c.cross, c.crossUnits, c.crossSlack = c.cross+waits, c.crossUnits+n, c.crossSlack+slack
	}
}

// needsWait reports whether b has to wait if it takes over bytes of a.
func (m *mover) needsWait(a, b int32) bool {
	return m.uses[a].Stream != m.uses[b].Stream || m.uses[a].Settled > m.in.start[b]
}

// link is a range of offsets with the buffer that owns it last before the current
// buffer, p, and the one that owns it first after it, q. Each may be nobody.
type link struct {
	lo, hi int64
	p, q   int32
}

// run is a range of offsets that is free throughout the life of the current buffer, as
// adjacent links.
type run []link

func (r run) lo() int64 { return r[0].lo }
func (r run) hi() int64 { return r[len(r)-1].hi }

// from is the links of r that end above offset x.
func (r run) from(x int64) run {
	i, _ := slices.BinarySearchFunc(r, x, func(l link, x int64) int {
		if l.hi <= x {
			return -1
		}
		return 1
	})
	return r[i:]
}

// delta is the change of the cost if b, which is taken out, is put at x within r: the
// waits of b, plus those of other buffers for b, less those that end because b comes
// between two buffers. hasWait says that b waits there, or another buffer for b.
func (m *mover) delta(r run, b int32, x int64) (change waitCost, hasWait bool) {
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
			hasWait = true
		}
		if l.q >= 0 && m.needsWait(b, l.q) {
			m.charge(&change, b, l.q, n, m.firstSeen(l.q))
			hasWait = true
		}
		if l.p >= 0 && l.q >= 0 && m.needsWait(l.p, l.q) {
			m.charge(&gone, l.p, l.q, n, m.endsWait(r[:i], l, x, y))
		}
	}
	return change.minus(gone), hasWait
}

// firstSeen reports whether this is the first time since m.stamp changed that it is
// called with a.
func (m *mover) firstSeen(a int32) bool {
	first := m.seen[a] != m.stamp
	m.seen[a] = m.stamp
	return first
}

// endsWait reports whether a buffer in [x, y) ends the wait between the owners of l,
// because it covers all bytes that q takes over from p. It is false if a link in before
// has the same owners: a wait is counted at the first link of its owners only.
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

// handsOver reports whether q takes over a byte of [lo, hi) from p.
func (m *mover) handsOver(p, q int32, lo, hi int64) bool {
	found := false
	m.walk(lo, hi, func(l link) bool {
		found = l.p == p && l.q == q
		return !found
	})
	return found
}

// walk calls visit for each link in [lo, hi), by offset, until it returns false.
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

// costOf is the cost of the whole layout.
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
