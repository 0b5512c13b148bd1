package packing

// bestFit places buffers in the given order, each in the smallest gap that
// holds it throughout its life, so that large gaps stay whole for what needs
// them.
func bestFit(j *job, seq []int32) (layout, bool) {
	return place(j, seq, func(t *occupancy, b int32) int64 {
		if j.in.matesOf(b) != nil {
			return t.lowestOf(j.in, b, 0)
		}
		return t.tightest(j.in.lo[b], j.in.hi[b], j.in.size[b])
	})
}
