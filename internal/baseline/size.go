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
	return align(size, r.largeUnit)
}

// oversize says that a block may not be split and is too large for the request to
// take it whole.
func (r *rules) oversize(block, size trace.Bytes) bool {
	if size < r.maxSplit {
		return block >= r.maxSplit
	}
	return block >= size+r.nonSplit
}

// splits says that a block with rest bytes more than the request is split. As in
// PyTorch this depends on the current setting, not on the kind of the segment that
// the block is in.
func (r *rules) splits(size, rest trace.Bytes) bool {
	if small(size) || r.expandable {
		return rest >= minBlock
	}
	return size < r.maxSplit && rest > smallMax
}
