package trace

import "math/bits"

// Divisions says how finely requests are rounded (roundup_power2_divisions). It has
// one number for each of the 16 intervals of sizes that start at 1, 2, 4 … 32768
// MiB. The first interval includes all smaller sizes, the last all larger ones. 0
// and 1 turn this rounding off.
type Divisions [16]int64

// Round returns the size that torch's caching allocator uses for a request of up to
// 2^48 B (round_size in c10/cuda/CUDACachingAllocator.cpp). This is the request
// rounded up to a multiple of 512 B. If the interval has n > 1 divisions and the
// request is larger than n times 512 B, it is instead rounded up to a multiple of 1/n
// of the power of two below it, with n rounded down to a power of two.
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
	// The request is larger than divisions times 512 B, so a step is at least 512 B.
	step := floor >> (bits.Len64(uint64(divisions)) - 1)
	return (request + step - 1) / step * step
}
