package packing

import "slices"

// ownerMap is an interval map: it says which buffer owns each range of offsets. Its
// pieces, each with one owner, are sorted by offset and cover the arena without a hole.
// They are kept in chunks, so that a change moves a few hundred pieces at most.
type ownerMap struct {
	chunks []pieces
	end    int64
}

// pieces is a chunk of neighbouring pieces. A piece ends where the next one begins.
type pieces struct {
	lo  []int64 // of each piece: the offset where it begins
	own []int32 // of each piece: its owner, or nobody
}

// piece is a range of offsets [lo, hi) with its owner, or nobody.
type piece struct {
	lo, hi int64
	own    int32
}

// nobody is the owner of offsets that were never set.
const nobody int32 = -1

// piecesLen is the number of pieces above which a chunk is split in two. Smaller chunks
// make a change cheaper, and the list of chunks longer.
const piecesLen = 512

func newOwnerMap(end int64) *ownerMap {
	return &ownerMap{chunks: []pieces{{lo: []int64{0}, own: []int32{nobody}}}, end: end}
}

// cursor is the position of a piece in an ownerMap, valid until the map changes.
type cursor struct{ chunk, i int }

// at is the piece that holds offset x.
func (m *ownerMap) at(x int64) cursor {
	k, found := slices.BinarySearchFunc(m.chunks, x, func(c pieces, x int64) int {
		switch {
		case c.lo[0] < x:
			return -1
		case c.lo[0] > x:
			return 1
		}
		return 0
	})
	if !found {
		k--
	}
	i, found := slices.BinarySearch(m.chunks[k].lo, x)
	if !found {
		i--
	}
	return cursor{k, i}
}

// after is the piece above the one at c, which must not be the last.
func (m *ownerMap) after(c cursor) cursor {
	if c.i+1 < len(m.chunks[c.chunk].lo) {
		return cursor{c.chunk, c.i + 1}
	}
	return cursor{c.chunk + 1, 0}
}

// hi is the offset where the piece at c ends.
func (m *ownerMap) hi(c cursor) int64 {
	if own := &m.chunks[c.chunk]; c.i+1 < len(own.lo) {
		return own.lo[c.i+1]
	}
	if c.chunk+1 < len(m.chunks) {
		return m.chunks[c.chunk+1].lo[0]
	}
	return m.end
}

func (m *ownerMap) owner(c cursor) int32 { return m.chunks[c.chunk].own[c.i] }

// set makes b the owner of [lo, hi), which must not be empty, and appends the pieces
// that it had before to was.
func (m *ownerMap) set(lo, hi int64, b int32, was []piece) []piece {
	c := m.at(lo)
	first := c
	for {
		end := m.hi(c)
		was = append(was, piece{max(lo, m.chunks[c.chunk].lo[c.i]), min(hi, end), m.owner(c)})
		if end >= hi {
			break
		}
		c = m.after(c)
	}
	m.splice(first, c, lo, hi, b)
	return was
}

// splice replaces the pieces from first to last, which cover [lo, hi), by one of b. The
// parts of them outside [lo, hi) keep their owners.
func (m *ownerMap) splice(first, last cursor, lo, hi int64, b int32) {
	end := m.hi(last)
	var loBuf [3]int64
	var ownBuf [3]int32
	fresh := pieces{loBuf[:0], ownBuf[:0]}
	if x := m.chunks[first.chunk].lo[first.i]; x < lo {
		fresh.lo, fresh.own = append(fresh.lo, x), append(fresh.own, m.owner(first))
	}
	fresh.lo, fresh.own = append(fresh.lo, lo), append(fresh.own, b)
	if hi < end {
		fresh.lo, fresh.own = append(fresh.lo, hi), append(fresh.own, m.owner(last))
	}
	if first.chunk != last.chunk {
		// The two chunks become one, and those between them go.
		from, to := &m.chunks[first.chunk], m.chunks[last.chunk]
		keep := last.i + 1
		last.i = len(from.lo) - 1
		from.lo, from.own = append(from.lo, to.lo[keep:]...), append(from.own, to.own[keep:]...)
		m.chunks = slices.Delete(m.chunks, first.chunk+1, last.chunk+1)
	}
	at := &m.chunks[first.chunk]
	at.lo = slices.Replace(at.lo, first.i, last.i+1, fresh.lo...)
	at.own = slices.Replace(at.own, first.i, last.i+1, fresh.own...)
	m.mergeEqual(cursor{first.chunk, max(first.i-1, 0)}, len(fresh.lo)+1)
	if len(at.lo) > piecesLen {
		m.split(first.chunk)
	}
}

// mergeEqual merges neighbours with the same owner among the n+1 pieces from c on,
// within the chunk of c.
func (m *ownerMap) mergeEqual(c cursor, n int) {
	at := &m.chunks[c.chunk]
	for i := c.i; n > 0 && i+1 < len(at.lo); n-- {
		if at.own[i] != at.own[i+1] {
			i++
			continue
		}
		at.lo, at.own = slices.Delete(at.lo, i+1, i+2), slices.Delete(at.own, i+1, i+2)
	}
}

// split splits chunk k in two.
func (m *ownerMap) split(k int) {
	at := &m.chunks[k]
	half := len(at.lo) / 2
	upper := pieces{slices.Clone(at.lo[half:]), slices.Clone(at.own[half:])}
	at.lo, at.own = at.lo[:half], at.own[:half]
	m.chunks = slices.Insert(m.chunks, k+1, upper)
}
