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

// at returns entry i, for which there must be room.
func (t *table[T]) at(i uint64) *T { return &t.pages[i>>pageBits][i%pageSize] }

// set makes room for entry i and sets it.
func (t *table[T]) set(i uint64, v T) {
	for !t.has(i) {
		t.pages = append(t.pages, new([pageSize]T))
	}
	t.pages[i>>pageBits][i%pageSize] = v
}

// add appends v and returns its index.
func (t *table[T]) add(v T) uint64 {
	i := t.n
	t.set(i, v)
	t.n++
	return i
}
