package baseline

import (
	"math/bits"

	"github.com/stplan/stplan/internal/trace"
)

// round is the size of the block that a request needs.
func (r *rules) round(requested trace.Bytes) trace.Bytes {
	if requested < minBlock {
		return minBlock
	}
	d := r.divisions[interval(requested)]
	// Divided rather than multiplied: a large d must not overflow.
	if d > 1 && (requested-1)/minBlock >= trace.Bytes(d) {
		return roundDivided(requested, d)
	}
	return align(requested, minBlock)
}

// interval indexes the divisions: everything below 2 MiB is in the first.
func interval(size trace.Bytes) int {
	return min(max(log2(size)-20, 0), 15)
}

// roundDivided rounds up to the next of d equal steps between two powers of two.
func roundDivided(size trace.Bytes, d int64) trace.Bytes {
	if size&(size-1) == 0 {
		return size
	}
	// The caller's size exceeds 512 d, so that a step is at least 512 B.
	step := trace.Bytes(1) << log2(size) >> log2(trace.Bytes(d))
	return align(size, step)
}

func log2(n trace.Bytes) int { return bits.Len64(uint64(n)) - 1 }

// align rounds up to a multiple of unit.
func align(n, unit trace.Bytes) trace.Bytes { return (n + unit - 1) / unit * unit }

// small says which of a pool's two halves serves a block of a rounded size.
func small(size trace.Bytes) bool { return size <= smallMax }

// segment is what the native allocator takes from the driver for a block.
func (r *rules) segment(size trace.Bytes) trace.Bytes {
	switch {
	case small(size):
		return smallSegment
	case size < largeMin:
		return r.largeSegment
	}
	return align(size, roundLarge)
}

// oversize says that a block is too large for a request to take it whole while
// it may not be split.
func (r *rules) oversize(block, size trace.Bytes) bool {
	if size < r.maxSplit {
		return block >= r.maxSplit
	}
	return block >= size+r.nonSplit
}

// splits says that a block that has rest bytes more than a request is split.
// It goes by the current setting, not by what kind of segment the block is in.
func (r *rules) splits(size, rest trace.Bytes) bool {
	if small(size) || r.expandable {
		return rest >= minBlock
	}
	return size < r.maxSplit && rest > smallMax
}
