package replay

import (
	"iter"
	"slices"
)

// ranges says which owner each byte of the address space had last. It is an ordered list of
// pieces. A piece ends where the next one begins, so the list has no holes. Its length
// follows the number of allocations, at most two pieces for each, and of the pieces that are copied, and never
// their sizes.
type ranges struct {
	chunks [][]piece // none is empty
}

// piece is the bytes from low to the next piece, and their last owner.
type piece struct {
	low   uint64
	owner int // nobody if none ever was
}

const nobody = -1

// chunkLen is the number of pieces above which a chunk is split in two. A change moves the
// pieces of one chunk, so smaller chunks make it cheaper. They also make the list of chunks
// longer, which a split moves.
const chunkLen = 256

func newRanges() *ranges { return &ranges{chunks: [][]piece{{{0, nobody}}}} }

// place is the position of a piece, valid until the list changes.
type place struct{ chunk, at int }

// find is the piece that holds an address.
func (r *ranges) find(address uint64) place {
	k, found := slices.BinarySearchFunc(r.chunks, address, func(c []piece, x uint64) int { return compare(c[0], x) })
	if !found {
		k--
	}
	i, found := slices.BinarySearchFunc(r.chunks[k], address, compare)
	if !found {
		i--
	}
	return place{k, i}
}

func compare(p piece, address uint64) int {
	switch {
	case p.low < address:
		return -1
	case p.low > address:
		return 1
	}
	return 0
}

// cut makes a piece begin at an address, and returns it.
func (r *ranges) cut(address uint64) place {
	p := r.find(address)
	c := r.chunks[p.chunk]
	if c[p.at].low == address {
		return p
	}
	p.at++
	r.chunks[p.chunk] = slices.Insert(c, p.at, piece{address, c[p.at-1].owner})
	return r.split(p)
}

// split splits the chunk of a piece if it is too long. It returns where the piece is then.
func (r *ranges) split(p place) place {
	c := r.chunks[p.chunk]
	if len(c) <= chunkLen {
		return p
	}
	half := len(c) / 2
	r.chunks = slices.Insert(r.chunks, p.chunk+1, slices.Clone(c[half:]))
	r.chunks[p.chunk] = c[:half]
	if p.at >= half {
		return place{p.chunk + 1, p.at - half}
	}
	return p
}

// own makes an owner the last one of [low, high), which must not be empty. It calls before
// with each owner that bytes of it had, by ascending address, but not with nobody.
func (r *ranges) own(low, high uint64, owner int, before func(owner int)) {
	r.cut(high)
	from := r.cut(low)
	to := r.find(high)
	for k := from.chunk; k <= to.chunk; k++ {
		for _, p := range r.part(k, from, to) {
			if p.owner != nobody {
				before(p.owner)
			}
		}
	}
	r.chunks[from.chunk][from.at].owner = owner
	r.remove(place{from.chunk, from.at + 1}, to)
}

// within yields the pieces of [low, high), each from where it begins there.
func (r *ranges) within(low, high uint64) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for p := r.find(low); p.chunk < len(r.chunks); p = (place{p.chunk + 1, 0}) {
			for _, piece := range r.chunks[p.chunk][p.at:] {
				piece.low = max(piece.low, low)
				if piece.low >= high || !yield(piece) {
					return
				}
			}
		}
	}
}

// copy has the bytes from `to` on have the owners of those from `from` on.
func (r *ranges) copy(from, to, size uint64) {
	pieces := slices.Collect(r.within(from, from+size))
	for i, p := range pieces {
		end := from + size
		if i+1 < len(pieces) {
			end = pieces[i+1].low
		}
		r.own(p.low-from+to, end-from+to, p.owner, func(int) {})
	}
}

// part is what chunk k has of the pieces [from, to).
func (r *ranges) part(k int, from, to place) []piece {
	c := r.chunks[k]
	if k == to.chunk {
		c = c[:to.at]
	}
	if k == from.chunk {
		c = c[from.at:]
	}
	return c
}

// remove removes the pieces [from, to). The one before from is of the same chunk, so that no
// chunk becomes empty but those in between, which go.
func (r *ranges) remove(from, to place) {
	first, last := r.chunks[from.chunk], r.chunks[to.chunk]
	if from.chunk == to.chunk {
		r.chunks[from.chunk] = slices.Delete(first, from.at, to.at)
		return
	}
	r.chunks[from.chunk] = first[:from.at]
	r.chunks[to.chunk] = slices.Delete(last, 0, to.at)
	r.chunks = slices.Delete(r.chunks, from.chunk+1, to.chunk)
}
