package pickle

import "unsafe"

// table is a long list in pages. So it grows without being copied, and leaves no old
// copies to the garbage collector.
type table[T any] struct {
	pages []*[pageSize]T
	n     uint64
}

const (
	// pageSize is the number of entries of a page. A page of Values is 32 KiB: small
	// beside a snapshot, and large enough that pages are few.
	pageSize = 1 << pageBits
	pageBits = 12
)

// has reports whether entry i has its page.
func (t *table[T]) has(i uint64) bool { return i>>pageBits < uint64(len(t.pages)) }

// memory is the size of the pages in bytes.
func (t *table[T]) memory() int64 {
	return int64(len(t.pages)) * int64(unsafe.Sizeof([pageSize]T{}))
}

// get returns entry i, or the zero T if it has no page.
func (t *table[T]) get(i uint64) (v T) {
	if p := i >> pageBits; p < uint64(len(t.pages)) {
		v = t.pages[p][i%pageSize]
	}
	return v
}

// at returns entry i, which must have its page.
func (t *table[T]) at(i uint64) *T { return &t.pages[i>>pageBits][i%pageSize] }

// slot returns entry i, and adds pages up to its own.
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
