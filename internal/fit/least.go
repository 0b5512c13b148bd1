package fit

import (
	"context"

	"github.com/stplan/stplan/internal/trace"
)

// Least is the least memory in which a job gets by under an allocator.
type Least struct {
	// Answer is what the allocator does with Bytes to have.
	Answer
	// Bytes are what the allocator has, without what the process takes beside its tensors. 0
	// if it cannot serve such a program at all.
	Bytes trace.Bytes
}

// leastStep is the bytes by which amounts of memory that are tried differ at least: those of
// a granule, in which CUDA gives virtual memory. Half the GiB between allocated and reserved
// would take as many trials again for digits that no GPU has.
const leastStep trace.Bytes = 2 << 20

// FindLeast halves what lies between the job's allocated bytes and what the allocator takes
// without a limit. It takes for granted that a job which gets by with some memory gets by with
// more; if that is not so, what it finds is still an amount with which the job gets by, and
// with leastStep less it does not. Of the budget the device's size does not count: it is what
// is tried, and what the process takes beside its tensors.
func FindLeast(ctx context.Context, a Allocator, j *Job, b Budget) (Least, error) {
	free, err := a.Try(ctx, j, Unlimited, Unlimited)
	if err != nil || free.Unfit != "" {
		return Least{Answer: free}, err
	}
	found := Least{Answer: free, Bytes: free.Reserved}
	low, high := (j.Allocated()-1)/leastStep, (free.Reserved+leastStep-1)/leastStep
	for high-low > 1 {
		middle := low + (high-low)/2
		usable := middle * leastStep
		answer, err := a.Try(ctx, j, usable, usable+b.Context+b.NCCL)
		if err != nil {
			return Least{}, err
		}
		if !answer.Fits {
			low = middle
			continue
		}
		high, found = middle, Least{Answer: answer, Bytes: usable}
	}
	return found, nil
}
