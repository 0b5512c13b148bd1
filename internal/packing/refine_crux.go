package packing

import "slices"

// crux packs exactly what is hard and the rest by rule. Where memory is
// scarcest, often at dozens of instants with not a byte to spare, everything
// has to interlock, and a rule that is right at one of these instants is wrong
// at another. Yet few sections come near the peak. Alone with the buffers that
// live in them, the exact search needs little more than one descent: the peaks
// are neighbours now, and what happens between two of them is out of the way.
// All other buffers live where there is room, and first fit finds it.
//
// This is the oldest advice for bin packing and its relatives, the large first,
// and minimalloc's, the total first, taken to the letter: the search decides
// about the crux before anything else is placed. How near to the peak it
// reaches is not known beforehand: too little, and the rest does not fit; too
// much, and the search gets lost. All of cruxShares are tried side by side.
//
// The ceiling is the target first, and then halfway between the highest that
// failed and the best makespan, until that is a matter of the smallest buffers
// only: these are never part of the crux.
func crux(s *search, best layout) layout {
	small := poolSize(s.in)
	c := newBottlenecks(s.in, small)
	low, ceiling, failures := s.target, s.target, 0
	for range min(cruxPlacements/s.in.n, cruxRounds) {
		if s.finished(best) || best.makespan-low <= small || failures == cruxFailures || s.ctx.Err() != nil {
			break
		}
		found, ok := s.decide(contest{
			tasks:  len(c),
			target: ceiling,
			known:  best.makespan - 1,
			run:    func(i int, j *job) (layout, bool) { return c[i].attempt(j, ceiling) },
		})
		failures++
		if ok {
			best, failures = found, 0
		}
		if best.makespan > ceiling {
			low = ceiling + 1
		}
		ceiling = low + (best.makespan-1-low)/2
	}
	return best
}

// cruxShares are how far below the peak, as divisors of the lower bound, the
// load of a section may be for its buffers to be part of the crux.
var cruxShares = []int64{256, 128, 64, 32, 16, 1024, 4096}

// The work of crux: so many ceilings, fewer where the rest is long to place and
// no more after so many in a row without gain; so many buffers in a crux; and
// for each attempt so many nodes a buffer, and looks in all.
const (
	cruxRounds     = 5
	cruxPlacements = 300_000
	cruxFailures   = 3
	cruxBuffers    = 1 << 12
	cruxNodesPer   = 12
	cruxLooks      = 1 << 24
)

// cruxFills are the orders that first fit tries for the rest.
var cruxFills = []order{byCrestSize, bySize}

// hard is one crux: the buffers above the pool of the smallest ones that live
// in a section with nearly the max load.
type bottleneck struct {
	in      *instance // of these buffers alone
	members []int32   // what they are in the whole instance, ascending
}

// newCruxes finds the different ones among cruxShares, of buffers larger than
// small.
func newBottlenecks(in *instance, small int64) []bottleneck {
	var cruxes []bottleneck
	for _, share := range cruxShares {
		var members []int32
		for b := range int32(in.n) {
			if in.size[b] > small && in.matesOf(b) == nil && in.crest[b] >= in.bound-in.bound/share {
				members = append(members, b)
			}
		}
		known := slices.ContainsFunc(cruxes, func(h bottleneck) bool { return len(h.members) == len(members) })
		if len(members) > 0 && len(members) <= cruxBuffers && !known {
			cruxes = append(cruxes, bottleneck{in.only(members), members})
		}
	}
	return cruxes
}

// only is the instance of some buffers, listed in ascending order, by
// themselves: buffer i of it is members[i].
func (in *instance) only(members []int32) *instance {
	own := &instance{n: len(members), unit: in.unit, buffers: len(members)}
	for i, b := range members {
		own.origin = append(own.origin, int32(i))
		own.start, own.end = append(own.start, in.start[b]), append(own.end, in.end[b])
		own.size = append(own.size, in.size[b])
		own.byEnd = append(own.byEnd, int32(i))
	}
	own.sortEnds()
	own.cutSections()
	own.setCrests()
	return own
}

// attempt looks for a layout under the ceiling. The crux gets no more of it
// than leaves the pool what it takes up beside the crux at the peak.
func (h bottleneck) attempt(j *job, ceiling int64) (best layout, ok bool) {
	e := newExact(h.in)
	e.maxLooks = cruxLooks
	if e.decide(ceiling-(j.in.bound-h.in.bound), cruxNodesPer*int64(h.in.n), j.stopped) != fits {
		return layout{}, false
	}
	for _, o := range cruxFills {
		l, filled := h.fill(j, e.best, o)
		if filled && (!ok || l.makespan < best.makespan) {
			l.heuristic = "crux(" + e.byOrder.String() + "," + o.name + ")"
			best, ok = l, true
		}
		if ok && best.makespan <= ceiling {
			break
		}
	}
	return best, ok
}

// fill adds everything that is not of the crux by first fit.
func (h bottleneck) fill(j *job, crux []int64, rest order) (layout, bool) {
	off := make([]int64, j.in.n)
	for b := range off {
		off[b] = notPlaced
	}
	for i, b := range h.members {
		off[b] = crux[i]
	}
	seq := slices.Clone(h.members)
	for _, b := range rest.sorted(j.in) {
		if off[b] == notPlaced {
			seq = append(seq, b)
		}
	}
	return place(j, seq, func(t *occupancy, b int32) int64 {
		if off[b] != notPlaced {
			return off[b]
		}
		return t.lowestOf(j.in, b, 0)
	})
}
