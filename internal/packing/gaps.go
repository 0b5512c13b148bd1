package packing

import (
	"fmt"
	"math"
)

// Gap is a time within the live range of a buffer in which it is not live: its
// bytes are free for others from From up to To, and then the buffer is back at
// the same offset. A place on a circle, filled near the end of one round and
// emptied early in the next, is a buffer with a gap on a line.
//
// The heuristics see each piece between two gaps as a buffer of its own, and
// keep the pieces of a buffer, its mates, at one offset. The load counts pieces,
// so the lower bound stays one; the exact search does not know mates and takes
// no part in placing them.
type Gap struct {
	Buffer   int // index into Problem.Buffers
	From, To Time
}

// splitAtGaps splits the buffers of p at its gaps. of says which buffer of the
// problem each piece belongs to; nil where there are no gaps.
func splitAtGaps(p *Problem) (buffers []Buffer, of []int32, err error) {
	if len(p.Gaps) == 0 {
		return p.Buffers, nil, nil
	}
	if len(p.Gaps) > maxBuffers-len(p.Buffers) {
		return nil, nil, &InputError{Where: "gaps", Problem: fmt.Sprintf("expected at most %d buffers and gaps, found %d", maxBuffers, len(p.Gaps)+len(p.Buffers))}
	}
	if err := checkGaps(p); err != nil {
		return nil, nil, err
	}
	next := p.Gaps
	for i, b := range p.Buffers {
		for ; len(next) > 0 && next[0].Buffer == i; next = next[1:] {
			buffers, of = append(buffers, Buffer{Start: b.Start, End: next[0].From, Size: b.Size}), append(of, int32(i))
			b.Start = next[0].To
		}
		buffers, of = append(buffers, b), append(of, int32(i))
	}
	return buffers, of, nil
}

// checkGaps refuses gaps that are not in the order of their buffers and times,
// each within its buffer's live range and with a piece on both sides.
func checkGaps(p *Problem) error {
	last := Gap{Buffer: -1}
	for i, g := range p.Gaps {
		at := Time(math.MinInt64)
		if g.Buffer == last.Buffer {
			at = last.To
		}
		problem := ""
		switch {
		case g.Buffer < max(last.Buffer, 0) || g.Buffer >= len(p.Buffers):
			problem = fmt.Sprintf("expected a buffer from %d to %d, found %d", max(last.Buffer, 0), len(p.Buffers)-1, g.Buffer)
		case g.From <= max(at, p.Buffers[g.Buffer].Start), g.To <= g.From, g.To >= p.Buffers[g.Buffer].End:
			b := p.Buffers[g.Buffer]
			problem = fmt.Sprintf("expected a time within [%d, %d), after the gap before, found [%d, %d)", b.Start, b.End, g.From, g.To)
		}
		if problem != "" {
			return &InputError{Where: fmt.Sprintf("gap %d", i), Problem: problem}
		}
		last = g
	}
	return nil
}

// join notes the mates of each piece, where of says whose pieces they are.
func (in *instance) setMates(of []int32) {
	if of == nil {
		return
	}
	whole := map[int32][]int32{}
	for b := range int32(in.n) {
		o := of[in.origin[b]]
		whole[o] = append(whole[o], b)
		in.origin[b] = o
	}
	in.mates = make([][]int32, in.n)
	for b, o := range in.origin {
		if all := whole[o]; len(all) > 1 {
			in.mates[b] = all
		}
	}
}

// matesOf is every piece of the buffer that b is a piece of, b included; nil
// where b is the whole buffer.
func (in *instance) matesOf(b int32) []int32 {
	if in.mates == nil {
		return nil
	}
	return in.mates[b]
}

// lowestOf is the least offset at or above from that is free throughout the
// life of b and of its mates.
func (t *occupancy) lowestOf(in *instance, b int32, from int64) int64 {
	mates := in.matesOf(b)
	if mates == nil {
		return t.lowest(in.lo[b], in.hi[b], in.size[b], from)
	}
	// Each piece moves the offset up until a whole round leaves it alone.
	x := from
	for calm := 0; calm < len(mates); {
		for _, m := range mates {
			y := t.lowest(in.lo[m], in.hi[m], in.size[m], x)
			if calm++; y != x {
				x, calm = y, 1
			}
		}
	}
	return x
}
