package packing

import "slices"

// Witness is a lower bound above the load that can be checked without trusting
// the search: the buffers it lists need so many bytes though no others were
// there. It is small enough to try everything.
type Witness struct {
	Bytes   Bytes
	Buffers []int // of the problem, ascending
}

// The work of looking for a witness: no more buffers in it than this, so many
// looks in all, and so many nodes to refute what is left without some buffers.
// A refutation that takes more is not worth passing on.
const (
	WitnessBuffers = 24
	witnessLooks   = 1 << 28
	witnessNodes   = 1 << 14
)

// witness shrinks the instance to a few buffers that do not fit under what the
// exact search has ruled out, or under the load at least. It is nil where the
// load is the bound, and where what it finds is too large.
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

// core is some buffers that do not fit under the ceiling, none of which can be
// left out unless the work runs out first: a deletion filter, over halves,
// quarters and so on down to single buffers. What lives where there is room goes
// first.
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

// refuted says that the buffers cannot lie under the ceiling.
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
