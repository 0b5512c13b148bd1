package fusion

// load is a segment tree of the bytes live right after each start, with range addition
// and range maximum. No join may raise it above limit, which is below the max load.
type load struct {
	leaves int
	whole  []Bytes // of each node: added to all of its range
	most   []Bytes // of each node: the largest load within it, whole included
	limit  Bytes
}

// headroom is the share of the max load, as a divisor, by which composites have to stay
// below it with their unused area: closer to the max load the packer needs the buffers
// one by one to fill every hole. Without it rules on the coarse composites of a regular
// pipeline left 1.67 % and not 0.013 % (docs/packing.md).
const headroom = 64

func newLoad(objects []object) *load {
	n := 0
	for i := range objects {
		n = max(n, int(objects[i].end))
	}
	l := &load{leaves: n, whole: make([]Bytes, 2*n), most: make([]Bytes, 2*n)}
	change := make([]Bytes, n+1)
	for i := range objects {
		change[objects[i].start] += objects[i].size
		change[objects[i].end] -= objects[i].size
	}
	live := Bytes(0)
	for t := range n {
		live += change[t]
		l.whole[n+t], l.most[n+t] = live, live
		l.limit = max(l.limit, live)
	}
	l.limit -= (l.limit + headroom - 1) / headroom
	for v := n - 1; v >= 1; v-- {
		l.most[v] = max(l.most[2*v], l.most[2*v+1])
	}
	return l
}

// area is a change of the load by size bytes during [start, end).
type area struct {
	start, end int32
	size       Bytes
}

// raise adds all areas and returns true if the load stays within the limit during them.
// Otherwise it adds none.
func (l *load) raise(areas ...area) bool {
	for i, a := range areas {
		if a.start >= a.end || a.size == 0 {
			continue
		}
		l.add(a)
		if l.max(a.start, a.end) > l.limit {
			for _, undo := range areas[:i+1] {
				if undo.start < undo.end {
					l.add(area{undo.start, undo.end, -undo.size})
				}
			}
			return false
		}
	}
	return true
}

func (l *load) add(a area) {
	lo, hi := int(a.start)+l.leaves, int(a.end)+l.leaves
	for x, y := lo, hi; x < y; x, y = x/2, y/2 {
		if x&1 == 1 {
			l.whole[x] += a.size
			l.most[x] += a.size
			x++
		}
		if y&1 == 1 {
			y--
			l.whole[y] += a.size
			l.most[y] += a.size
		}
	}
	l.refresh(lo)
	l.refresh(hi - 1)
}

func (l *load) refresh(v int) {
	for v /= 2; v >= 1; v /= 2 {
		l.most[v] = max(l.most[2*v], l.most[2*v+1]) + l.whole[v]
	}
}

func (l *load) max(start, end int32) Bytes {
	most := Bytes(0)
	for x, y := int(start)+l.leaves, int(end)+l.leaves; x < y; x, y = x/2, y/2 {
		if x&1 == 1 {
			most = max(most, l.within(x))
			x++
		}
		if y&1 == 1 {
			y--
			most = max(most, l.within(y))
		}
	}
	return most
}

func (l *load) within(v int) Bytes {
	m := l.most[v]
	for v /= 2; v >= 1; v /= 2 {
		m += l.whole[v]
	}
	return m
}
