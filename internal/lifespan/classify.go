package lifespan

import (
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// kind is what happens to a buffer at the end of its pass. All allocations with one rank
// have the same kind.
type kind uint8

const (
	ordinary kind = iota // lives in one pass
	leaving              // crosses into the next pass, in a cell
	stray                // outlives its pass without being in a cell
)

// classifier makes a Periodic from passes. r has the rank of each of their allocations.
type classifier struct {
	tl     *Timeline
	r      *rotation
	end    End
	bodies []int // of each pass
	// below[x][k] is the number of slots of body x with a rank below k. It translates a
	// time of one body into a time of another.
	below [][]int32
	kinds []kind  // by rank
	cells []int32 // by rank: the cell that it leaves its buffer in, -1 if it does not leave
	out   *Periodic
}

func classify(tl *Timeline, r *rotation, bodies []int, end End) *Periodic {
	c := &classifier{tl: tl, r: r, end: end, bodies: bodies}
	c.out = &Periodic{Cut: tl.eventOf(r.first[0]), End: r.end}
	c.makeBodies()
	c.classify()
	c.fillSlots()
	c.fillPrologue()
	c.fillEntering()
	c.fitCells()
	return c.out
}

// makeBodies numbers the slots of each body and fills in which of them each pass has.
func (c *classifier) makeBodies() {
	has := make([][]bool, slices.Max(c.bodies)+1)
	c.out.Bodies = make([]Body, len(has))
	for x := range has {
		has[x] = make([]bool, c.r.width)
	}
	for j, x := range c.bodies {
		c.out.Bodies[x].Occurrences++
		for _, k := range c.r.pass(j) {
			has[x][k] = true
		}
	}
	c.out.Bodies[len(has)-1].Interlude = c.r.interlude
	for x := range has {
		below := make([]int32, c.r.width+1)
		for k, yes := range has[x] {
			below[k+1] = below[k]
			if yes {
				below[k+1]++
			}
		}
		c.below = append(c.below, below)
		c.out.Bodies[x].Length = int(below[c.r.width])
	}
	for j, x := range c.bodies {
		p := Pass{First: c.tl.eventOf(c.r.first[j]), Body: x, Present: make([]uint64, (c.out.Bodies[x].Length+63)/64)}
		for _, k := range c.r.pass(j) {
			slot := c.below[x][k]
			p.Present[slot/64] |= 1 << (slot % 64)
		}
		c.out.Passes = append(c.out.Passes, p)
	}
}

// place returns the pass that a time lies in: -1 for the prologue, the number of passes
// for what comes after the last. rank is that of the last allocation before the time; it
// has no meaning for those two.
func (c *classifier) place(t trace.Time) (pass int, rank int32) {
	n := c.r.passes()
	before := int32(c.tl.bufferAt(t)) - 1
	switch {
	case t >= c.tl.Events || before >= c.r.first[n]:
		return n, 0
	case before < c.r.first[0]:
		return -1, 0
	}
	return sort.Search(n, func(j int) bool { return c.r.first[j+1] > before }), c.r.at(before)
}

// timeIn translates a time of the recording into the time of pass j's body. Results from
// the body's length to twice the length lie in the next pass. If the recording does not
// show when a buffer of the last pass is freed, the result is the end of the pass. So it
// is for a buffer of the last step that is freed in an interlude: it might as well have
// been freed before.
func (c *classifier) timeIn(j int, t trace.Time) int {
	x := c.bodies[j]
	length := c.out.Bodies[x].Length
	switch pass, rank := c.place(t); {
	case pass < j:
		return 0
	case pass == j:
		return int(c.below[x][rank+1])
	case pass == c.r.passes() && j == pass-1, pass >= c.r.steps() && j == c.r.steps()-1:
		return length
	case pass == j+1:
		return length + int(c.below[x][rank+1])
	}
	return 2 * length
}

// classify finds the kind of every rank. A rank leaves in a cell if every body has it and
// the next pass frees the buffer before it allocates its successor. If the successor came
// first, the two would have to swap places from pass to pass, so the rank is a stray. So
// is one that outlives the next pass as well. A buffer that only the last step leaves
// behind may just be freed after the end of the recording: the rank is a stray only if no
// other pass has it. What an interlude allocates ends with it, since no pass follows it.
func (c *classifier) classify() {
	n := c.r.steps()
	leaves, strays, pending := make([]bool, c.r.width), make([]bool, c.r.width), make([]bool, c.r.width)
	for j := range n {
		for b := c.r.first[j]; b < c.r.first[j+1]; b++ {
			pass, freed := c.place(c.tl.Buffers[b].Until(c.end))
			pass = min(pass, n)
			k := c.r.at(b)
			switch {
			case pass-j >= 2 || pass-j == 1 && j < n-1 && freed >= k:
				strays[k] = true
			case pass-j == 1 && j < n-1:
				leaves[k] = true
			case pass-j == 1:
				pending[k] = true
			}
		}
	}
	counts := make([]int, c.r.width)
	for _, k := range c.r.rank {
		counts[k]++
	}
	c.kinds = make([]kind, c.r.width)
	c.cells = make([]int32, c.r.width)
	for k := range c.kinds {
		c.cells[k] = -1
		switch {
		case strays[k] || leaves[k] && !c.inEveryBody(k) || pending[k] && counts[k] == 1:
			c.kinds[k] = stray
		case leaves[k]:
			c.kinds[k] = leaving
			c.cells[k] = int32(len(c.out.Cells))
			c.out.Cells = append(c.out.Cells, Cell{})
		}
	}
}

// inEveryBody says whether all bodies but interludes have a slot with the rank.
func (c *classifier) inEveryBody(rank int) bool {
	for x, below := range c.below {
		if !c.out.Bodies[x].Interlude && below[rank+1] == below[rank] {
			return false
		}
	}
	return true
}
