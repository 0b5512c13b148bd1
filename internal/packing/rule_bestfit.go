package packing

// bestFit places buffers in the given order, each in the smallest hole that holds it
// throughout its life, so that large holes stay whole for large buffers. A buffer with
// mates takes the lowest offset.
func bestFit(j *job, seq []int32) (layout, bool) {
	return place(j, seq, func(t *occupancy, b int32) int64 {
		if j.in.matesOf(b) != nil {
			return t.lowestOf(j.in, b, 0)
		}
		return t.tightest(j.in.lo[b], j.in.hi[b], j.in.size[b])
	})
}
