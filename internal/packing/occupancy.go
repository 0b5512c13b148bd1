package packing

// span is a range of offsets [lo, hi).
type span struct{ lo, hi int64 }

// spans is a sorted list of disjoint ranges that do not touch.
type spans []span

// after is the index of the first span from i on that ends above x. It gallops, since
// the answer is mostly near i.
func (l spans) after(i int, x int64) int {
	step := 1
	for i+step <= len(l) && l[i+step-1].hi <= x {
		i += step
		step *= 2
	}
	end := min(i+step-1, len(l))
	for i < end {
		m := (i + end) / 2
		if l[m].hi <= x {
			i = m + 1
		} else {
			end = m
		}
	}
	return i
}

// add is l with s included, merged with the spans that it overlaps or touches.
func (l spans) add(s span) spans {
	i := l.after(0, s.lo-1)
	j := i
	for ; j < len(l) && l[j].lo <= s.hi; j++ {
		s.lo, s.hi = min(s.lo, l[j].lo), max(s.hi, l[j].hi)
	}
	if j == i {
		l = append(l, span{})
		copy(l[i+1:], l[i:])
		l[i] = s
		return l
	}
	l[i] = s
	return append(l[:i+1], l[j:]...)
}

// occupancy is a segment tree over sections that finds the free offsets of a live range
// beside the buffers placed so far. covers[v] is the offsets taken throughout node v's
// sections, touches[v] those taken in any of them, both as merged spans. A query needs
// the touches of the O(log n) nodes that make up its range and the covers of the nodes
// above these, and leapfrogs over the lists.
type occupancy struct {
	leaves  int32
	covers  []spans
	touches []spans

	// Scratch of the current query.
	own, above []int32
	lists      []spans
	cursors    []int
}

func newOccupancy(sections int) *occupancy {
	leaves := int32(1)
	for int(leaves) < sections {
		leaves *= 2
	}
	return &occupancy{leaves: leaves, covers: make([]spans, 2*leaves), touches: make([]spans, 2*leaves)}
}

// decompose sets own to the nodes that make up [lo, hi), and above to their ancestors.
// On the way up, an ancestor of the first or the last leaf is above such a node from
// the level on at which it sticks out of [lo, hi).
func (t *occupancy) decompose(lo, hi int32) {
	t.own, t.above = t.own[:0], t.above[:0]
	l, r := lo+t.leaves, hi+t.leaves
	leftOut, rightOut := false, false
	for left, right := l, r-1; left >= 1; left, right = left/2, right/2 {
		if leftOut {
			t.above = append(t.above, left)
		}
		if rightOut && (right != left || !leftOut) {
			t.above = append(t.above, right)
		}
		if l < r && l&1 == 1 {
			t.own = append(t.own, l)
			l++
			leftOut = true
		}
		if l < r && r&1 == 1 {
			r--
			t.own = append(t.own, r)
			rightOut = true
		}
		l, r = l/2, r/2
	}
}

// take marks s as taken during sections [lo, hi).
func (t *occupancy) take(lo, hi int32, s span) {
	t.decompose(lo, hi)
	for _, v := range t.own {
		t.covers[v] = t.covers[v].add(s)
		t.touches[v] = t.touches[v].add(s)
	}
	for _, v := range t.above {
		t.touches[v] = t.touches[v].add(s)
	}
}

// query collects the lists whose union is the offsets taken during [lo, hi).
func (t *occupancy) query(lo, hi int32) {
	t.decompose(lo, hi)
	t.lists, t.cursors = t.lists[:0], t.cursors[:0]
	for _, v := range t.own {
		t.gather(t.touches[v])
	}
	for _, v := range t.above {
		t.gather(t.covers[v])
	}
}

func (t *occupancy) gather(l spans) {
	if len(l) > 0 {
		t.lists = append(t.lists, l)
		t.cursors = append(t.cursors, 0)
	}
}

// lowest is the lowest offset at or above from at which size units are free during
// [lo, hi).
func (t *occupancy) lowest(lo, hi int32, size, from int64) int64 {
	t.query(lo, hi)
	return t.firstFree(size, from)
}

// firstFree is the lowest offset from x up at which size units are free in all lists of
// the query. It moves x past every span in the way, until one round over the lists
// finds none. The cursors only move up, so x must not go down between calls.
func (t *occupancy) firstFree(size, x int64) int64 {
	for unchanged := 0; unchanged < len(t.lists); {
		for k, l := range t.lists {
			c := l.after(t.cursors[k], x)
			for ; c < len(l) && l[c].lo < x+size; c++ {
				x = l[c].hi
				unchanged = 0
			}
			t.cursors[k] = c
			unchanged++
		}
	}
	return x
}

// tightest is the offset of the smallest hole of at least size units during [lo, hi),
// the lowest among equals. The room above everything comes last.
func (t *occupancy) tightest(lo, hi int32, size int64) int64 {
	t.query(lo, hi)
	best, waste := int64(-1), int64(0)
	x := t.firstFree(size, 0)
	for {
		end, bounded := t.holeEnd()
		if !bounded {
			if best < 0 {
				return x
			}
			return best
		}
		if w := end - x - size; best < 0 || w < waste {
			best, waste = x, w
		}
		x = t.firstFree(size, end)
	}
}

// holeEnd is the offset at which the hole that firstFree has just found ends, and false
// if nothing lies above it.
func (t *occupancy) holeEnd() (int64, bool) {
	least, bounded := int64(0), false
	for k, l := range t.lists {
		if c := t.cursors[k]; c < len(l) && (!bounded || l[c].lo < least) {
			least, bounded = l[c].lo, true
		}
	}
	return least, bounded
}

// highest is the highest offset at which size units are free below limit during
// [lo, hi), or -1.
func (t *occupancy) highest(lo, hi int32, size, limit int64) int64 {
	t.query(lo, hi)
	x := limit - size
	for unchanged := 0; x >= 0 && unchanged < len(t.lists); {
		for _, l := range t.lists {
			// The last span that starts below x+size is the first one that ends above
			// x+size-1, or the one before that.
			c := l.after(0, x+size-1)
			if c == len(l) || l[c].lo >= x+size {
				c--
			}
			for ; c >= 0 && l[c].hi > x; c-- {
				x = l[c].lo - size
				unchanged = 0
			}
			unchanged++
		}
	}
	return max(x, -1)
}
