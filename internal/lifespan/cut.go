package lifespan

import (
	"fmt"
	"math"

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

// passShare is the share of the peak that has to stop crossing for a cut to be worth a pass, if
// fewer than lawPasses are left. In grpo's first four steps 8 KiB would do it, of 7.8 GiB.
const passShare = 1. / 1024

// chooseCut cuts the iterations at the element at which the fewest bytes cross from one
// pass to the next. Only elements that all iterations have are considered, so that the
// cut is the same place in each of them. A cut in the middle of an iteration makes a pass
// fewer. If that leaves fewer than lawPasses, it has to save passShare of the peak. Buffers that live beyond the last iteration do
// not count. If the cut lies in the middle of an iteration, the interlude that follows
// the last iteration may not follow a whole pass; then the first of the elements is the
// cut. If r is nil, why says what is missing.
func chooseCut(tl *Timeline, m *merged, end End) (r *rotation, why string) {
	c := newCuts(tl, m)
	if len(c.at[0]) == 0 {
		return nil, fmt.Sprintf("the %d steady iterations have no allocation in common", m.iterations())
	}
	load := crossing(tl, end, tl.eventOf(m.starts[m.iterations()]))
	worth := trace.Bytes(passShare * float64(tl.PeakAllocated.Bytes))
	best, least := -1, trace.Bytes(math.MaxInt64)
	for q := range c.at[0] {
		n := c.passes(q)
		if n < leastPasses {
			continue
		}
		var most trace.Bytes
		for _, at := range c.at {
			most = max(most, load[tl.Buffers[at[q]].Start])
		}
		if n < min(lawPasses, m.iterations()) {
			most += worth
		}
		if most < least {
			best, least = q, most
		}
	}
	if best < 0 {
		return nil, fmt.Sprintf("%d steady iterations give fewer than %d whole passes", m.iterations(), leastPasses)
	}
	r = c.rotate(best)
	if !addInterlude(tl, r) && c.passes(0) == m.iterations() {
		if whole := c.rotate(0); addInterlude(tl, whole) {
			r = whole
		}
	}
	return r, ""
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

// cuts are the places at which passes can begin: the elements that all iterations have.
type cuts struct {
	tl *Timeline
	m  *merged
	at [][]int32 // at[i][q] is the buffer that iteration i has at place q
	// What follows the last iteration begins as iteration like does: the first alike
	// allocations are the same. A cut within them makes one more pass.
	like, alike int32
}

func newCuts(tl *Timeline, m *merged) *cuts {
	c := &cuts{tl: tl, m: m, at: make([][]int32, m.iterations())}
	for i := range c.at {
		for b := m.starts[i]; b < m.starts[i+1]; b++ {
			if int(m.counts[m.at(b)]) == m.iterations() {
				c.at[i] = append(c.at[i], b)
			}
		}
		if n := c.follows(m.starts[i], m.starts[i+1]); n >= c.alike {
			c.like, c.alike = int32(i), n
		}
	}
	return c
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

// passes is the number of whole passes if they are cut at place q.
func (c *cuts) passes(q int) int {
	if c.at[c.like][q]-c.m.starts[c.like] <= c.alike {
		return c.m.iterations()
	}
	return c.m.iterations() - 1
}

// rotate cuts the iterations at place q.
func (c *cuts) rotate(q int) *rotation {
	m, n := c.m, c.passes(q)
	r := &rotation{width: len(m.order)}
	for i := range n {
		r.first = append(r.first, c.at[i][q])
	}
	known := m.starts[m.iterations()] // what follows was not merged
	if n < m.iterations() {
		known = c.at[n][q]
	}
	ranks := make([]int32, len(m.tokens))
	for i, e := range m.order {
		ranks[e] = int32(i)
	}
	from := ranks[m.at(r.first[0])]
	for i := range m.order {
		r.weak = append(r.weak, m.tokens[m.order[(int(from)+i)%r.width]].weak)
	}
	rank := func(buffer int32) int32 {
		return (ranks[m.at(buffer)] - from + int32(r.width)) % int32(r.width)
	}
	for b := r.first[0]; b < known; b++ {
		r.rank = append(r.rank, rank(b))
	}
	if n == m.iterations() {
		for b := m.starts[c.like]; b < c.at[c.like][q]; b++ {
			r.rank = append(r.rank, rank(b))
		}
	}
	r.first = append(r.first, r.first[0]+int32(len(r.rank)))
	r.end = c.tl.eventOf(r.first[n])
	return r
}
