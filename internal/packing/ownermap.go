package packing

import "slices"

// ownerMap says whose each byte of an arena is: pieces of one owner each, by
// offset, that cover it without a gap. They lie in chunks, so that a change
// moves a few hundred of them at most.
type ownerMap struct {
	chunks []pieces
	end    int64
}

// pieces is a run of neighbouring pieces: where each begins, and whose it is.
// A piece ends where the next one begins.
type pieces struct {
	lo  []int64
	own []int32
}

// piece is a range of bytes [lo, hi) with its owner, or nobody.
type piece struct {
	lo, hi int64
	own    int32
}

// nobody owns what was never set.
const nobody int32 = -1

// piecesLen is the number of pieces at which a chunk is split in two.
const piecesLen = 512

func newOwnerMap(end int64) *ownerMap {
	return &ownerMap{chunks: []pieces{{lo: []int64{0}, own: []int32{nobody}}}, end: end}
}

// cursor names a piece of a ownerMap. It is void once the ownerMap changes.
type cursor struct{ chunk, i int }

// at is the piece that offset x lies in.
func (s *ownerMap) at(x int64) cursor {
	k, found := slices.BinarySearchFunc(s.chunks, x, func(c pieces, x int64) int {
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
	i, found := slices.BinarySearch(s.chunks[k].lo, x)
	if !found {
		i--
	}
	return cursor{k, i}
}

// after is the piece behind the one at c, which is not the last.
func (s *ownerMap) after(c cursor) cursor {
	if c.i+1 < len(s.chunks[c.chunk].lo) {
		return cursor{c.chunk, c.i + 1}
	}
	return cursor{c.chunk + 1, 0}
}

// hi is where the piece at c ends.
func (s *ownerMap) hi(c cursor) int64 {
	if own := &s.chunks[c.chunk]; c.i+1 < len(own.lo) {
		return own.lo[c.i+1]
	}
	if c.chunk+1 < len(s.chunks) {
		return s.chunks[c.chunk+1].lo[0]
	}
	return s.end
}

func (s *ownerMap) owner(c cursor) int32 { return s.chunks[c.chunk].own[c.i] }

// set makes b the owner of [lo, hi), which is not empty, and appends what it
// was before to was.
func (s *ownerMap) set(lo, hi int64, b int32, was []piece) []piece {
	c := s.at(lo)
	first := c
	for {
		end := s.hi(c)
		was = append(was, piece{max(lo, s.chunks[c.chunk].lo[c.i]), min(hi, end), s.owner(c)})
		if end >= hi {
			break
		}
		c = s.after(c)
	}
	s.splice(first, c, lo, hi, b)
	return was
}

// splice puts [lo, hi) of b in the place of the pieces from first to last,
// which cover it; what sticks out of it on either side keeps its owner.
func (s *ownerMap) splice(first, last cursor, lo, hi int64, b int32) {
	end := s.hi(last)
	var loBuf [3]int64
	var ownBuf [3]int32
	fresh := pieces{loBuf[:0], ownBuf[:0]}
	if x := s.chunks[first.chunk].lo[first.i]; x < lo {
		fresh.lo, fresh.own = append(fresh.lo, x), append(fresh.own, s.owner(first))
	}
	fresh.lo, fresh.own = append(fresh.lo, lo), append(fresh.own, b)
	if hi < end {
		fresh.lo, fresh.own = append(fresh.lo, hi), append(fresh.own, s.owner(last))
	}
	if first.chunk != last.chunk {
		// The chunks become one, without what lies between.
		from, to := &s.chunks[first.chunk], s.chunks[last.chunk]
		keep := last.i + 1
		last.i = len(from.lo) - 1
		from.lo, from.own = append(from.lo, to.lo[keep:]...), append(from.own, to.own[keep:]...)
		s.chunks = slices.Delete(s.chunks, first.chunk+1, last.chunk+1)
	}
	at := &s.chunks[first.chunk]
	at.lo = slices.Replace(at.lo, first.i, last.i+1, fresh.lo...)
	at.own = slices.Replace(at.own, first.i, last.i+1, fresh.own...)
	s.mergeEqual(cursor{first.chunk, max(first.i-1, 0)}, len(fresh.lo)+1)
	if len(at.lo) > piecesLen {
		s.split(first.chunk)
	}
}

// join makes one piece of neighbours with the same owner among the n+1 pieces
// from c on, within its chunk.
func (s *ownerMap) mergeEqual(c cursor, n int) {
	at := &s.chunks[c.chunk]
	for i := c.i; n > 0 && i+1 < len(at.lo); n-- {
		if at.own[i] != at.own[i+1] {
			i++
			continue
		}
		at.lo, at.own = slices.Delete(at.lo, i+1, i+2), slices.Delete(at.own, i+1, i+2)
	}
}

func (s *ownerMap) split(k int) {
	at := &s.chunks[k]
	half := len(at.lo) / 2
	upper := pieces{slices.Clone(at.lo[half:]), slices.Clone(at.own[half:])}
	at.lo, at.own = at.lo[:half], at.own[:half]
	s.chunks = slices.Insert(s.chunks, k+1, upper)
}
