package packing

// firstFit places buffers in the given order, each at the lowest offset that is free
// throughout its life.
func firstFit(j *job, seq []int32) (layout, bool) {
	return place(j, seq, func(t *occupancy, b int32) int64 {
		return t.lowestOf(j.in, b, 0)
	})
}

// place places the buffers of seq, each at the offset that choose returns. It returns
// false if the job was halted or the makespan is above its limit.
func place(j *job, seq []int32, choose func(t *occupancy, b int32) int64) (layout, bool) {
	in := j.in
	t := newOccupancy(in.sections)
	l := layout{off: make([]int64, in.n)}
	if in.mates != nil {
		for b := range l.off {
			l.off[b] = notPlaced
		}
	}
	for i, b := range seq {
		if j.halted(i, l.makespan) {
			return layout{}, false
		}
		mates := in.matesOf(b)
		if mates != nil && l.off[b] != notPlaced {
			continue // placed with the first of its mates
		}
		x := choose(t, b)
		l.off[b] = x
		l.makespan = max(l.makespan, x+in.size[b])
		if mates == nil {
			t.take(in.lo[b], in.hi[b], span{x, x + in.size[b]})
		}
		for _, m := range mates {
			l.off[m] = x
			t.take(in.lo[m], in.hi[m], span{x, x + in.size[m]})
		}
	}
	return l, l.makespan <= j.limit.Load()
}
