package packing

import "slices"

// twoEnded places buffers in the given order, the long-lived half at the lowest free
// offset and the short-lived half at the highest one below the lower bound. So the
// short-lived buffers leave whole holes behind at their end and do not cut up the space
// of the long-lived ones. A buffer with mates, or one for which nothing is free below
// the bound, takes the lowest free offset.
func twoEnded(j *job, seq []int32) (layout, bool) {
	in := j.in
	long := medianLife(in)
	return place(j, seq, func(t *occupancy, b int32) int64 {
		if in.life(b) < long && in.matesOf(b) == nil {
			if x := t.highest(in.lo[b], in.hi[b], in.size[b], in.bound); x >= 0 {
				return x
			}
		}
		return t.lowestOf(in, b, 0)
	})
}

// medianLife is the median of the buffers' lives, in sections.
func medianLife(in *instance) int64 {
	lives := make([]int64, in.n)
	for b := range lives {
		lives[b] = in.life(int32(b))
	}
	slices.Sort(lives)
	return lives[in.n/2]
}
