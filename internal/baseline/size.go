package baseline

import "github.com/stplan/stplan/internal/trace"

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
