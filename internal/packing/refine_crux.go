package packing

import "slices"

// crux runs the exact search on the buffers of the bottleneck, and places all other
// buffers by first fit. The bottleneck is the sections whose load is close to the
// max load. A recorded pipeline often reaches its max load exactly at a dozen
// instants or more. No byte is free at them, so a placement that is right for one is
// often wrong for another, and rules, which place one buffer after the other, miss
// that. But few sections are close to the max load. Their buffers alone are a small
// instance, in which these sections follow each other directly, and the exact search
// solves it with little backtracking. The other buffers live where memory is free,
// so that first fit finds room for them.
//
// Placing the largest buffers first is the usual advice for bin packing, and placing
// those at the highest loads first is minimalloc's ("total"). crux goes further: it
// solves the bottleneck before it places any other buffer.
//
// How close to the max load a section has to be is not known beforehand. If the
// bottleneck has too few buffers, the others do not fit; if it has too many, the exact
// search does not finish. So crux tries all of cruxShares side by side.
//
// The first ceiling is the target. Each next one is halfway between the highest ceiling
// that failed and the best makespan. crux ends when that interval is not larger than
// the smallest buffers (poolSize), which no bottleneck holds.
func crux(s *search, best layout) layout {
	small := poolSize(s.in)
	tries := newBottlenecks(s.in, small)
	low, ceiling, failures := s.target, s.target, 0
	rounds, looks := min(cruxPlacements/s.in.n, cruxRounds), int64(cruxLooks)
	if rounds == 1 {
		looks *= 2
	}
	for range rounds {
		if s.finished(best) || best.makespan-low <= small || failures == cruxFailures || s.ctx.Err() != nil {
			break
		}
		found, ok := s.decide(contest{
			tasks:  len(tries),
			target: ceiling,
			known:  best.makespan - 1,
			run:    func(i int, j *job) (layout, bool) { return tries[i].attempt(j, ceiling, looks) },
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

// cruxShares are the sizes of bottleneck that are tried, most promising first: a buffer
// is in the bottleneck if the largest load during its life is below the max load by at
// most the max load divided by the share.
var cruxShares = []int64{256, 128, 64, 32, 16, 1024, 4096, 512}

// cruxRounds bounds crux, in ceilings. Each one after the first halves the interval
// that is undecided.
const cruxRounds = 5

// cruxPlacements bounds crux on large instances, in buffers placed at one share: with n
// buffers it tries at most cruxPlacements / n ceilings, since first fit places all n at
// each. That leaves all five ceilings up to 60,000 buffers.
const cruxPlacements = 300_000

// cruxFailures ends crux after that many ceilings in a row without a smaller makespan.
const cruxFailures = 3

// cruxBuffers is the largest bottleneck, in buffers. The memory and time of the exact
// search grow with its square; those of the recorded pipelines that help have 1,000 to
// 4,000.
const cruxBuffers = 1 << 12

// cruxNodesPer bounds the exact search of one attempt, in nodes a buffer of the
// bottleneck. A descent without backtracking takes one, and most searches that find a
// layout need little more.
const cruxNodesPer = 12

// cruxLooks bounds the exact search of one attempt, in looks: 0.15 to 1.4 s of
// processor time on the bottlenecks of recorded pipelines. It is twice as much if
// cruxPlacements leaves one ceiling: no other one makes use of what the first leaves.
const cruxLooks = 1 << 24

// cruxFills are the orders in which first fit places the other buffers. The second is
// tried if the first ends above the ceiling.
var cruxFills = []order{byCrestSize, bySize}

// bottleneck is the buffers of one attempt: those above the smallest sizes that live in
// a section with nearly the max load.
type bottleneck struct {
	in      *instance // these buffers alone
	members []int32   // their numbers in the whole instance, ascending
}

// newBottlenecks is the different bottlenecks of cruxShares, without buffers up to size
// small and without buffers that have mates.
func newBottlenecks(in *instance, small int64) []bottleneck {
	var found []bottleneck
	for _, share := range cruxShares {
		var members []int32
		for b := range int32(in.n) {
			if in.size[b] > small && in.matesOf(b) == nil && in.crest[b] >= in.bound-in.bound/share {
				members = append(members, b)
			}
		}
		known := slices.ContainsFunc(found, func(n bottleneck) bool { return len(n.members) == len(members) })
		if len(members) > 0 && len(members) <= cruxBuffers && !known {
			found = append(found, bottleneck{in.only(members), members})
		}
	}
	return found
}

// only is the instance of some buffers alone. members lists them in ascending order:
// buffer i of the result is members[i].
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

// attempt looks for a layout under the ceiling, in so many looks. The ceiling of the exact search is
// lower by the difference of the two max loads: the room that the buffers left out of
// the bottleneck need at the peak.
func (n bottleneck) attempt(j *job, ceiling, looks int64) (best layout, ok bool) {
	e := newExact(n.in)
	e.maxLooks = looks
	if e.decide(ceiling-(j.in.bound-n.in.bound), cruxNodesPer*int64(n.in.n), j.stopped) != fits {
		return layout{}, false
	}
	for _, o := range cruxFills {
		l, filled := n.fill(j, e.best, o)
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

// fill places all other buffers by first fit, in the given order. offsets are those of
// the bottleneck's buffers.
func (n bottleneck) fill(j *job, offsets []int64, others order) (layout, bool) {
	off := make([]int64, j.in.n)
	for b := range off {
		off[b] = notPlaced
	}
	for i, b := range n.members {
		off[b] = offsets[i]
	}
	seq := slices.Clone(n.members)
	for _, b := range others.sorted(j.in) {
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
