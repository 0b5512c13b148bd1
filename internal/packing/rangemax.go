package packing

// rangeMax is a segment tree with range maximum and range raise, over one number per
// section. Numbers only grow, so raises need not be pushed down: raised[v] applies to
// all of node v's sections, and top[v] is the largest number in them, not counting
// raises of the nodes above v.
type rangeMax struct {
	leaves int32
	raised []int64
	top    []int64
}

func newRangeMax(sections int) *rangeMax {
	leaves := int32(1)
	for int(leaves) < sections {
		leaves *= 2
	}
	return &rangeMax{leaves: leaves, raised: make([]int64, 2*leaves), top: make([]int64, 2*leaves)}
}

// raise sets every number in [lo, hi) that is below h to h.
func (t *rangeMax) raise(lo, hi int32, h int64) {
	l, r := lo+t.leaves, hi+t.leaves
	for ; l < r; l, r = l/2, r/2 {
		if l&1 == 1 {
			t.lift(l, h)
			l++
		}
		if r&1 == 1 {
			r--
			t.lift(r, h)
		}
	}
	t.pull(lo + t.leaves)
	t.pull(hi - 1 + t.leaves)
}

func (t *rangeMax) lift(v int32, h int64) {
	t.raised[v] = max(t.raised[v], h)
	t.top[v] = max(t.top[v], h)
}

func (t *rangeMax) pull(v int32) {
	for v /= 2; v >= 1; v /= 2 {
		t.top[v] = max(t.raised[v], t.top[2*v], t.top[2*v+1])
	}
}

// max is the largest number in [lo, hi), which must not be empty.
func (t *rangeMax) max(lo, hi int32) int64 {
	var m int64
	l, r := lo+t.leaves, hi+t.leaves
	for ; l < r; l, r = l/2, r/2 {
		if l&1 == 1 {
			m = max(m, t.top[l])
			l++
		}
		if r&1 == 1 {
			r--
			m = max(m, t.top[r])
		}
	}
	for v := (lo + t.leaves) / 2; v >= 1; v /= 2 {
		m = max(m, t.raised[v])
	}
	for v := (hi - 1 + t.leaves) / 2; v >= 1; v /= 2 {
		m = max(m, t.raised[v])
	}
	return m
}
