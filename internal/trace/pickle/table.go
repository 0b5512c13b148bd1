package pickle

// table is a long list in pages, so that growing it neither copies it nor leaves
// its old copies to the garbage collector.
type table[T any] struct {
	pages []*[pageSize]T
	n     uint64
}

const (
	pageBits = 12
	pageSize = 1 << pageBits
)

// has reports whether there is room for entry i already.
func (t *table[T]) has(i uint64) bool { return i>>pageBits < uint64(len(t.pages)) }

// get returns entry i, the zero T where there is no room for it.
func (t *table[T]) get(i uint64) (v T) {
	if p := i >> pageBits; p < uint64(len(t.pages)) {
		v = t.pages[p][i%pageSize]
	}
	return v
}

// at returns entry i, for which there must be room.
func (t *table[T]) at(i uint64) *T { return &t.pages[i>>pageBits][i%pageSize] }

// slot returns entry i, and makes room for it.
func (t *table[T]) slot(i uint64) *T {
	for !t.has(i) {
		t.pages = append(t.pages, new([pageSize]T))
	}
	return t.at(i)
}

// add appends v and returns its index.
func (t *table[T]) add(v T) uint64 {
	i := t.n
	*t.slot(i) = v
	t.n++
	return i
}
