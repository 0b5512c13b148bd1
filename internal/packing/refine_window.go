package packing

import (
	"cmp"
	"slices"
)

// windows is a large neighbourhood search in time: it lowers a ceiling over a
// finished layout. Each buffer that ends above the ceiling is taken out, and an
// exact search of the window of time around it puts it back under the ceiling.
// Buffers that live inside the window are free to move; those that cross its
// borders or have mates keep their offsets, as obstacles. If a window has no
// solution, or none was found within its work, it grows. The rest of the layout,
// which may have a million buffers, is not touched.
//
// The first ceiling is the target. After a failure the next ceiling closes half the
// share of the gap that the last one had to close, after a success twice the share.
func windows(s *search, best layout) layout {
	share := 1.0 // of the gap that the next ceiling closes
	for range windowRounds {
		gap := best.makespan - s.target
		if s.finished(best) || share < windowMinShare || s.ctx.Err() != nil {
			break
		}
		from, ceiling := best, best.makespan-max(1, int64(share*float64(gap)))
		found, ok := s.decide(contest{
			tasks:  1,
			target: ceiling,
			known:  ceiling,
			run:    func(_ int, j *job) (layout, bool) { return repair(j, from, ceiling) },
		})
		if ok {
			best, share = found, min(1, 2*share)
		} else {
			share /= 2
		}
	}
	return best
}

// windowRounds bounds windows, in ceilings. With the bounds below all of windows took
// 0.8 to 2.4 s of processor time on recorded pipelines of 15,000 to 23,000 buffers.
const windowRounds = 24

// windowMinShare is the smallest share of the gap that a ceiling closes: windows ends
// when a 32nd of the gap has failed too, at the latest after six failures in a row.
const windowMinShare = 1.0 / 32

// windowLooks bounds the attempt at one ceiling, in looks of the exact search: about
// 0.4 s on small instances (the rate of solveLooks), more on large ones.
const windowLooks = 1 << 26

// oneWindowLooks is the part of windowLooks for one window: a window that is not solved
// by then has to grow, and the other windows need the rest.
const oneWindowLooks = windowLooks / 16

// windowBuffers is the largest window, in buffers that are free to move, as
// solveBuffers is for whole instances.
const windowBuffers = 1 << 10

// windowNodesPer bounds the search of one window, in nodes a buffer that is free to
// move; a descent without backtracking takes one.
const windowNodesPer = 20

// repairs is one attempt at a ceiling.
type repairs struct {
	j       *job
	ceiling int64
	off     []int64 // of each buffer: its offset, notPlaced until it is put back
	looks   int64   // left for this ceiling
	// before has, of each run of windowRun buffers, the largest in.hi: a run that has ended
	// before a window is passed over.
	before []int32
}

// windowRun is the number of buffers in a run of repairs.before. A window has up to 1,024
// buffers, and residents among a run's make it be looked at: longer runs would be passed
// over less often.
const windowRun = 64

func newRepairs(j *job, off []int64) *repairs {
	r := &repairs{j: j, off: off, before: make([]int32, (j.in.n+windowRun-1)/windowRun)}
	for b, hi := range j.in.hi {
		r.before[b/windowRun] = max(r.before[b/windowRun], hi)
	}
	return r
}

// repair puts the buffers of a layout that end above the ceiling back under it, in the
// order of the largest load during their lives.
func repair(j *job, from layout, ceiling int64) (layout, bool) {
	in := j.in
	r := newRepairs(j, slices.Clone(from.off))
	r.ceiling, r.looks = ceiling, windowLooks
	var out []int32
	for b := range int32(in.n) {
		if r.off[b]+in.size[b] > ceiling {
			if in.matesOf(b) != nil {
				return layout{}, false // a window cannot keep mates at one offset
			}
			r.off[b] = notPlaced
			out = append(out, b)
		}
	}
	for _, b := range byCrestSize.sort(in, out) {
		if r.off[b] == notPlaced && !r.insert(b) {
			return layout{}, false
		}
	}
	l := layout{off: r.off, heuristic: "windows(" + from.heuristic + ")"}
	for b, x := range r.off {
		l.makespan = max(l.makespan, x+in.size[b])
	}
	return l, true
}

// insert finds an offset for b, in wider and wider windows around its life.
func (r *repairs) insert(b int32) bool {
	in := r.j.in
	tried, all := 0, int32(in.sections)
	for reach := int32(0); r.looks > 0 && !r.j.stopped(); reach = 2*reach + 1 {
		lo, hi := max(0, in.lo[b]-reach), min(all, in.hi[b]+reach)
		free, taken := r.window(lo, hi)
		if len(free) > windowBuffers {
			return false
		}
		if len(free) > tried && r.solve(free, taken, lo, hi) {
			return true
		}
		if tried = len(free); lo == 0 && hi == all {
			return false
		}
	}
	return false
}

// window lists the buffers inside sections [lo, hi), in ascending order, and as
// obstacles those that cross its borders. A buffer that crosses them and is not put
// back yet is no obstacle.
func (r *repairs) window(lo, hi int32) (free []int32, taken []obstacle) {
	in := r.j.in
	end, _ := slices.BinarySearch(in.lo, hi)
	for b := int32(0); b < int32(end); b++ {
		if b%windowRun == 0 && r.before[b/windowRun] <= lo {
			b += windowRun - 1
			continue
		}
		if in.hi[b] <= lo {
			continue
		}
		if in.lo[b] >= lo && in.hi[b] <= hi && in.matesOf(b) == nil {
			free = append(free, b)
		} else if x := r.off[b]; x != notPlaced {
			taken = append(taken, obstacle{max(in.lo[b], lo) - lo, min(in.hi[b], hi) - lo, span{x, x + in.size[b]}})
		}
	}
	slices.SortFunc(taken, func(x, y obstacle) int { return cmp.Compare(x.at.lo, y.at.lo) })
	return free, taken
}

// solve moves the free buffers of a window under the ceiling.
func (r *repairs) solve(free []int32, taken []obstacle, lo, hi int32) bool {
	e := newExact(r.j.in.within(free, lo, hi))
	e.setObstacles(taken)
	e.maxLooks = min(oneWindowLooks, r.looks)
	v := e.decide(r.ceiling, windowNodesPer*int64(len(free)), r.j.stopped)
	r.looks -= e.looks + int64(len(free))*int64(len(free)+len(taken))
	if v != fits {
		return false
	}
	for i, b := range free {
		r.off[b] = e.best[i]
	}
	return true
}

// within is the instance of some buffers that live inside sections [lo, hi). It keeps
// these sections, since the obstacles may be others in each.
func (in *instance) within(members []int32, lo, hi int32) *instance {
	own := &instance{n: len(members), unit: in.unit, buffers: len(members), sections: int(hi - lo), load: make([]int64, hi-lo)}
	for _, b := range members {
		own.start, own.end = append(own.start, in.start[b]), append(own.end, in.end[b])
		own.size = append(own.size, in.size[b])
		own.lo, own.hi = append(own.lo, in.lo[b]-lo), append(own.hi, in.hi[b]-lo)
		for s := in.lo[b] - lo; s < in.hi[b]-lo; s++ {
			own.load[s] += in.size[b]
		}
	}
	for s, l := range own.load {
		if l > own.bound {
			own.bound, own.peak = l, int32(s)
		}
	}
	own.setCrests()
	return own
}
