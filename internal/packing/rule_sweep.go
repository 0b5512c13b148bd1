package packing

// sweep goes through the problem in time like an online allocator with a free list:
// each buffer takes part of the hole that fit chooses, and gives it back at its end. It
// is the fastest rule by far, and often packs programs well that repeat strictly.
func sweep(fit func(f *freeList, size int64) int64) func(j *job) (layout, bool) {
	return func(j *job) (layout, bool) {
		in := j.in
		l := layout{off: make([]int64, in.n)}
		var free freeList
		ended := 0
		for b := range int32(in.n) {
			if j.halted(int(b), free.top) {
				return layout{}, false
			}
			for ; in.end[in.byEnd[ended]] <= in.start[b]; ended++ {
				e := in.byEnd[ended]
				free.release(span{l.off[e], l.off[e] + in.size[e]})
			}
			l.off[b] = fit(&free, in.size[b])
		}
		l.makespan = free.top
		return l, l.makespan <= j.limit.Load()
	}
}
