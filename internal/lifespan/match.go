package lifespan

import "slices"

// Match finds which allocations of b are which of a, if both are recordings of the same
// program with data of other sizes: out[j] is the buffer of a that buffer j of b is, -1 if
// a has none. Allocations are compared by stream and lifetime, as the passes of one
// recording are, in order from the beginning of both. Streams are the same if they were
// first used in the same order. Initial buffers and requests that failed match nothing.
func Match(a, b *Timeline) []int32 {
	x, y := a.streamsInOrder(), b.streamsInOrder()
	n, m := x.initial(), y.initial()
	out := make([]int32, len(b.Buffers))
	for j := range m {
		out[j] = -1
	}
	for j, i := range align(tokenize(x, n, len(x.Buffers)), tokenize(y, m, len(y.Buffers))) {
		if i >= 0 {
			i += int32(n)
		}
		if i >= 0 && (a.Buffers[i].Failed || b.Buffers[m+j].Failed) {
			i = -1
		}
		out[m+j] = i
	}
	return out
}

// streamsInOrder is the timeline with streams numbered in the order of their first use.
func (tl *Timeline) streamsInOrder() *Timeline {
	out := *tl
	out.Buffers = slices.Clone(tl.Buffers)
	numbers := map[uint64]uint64{}
	for i := range out.Buffers {
		b := &out.Buffers[i]
		n, ok := numbers[b.Stream]
		if !ok {
			n = uint64(len(numbers))
			numbers[b.Stream] = n
		}
		b.Stream = n
	}
	return &out
}
