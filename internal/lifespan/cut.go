package lifespan

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// rotation is the merged iterations cut into passes. The cut may be at another place than
// the boundary at which the iterations were found.
type rotation struct {
	// first has one entry more than there are passes: pass j allocates buffers
	// [first[j], first[j+1]), and begins with the first of them.
	first []int32
	end   trace.Time // of the last pass
	width int        // number of elements of the merged sequence
	// rank is, for each allocation of the passes, its position in the merged sequence,
	// counted from the cut on.
	rank []int32
	// weak is the hash of stream and lifetime class of each element, by rank.
	weak []uint64
	// looped says that passes are alike though they differ in the rounds of a loop, and apart that
	// they are not alike then.
	looped, apart bool
	// interlude says that the last pass is an interlude.
	interlude bool
}

// steps is the number of passes without an interlude.
func (r *rotation) steps() int {
	if r.interlude {
		return r.passes() - 1
	}
	return r.passes()
}

func (r *rotation) passes() int { return len(r.first) - 1 }

// at is the rank of a buffer that a pass allocates.
func (r *rotation) at(buffer int32) int32 { return r.rank[buffer-r.first[0]] }

// lawPasses is the number of passes that show how sizes vary: a law of the runtime goes through
// three points (match_laws.c).
const lawPasses = 3

// crossShare is the share of the peak that has to stop crossing for a cut to be worth a pass, if
// fewer than lawPasses are left, or to be at an element that some iterations lack; and what may cross more if that leaves
// episodes in one piece. In grpo's first four steps 8 KiB would be worth a pass, of 7.8 GiB.
const crossShare = 1. / 1024

// entireShare is the divisor of the sum of the squares of the lengths of passes that another cut has to add. An evaluation
// as long as a step that is cut in the middle adds a third to it if it is left in one piece, and the first or the last pass by itself a thousandth.
const entireShare = 64

// chooseCut cuts the iterations at the element at which the fewest bytes cross from one
// pass to the next. It is one that all iterations have, so that the
// cut is the same place in each of them, unless another spares crossShare of the peak. A cut in the middle of an iteration makes a pass
// fewer. If that leaves fewer than lawPasses, it has to save crossShare of the peak. Buffers that live beyond the last iteration do
// not count. entire is a cut at which hardly more bytes cross, and which leaves long passes longer and short ones shorter: the
// first one may lie in the middle of an evaluation. It is nil if there is none. If r is nil, why says what is missing.
func chooseCut(tl *Timeline, m *merged, end End) (r, entire *rotation, why string) {
	c := newCuts(tl, m)
	common, all := c.common(), c.all()
	if len(common) == 0 {
		return nil, nil, fmt.Sprintf("the %d steady iterations have no allocation in common", m.iterations())
	}
	load := crossing(tl, end, tl.eventOf(m.starts[m.iterations()]))
	best := c.best(common, load, fewerBytes)
	if best.position < 0 {
		return nil, nil, fmt.Sprintf("%d steady iterations give fewer than %d whole passes", m.iterations(), leastPasses)
	}
	if other := c.best(all, load, fewerBytes); other.bytes <= best.bytes-c.worth {
		best = other
	}
	most := best.bytes + c.worth
	longer := func(a, b cut) bool { return a.bytes <= most && (b.bytes > most || a.squares > b.squares) }
	if other := c.best(all, load, longer); other.passes >= best.passes && other.squares-best.squares > best.squares/entireShare {
		entire = c.cut(other.position, common[0])
	}
	return c.cut(best.position, common[0]), entire, ""
}

// cut cuts the iterations at a position, and looks for an interlude. If the cut lies in the middle of an iteration, the interlude that follows
// the last iteration may not follow a whole pass. Then the cut is at the first position instead.
func (c *cuts) cut(position, first int32) *rotation {
	r := c.rotate(position)
	if !addInterlude(c.tl, r) && c.passes(c.at(first)) == c.m.iterations() {
		if whole := c.rotate(first); addInterlude(c.tl, whole) {
			return whole
		}
	}
	return r
}

// eventOf is the time at which buffer i begins. For one past the last it is the end of
// the recording.
func (tl *Timeline) eventOf(i int32) trace.Time {
	if int(i) < len(tl.Buffers) {
		return tl.Buffers[i].Start
	}
	return tl.Events
}

// crossing is, for each event, the bytes that are live before and after it. Buffers that
// end after limit, and residents, do not count.
func crossing(tl *Timeline, end End, limit trace.Time) Profile {
	p := make(Profile, tl.Events+2)
	for i := range tl.Buffers {
		if b := &tl.Buffers[i]; b.Until(end) <= limit && !b.Resident {
			p[b.Start+1] += b.Size
			p[b.Until(end)] -= b.Size
		}
	}
	p.accumulate()
	return p
}

// cuts are the places at which passes can begin: before any element of the merged sequence. Where an iteration lacks the element, its
// pass begins with the next one that it has.
type cuts struct {
	tl    *Timeline
	m     *merged
	ranks []int32     // of each element, its position in the merged sequence
	worth trace.Bytes // crossShare of the peak
	// What follows the last iteration begins as iteration like does: the first alike
	// allocations are the same. A cut within them makes one more pass.
	like, alike int32
}

func newCuts(tl *Timeline, m *merged) *cuts {
	c := &cuts{tl: tl, m: m, ranks: make([]int32, len(m.tokens)), worth: trace.Bytes(crossShare * float64(tl.PeakAllocated.Bytes))}
	for i, e := range m.order {
		c.ranks[e] = int32(i)
	}
	for i := range m.iterations() {
		if n := c.follows(m.starts[i], m.starts[i+1]); n >= c.alike {
			c.like, c.alike = int32(i), n
		}
	}
	return c
}

// common are the positions of the elements that all iterations have.
func (c *cuts) common() (at []int32) {
	for i, e := range c.m.order {
		if int(c.m.counts[e]) == c.m.iterations() {
			at = append(at, int32(i))
		}
	}
	return at
}

// all are all positions.
func (c *cuts) all() []int32 {
	at := make([]int32, len(c.m.order))
	for i := range at {
		at[i] = int32(i)
	}
	return at
}

// rank is the position of a buffer's element.
func (c *cuts) rank(buffer int32) int32 { return c.ranks[c.m.at(buffer)] }

// at is the buffer that each iteration has at a position, or behind it. It is that of the next iteration if it has none.
func (c *cuts) at(position int32) []int32 {
	m := c.m
	at := make([]int32, m.iterations())
	for i := range at {
		at[i] = m.starts[i] + int32(sort.Search(int(m.starts[i+1]-m.starts[i]), func(k int) bool { return c.rank(m.starts[i]+int32(k)) >= position }))
	}
	return at
}

// cut is a place at which passes may begin.
type cut struct {
	position int32       // -1 for none
	passes   int         // whole ones that it leaves
	bytes    trace.Bytes // that cross, and what a pass fewer costs
	squares  int64       // sum of the squares of the lengths of the passes between the iterations' cuts
}

// fewerBytes says whether fewer bytes cross at a cut than at another.
func fewerBytes(a, b cut) bool { return a.bytes < b.bytes }

// best is the best cut of those at some positions, in ascending order, the first one of equals. There is none if none leaves enough passes.
func (c *cuts) best(positions []int32, load Profile, better func(a, b cut) bool) cut {
	m := c.m
	best := cut{position: -1, bytes: math.MaxInt64}
	at := slices.Clone(m.starts[:m.iterations()])
	for _, p := range positions {
		here := cut{position: p}
		for i := range at {
			for at[i] < m.starts[i+1] && c.rank(at[i]) < p {
				at[i]++
			}
			if at[i] == m.starts[i+1] {
				return best
			}
			here.bytes = max(here.bytes, load[c.tl.Buffers[at[i]].Start])
			if i > 0 {
				here.squares += int64(at[i]-at[i-1]) * int64(at[i]-at[i-1])
			}
		}
		here.passes = c.passes(at)
		if here.passes < leastPasses {
			continue
		}
		if here.passes < min(lawPasses, m.iterations()) {
			here.bytes += c.worth
		}
		if better(here, best) {
			best = here
		}
	}
	return best
}

// follows counts the allocations after the last iteration that have the same stream and
// size as those of the buffers [from, to), up to the first that differs.
func (c *cuts) follows(from, to int32) int32 {
	n, tail := int32(0), c.m.starts[c.m.iterations()]
	for from+n < to && int(tail+n) < len(c.tl.Buffers) {
		x, y := &c.tl.Buffers[from+n], &c.tl.Buffers[tail+n]
		if x.Stream != y.Stream || x.Size != y.Size {
			break
		}
		n++
	}
	return n
}

// passes is the number of whole passes if iterations are cut at these buffers.
func (c *cuts) passes(at []int32) int {
	if at[c.like]-c.m.starts[c.like] <= c.alike {
		return c.m.iterations()
	}
	return c.m.iterations() - 1
}

// rotate cuts the iterations at a position.
func (c *cuts) rotate(position int32) *rotation {
	m, at := c.m, c.at(position)
	n := c.passes(at)
	r := &rotation{width: len(m.order), first: slices.Clone(at[:n])}
	known := m.starts[m.iterations()] // what follows was not merged
	if n < m.iterations() {
		known = at[n]
	}
	for i := range m.order {
		r.weak = append(r.weak, m.tokens[m.order[(int(position)+i)%r.width]].weak)
	}
	rank := func(buffer int32) int32 {
		return (c.rank(buffer) - position + int32(r.width)) % int32(r.width)
	}
	for b := r.first[0]; b < known; b++ {
		r.rank = append(r.rank, rank(b))
	}
	if n == m.iterations() {
		for b := m.starts[c.like]; b < at[c.like]; b++ {
			r.rank = append(r.rank, rank(b))
		}
	}
	r.first = append(r.first, r.first[0]+int32(len(r.rank)))
	r.end = c.tl.eventOf(r.first[n])
	return r
}
