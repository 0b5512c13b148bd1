package lifespan

import (
	"fmt"
	"math"

	"github.com/stplan/stplan/internal/trace"
)

// rotation is the merged iterations cut into passes at another place than
// where the iterations were found.
type rotation struct {
	// first holds one buffer more than there are passes: pass j allocates
	// buffers [first[j], first[j+1]), and begins with the first of them.
	first []int32
	end   trace.Time // of the last pass
	width int        // elements of the merged sequence
	// rank is the place in the merged sequence, from the cut on, of each
	// allocation of the passes.
	rank []int32
	// interlude says that the last pass is one.
	interlude bool
}

// steps is how many passes are no interlude.
func (r *rotation) steps() int {
	if r.interlude {
		return r.passes() - 1
	}
	return r.passes()
}

func (r *rotation) passes() int { return len(r.first) - 1 }

// at is the rank of a buffer of the passes.
func (r *rotation) at(buffer int32) int32 { return r.rank[buffer-r.first[0]] }

// chooseCut looks for the element at which the fewest bytes cross from one
// pass to the next, among those that all iterations have, so that the cut is
// the same place in each of them. What is live for good does not count. Where an
// interlude follows the last iteration but no whole pass, since the cut is
// elsewhere, the first of these elements is the cut.
func chooseCut(tl *Timeline, m *merged, end End) (r *rotation, why string) {
	c := newCuts(tl, m)
	if len(c.at[0]) == 0 {
		return nil, fmt.Sprintf("the %d steady iterations have no allocation in common", m.iterations())
	}
	load := crossing(tl, end, tl.eventOf(m.starts[m.iterations()]))
	best, least := -1, trace.Bytes(math.MaxInt64)
	for q := range c.at[0] {
		if c.passes(q) < leastPasses {
			continue
		}
		var most trace.Bytes
		for _, at := range c.at {
			most = max(most, load[tl.Buffers[at[q]].Start])
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

// eventOf is when buffer i begins; the end of the recording for one past the
// last.
func (tl *Timeline) eventOf(i int32) trace.Time {
	if int(i) < len(tl.Buffers) {
		return tl.Buffers[i].Start
	}
	return tl.Events
}

// crossing is, for each event, what lives before and after it and not beyond
// limit.
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

// cuts are the places that all iterations have.
type cuts struct {
	tl *Timeline
	m  *merged
	at [][]int32 // at[i][q] is the buffer that iteration i has at place q
	// What follows the last iteration begins as iteration like did, for so
	// many allocations: a cut within them makes one more pass.
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

// follows counts how many allocations after the last iteration are as those
// from buffer from on.
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

// passes is how many whole ones there are between cuts at place q.
func (c *cuts) passes(q int) int {
	if c.at[c.like][q]-c.m.starts[c.like] <= c.alike {
		return c.m.iterations()
	}
	return c.m.iterations() - 1
}

// rotate cuts at place q.
func (c *cuts) rotate(q int) *rotation {
	m, n := c.m, c.passes(q)
	r := &rotation{width: len(m.order)}
	for i := range n {
		r.first = append(r.first, c.at[i][q])
	}
	known := m.starts[m.iterations()] // the end of the last pass, but for what is alike
	if n < m.iterations() {
		known = c.at[n][q]
	}
	ranks := make([]int32, len(m.tokens))
	for i, e := range m.order {
		ranks[e] = int32(i)
	}
	from := ranks[m.at(r.first[0])]
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
