package trace

// Granularity is the unit of PyTorch's caching allocator in bytes: it rounds every
// request up to a multiple of it (kMinBlockSize of c10/cuda).
const Granularity Bytes = 512

// RoundUp is the size that a request is accounted with: the request rounded up to a
// multiple of Granularity, and at least one Granularity. The request is from 0 to 2^62 B.
func RoundUp(request Bytes) Bytes {
	return max(Granularity, (request+Granularity-1)/Granularity*Granularity)
}
