package packing

import "slices"

// twoEnded places buffers in the given order, the long-lived half at the
// lowest free offset and the short-lived one at the highest below the lower
// bound. What is short leaves whole holes behind on its side and does not cut
// up the space of what stays. Where nothing is free below the bound, both take
// the lowest free offset.
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

func medianLife(in *instance) int64 {
	lives := make([]int64, in.n)
	for b := range lives {
		lives[b] = in.life(int32(b))
	}
	slices.Sort(lives)
	return lives[in.n/2]
}
