package packing

import (
	"fmt"
	"math"
)

// Gap is a time within the live range of a buffer in which it is not live: other
// buffers may use its bytes in [From, To), and then it is back at the same offset.
// Plans that repeat have such buffers. One that is filled near the end of an iteration
// and emptied early in the next lives across the end of the cycle; with time cut open
// there, it is a buffer with a gap.
//
// The heuristics see each piece between two gaps as a buffer of its own, and keep all
// pieces of a buffer, its mates, at one offset. The load counts pieces, so the max load
// is still a lower bound. The exact search cannot keep mates together, so it does not
// place them.
type Gap struct {
	Buffer   int // index into Problem.Buffers
	From, To Time
}

// splitAtGaps splits the buffers of p at its gaps. of is the index of each piece's
// buffer in the problem; nil if there are no gaps.
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

// checkGaps refuses gaps that are not in the order of their buffers and times, or not
// within their buffer's live range with a piece of it on both sides.
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

// setMates sets the mates of each piece; of is what splitAtGaps returns.
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

// matesOf is all pieces of the buffer that b is a piece of, b included; nil if b is the
// whole buffer.
func (in *instance) matesOf(b int32) []int32 {
	if in.mates == nil {
		return nil
	}
	return in.mates[b]
}

// lowestOf is the lowest offset at or above from that is free throughout the lives of b
// and its mates.
func (t *occupancy) lowestOf(in *instance, b int32, from int64) int64 {
	mates := in.matesOf(b)
	if mates == nil {
		return t.lowest(in.lo[b], in.hi[b], in.size[b], from)
	}
	// Each piece moves the offset up, until one round over the pieces leaves it.
	x := from
	for unchanged := 0; unchanged < len(mates); {
		for _, m := range mates {
			y := t.lowest(in.lo[m], in.hi[m], in.size[m], x)
			if unchanged++; y != x {
				x, unchanged = y, 1
			}
		}
	}
	return x
}
