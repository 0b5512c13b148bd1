package trace

// Granularity is the unit of PyTorch's caching allocator in bytes: it rounds every
// request up to a multiple of it (kMinBlockSize of c10/cuda).
const Granularity Bytes = 512

// RoundUp is the size that a request is accounted with: the request rounded up to a
// multiple of Granularity, and at least one Granularity. The request is from 0 to 2^62 B.
func RoundUp(request Bytes) Bytes {
	return max(Granularity, (request+Granularity-1)/Granularity*Granularity)
}

// Sizes that PyTorch's native allocator asks the driver for, in bytes (kLargeBuffer,
// kMinLargeAlloc and kRoundLarge of c10/cuda).
const (
	largeSegment Bytes = 20 << 20 // for requests below leastLarge
	leastLarge   Bytes = 10 << 20
	roundLarge   Bytes = 2 << 20
)

// SegmentFor is what the native allocator, without settings, asks the driver for to serve
// a request.
func SegmentFor(request Bytes) Bytes {
	switch {
	case request <= smallLimit:
		return smallSegment
	case request < leastLarge:
		return largeSegment
	}
	return (request + roundLarge - 1) / roundLarge * roundLarge
}
