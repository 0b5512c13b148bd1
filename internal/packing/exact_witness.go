package packing

import "slices"

// Witness proves a lower bound above the load: a few buffers that need Bytes by
// themselves. They are so few that trying all their layouts checks the bound without
// trust in the exact search.
type Witness struct {
	Bytes   Bytes // no placement of Buffers alone has a smaller makespan
	Buffers []int // indices into Problem.Buffers, ascending
}

// WitnessBuffers is the largest witness, in buffers. It keeps the check cheap: verify
// tries every layout of them.
const WitnessBuffers = 24

// witnessLooks bounds the search for a witness, in looks of the exact search. It is an
// eighth of solveLooks, one to two seconds.
const witnessLooks = 1 << 28

// witnessNodes bounds each refutation on the way to a witness, in nodes of the exact
// search. verify has to repeat the last one, so one that takes more is of no use.
const witnessNodes = 1 << 14

// witness shrinks the instance to a few buffers that do not fit under the highest
// ceiling that the exact search has ruled out, or else under the load. It is nil if the
// lower bound is the load, or if the buffers found are too many.
func (s *search) witness() *Witness {
	looks := int64(witnessLooks)
	for _, ceiling := range []int64{s.proven - 1, s.in.bound} {
		if ceiling < s.in.bound || s.ctx.Err() != nil {
			break
		}
		if core := s.core(ceiling, &looks); len(core) <= WitnessBuffers {
			w := &Witness{Bytes: Bytes(ceiling+1) * s.in.unit}
			for _, b := range core {
				w.Buffers = append(w.Buffers, int(s.in.origin[b]))
			}
			slices.Sort(w.Buffers)
			return w
		}
	}
	return nil
}

// core is a set of buffers that do not fit under the ceiling. It is found with a
// deletion filter, which leaves out halves of the buffers, quarters and so on down to
// single ones as long as the rest is still refuted; those at the lowest loads go first.
// Unless the work runs out, none of the buffers can be left out.
func (s *search) core(ceiling int64, looks *int64) []int32 {
	core := byCrestSize.sorted(s.in)
	for chunk := (len(core) + 1) / 2; ; chunk = (chunk + 1) / 2 {
		for end := len(core); end > 0; end -= chunk {
			without := slices.Concat(core[:max(0, end-chunk)], core[end:])
			if s.refuted(without, ceiling, looks) {
				core = without
			}
		}
		if chunk == 1 {
			return core
		}
	}
}

// refuted reports whether the exact search proves that the buffers do not fit under the
// ceiling.
func (s *search) refuted(buffers []int32, ceiling int64, looks *int64) bool {
	if len(buffers) == 0 || *looks <= 0 {
		return false
	}
	members := slices.Clone(buffers)
	slices.Sort(members)
	e := newExact(s.in.only(members))
	e.maxLooks = *looks
	v := e.decide(ceiling, witnessNodes, func() bool { return s.ctx.Err() != nil })
	*looks -= e.looks + int64(len(members))
	return v == infeasible
}
