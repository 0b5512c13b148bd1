package trace

import "math/bits"

// Divisions says how finely requests are rounded: one number for each of the 16
// intervals of sizes that start at 1, 2, 4 … 32768 MiB, the first with all that
// is smaller and the last with all that is larger. 0 and 1 are off.
type Divisions [16]int64

// Round is what torch's caching allocator makes of a request of up to 2^48 B
// (round_size in c10/cuda/CUDACachingAllocator.cpp): a multiple of 512 B, or,
// where the interval's divisions are on and the request exceeds 512 B for each,
// of that fraction of the power of two below.
func (d *Divisions) Round(request Bytes) Bytes {
	if request < minBlock {
		return minBlock
	}
	power := bits.Len64(uint64(request)) - 1
	divisions := Bytes(d[min(max(power-20, 0), len(d)-1)])
	// Divided rather than multiplied: large divisions must not overflow.
	if divisions <= 1 || (request-1)/minBlock < divisions {
		return (request + minBlock - 1) &^ (minBlock - 1)
	}
	floor := Bytes(1) << power
	if request == floor {
		return request
	}
	// The request exceeds 512 B for each, so that a step is at least 512 B.
	step := floor >> (bits.Len64(uint64(divisions)) - 1)
	return (request + step - 1) / step * step
}
