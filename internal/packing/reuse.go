package packing

import (
	"cmp"
	"slices"
)

// Reuse says that buffer Later takes over bytes whose last owner was buffer Earlier.
// Both are indices into Problem.Buffers.
type Reuse struct {
	Earlier, Later int32
	Bytes          Bytes // number of bytes taken over
}

// Reuses lists every reuse of a valid placement, sorted by Later, then Earlier, each
// once. Bytes that no buffer owned before are in no reuse. O((n + r) log n) for r
// reuses.
func Reuses(p *Problem, pl Placement) []Reuse {
	if len(p.Buffers) == 0 {
		return nil
	}
	unit := max(p.Alignment, 1)
	byStart := make([]int32, len(p.Buffers))
	for i := range byStart {
		byStart[i] = int32(i)
	}
	slices.SortStableFunc(byStart, func(a, b int32) int { return cmp.Compare(p.Buffers[a].Start, p.Buffers[b].Start) })

	owners := newOwnerMap(int64(pl.Makespan))
	var out []Reuse
	var was []piece
	for _, later := range byStart {
		x := pl.Offsets[later]
		was = owners.set(int64(x), int64(x+roundUp(p.Buffers[later].Size, unit)), later, was[:0])
		slices.SortFunc(was, func(a, b piece) int { return cmp.Compare(a.own, b.own) })
		for i, w := range was {
			switch {
			case w.own == nobody:
			case i > 0 && was[i-1].own == w.own:
				out[len(out)-1].Bytes += Bytes(w.hi - w.lo)
			default:
				out = append(out, Reuse{Earlier: w.own, Later: later, Bytes: Bytes(w.hi - w.lo)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Reuse) int {
		return cmp.Or(cmp.Compare(a.Later, b.Later), cmp.Compare(a.Earlier, b.Earlier))
	})
	return out
}
