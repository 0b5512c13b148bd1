package packing

import (
	"cmp"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/splitmix"
)

// eject looks for a layout under a cap with ejection chains. It inserts one buffer
// after the other. A buffer without a free offset goes to the offset where the buffers
// in the way cost least to eject, and these are inserted again before any new one. The
// buffers inserted so far never overlap. A buffer that ejects others becomes more
// expensive to eject itself, so the search does not run in circles (adaptive weights,
// as in Nagata and Bräysy's vehicle routing, Operations Research Letters 37, 2009).
//
// After a success the next cap is the target again, after a failure it leaves more of
// the gap. Several orders try the same cap side by side with a new seed at each cap;
// the first in the list that succeeds wins.
func eject(s *search, best layout) layout {
	e, ok := newEjection(s.in)
	if !ok {
		return best
	}
	share := int64(0) // eighths of the gap that the next cap leaves
	for round := range ejectRounds {
		if best.makespan <= s.target || s.ctx.Err() != nil {
			break
		}
		limit := s.target + (best.makespan-s.target)*share/8
		found, ok := s.decide(contest{
			tasks:  len(ejectStarts),
			target: best.makespan - 1,
			known:  best.makespan - 1,
			run: func(i int, j *job) (layout, bool) {
				l, ok := e.attempt(j, limit, ejectStarts[i], uint64(round))
				l.heuristic = "eject(" + ejectStarts[i].order.name + ")"
				return l, ok && l.makespan < best.makespan
			},
		})
		switch {
		case ok:
			best, share = found, 0
		case share == 0:
			share = 2
		default:
			share += 2
		}
		if share >= 8 {
			break
		}
	}
	return best
}

// ejectRounds bounds eject, in caps. Four failures in a row end it before.
const ejectRounds = 8

// ejectLooks bounds one attempt at a cap, in looks at a buffer that overlaps the one
// being inserted. An attempt that uses all of it takes 0.15 to 0.45 s of processor time
// on recorded pipelines of 15,000 to 23,000 buffers.
const ejectLooks = 15_000_000

// ejectLooksPer bounds one attempt on instances of fewer than 750 buffers, in looks for
// each buffer of the instance.
const ejectLooksPer = 20_000

// ejectPairs is the largest number of overlapping pairs of buffers that eject keeps in
// memory, at 8 bytes each. The instance is left to the other refinements if it has
// more. If it has more than an eighth, the residents are not searched but packed into a
// base block.
const ejectPairs = 30_000_000

// cheapestLooks is what comparing offsets costs for each placed buffer that overlaps,
// in looks: it is sorted and summed up twice.
const cheapestLooks = 16

// ejectPool is the largest share of the lower bound that the smallest buffers may take
// up at any time. They are left out of the searches and fill holes at the end, at a
// cost of at most 0.01 % of the load.
const ejectPool = 1e-4

// ejectStart is one way to run an attempt.
type ejectStart struct {
	order order
	// high sends short-lived buffers to the highest free offset, all others to the
	// lowest.
	high bool
}

// ejectStarts are tried side by side at each cap.
var ejectStarts = []ejectStart{
	{byCrestLife, false}, {byStart, true}, {byCrestSize, false}, {byStart, false},
}

// ejection is the part of the search that all attempts share.
type ejection struct {
	in      *instance
	members []bool    // of each buffer: whether the search places it
	pool    []int32   // the smallest buffers, by crest and size
	overlap [][]int32 // of each member: the members that overlap it in time
	floor   []int64   // of each buffer: the height of the base block during its life
	base    []int64   // of each buffer: its offset in the base block, -1 outside
	median  int64     // median life, in sections
}

// newEjection returns false if the instance has more than ejectPairs pairs.
func newEjection(in *instance) (*ejection, bool) {
	e := &ejection{in: in, members: make([]bool, in.n), base: make([]int64, in.n), floor: make([]int64, in.n), median: medianLife(in)}
	small := poolSize(in)
	for b := range in.n {
		e.members[b] = in.size[b] > small && in.matesOf(int32(b)) == nil
		e.base[b] = -1
	}
	if e.pairs() > ejectPairs/8 {
		e.buildBase()
	}
	if e.pairs() > ejectPairs {
		return nil, false
	}
	for _, b := range byCrestSize.sorted(in) {
		if !e.members[b] && e.base[b] < 0 {
			e.pool = append(e.pool, b)
		}
	}
	e.findOverlaps()
	return e, true
}

// poolSize is the largest size, in units, for which all buffers up to it together never
// take up more than ejectPool of the lower bound.
func poolSize(in *instance) int64 {
	sizes := slices.Clone(in.size)
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	share := int64(float64(in.bound) * ejectPool)
	load := make([]int64, in.sections+1)
	fits := func(small int64) bool {
		clear(load)
		for b := range in.n {
			if in.size[b] <= small {
				load[in.lo[b]] += in.size[b]
				load[in.hi[b]] -= in.size[b]
			}
		}
		var live int64
		for _, d := range load {
			if live += d; live > share {
				return false
			}
		}
		return true
	}
	k, _ := slices.BinarySearchFunc(sizes, share, func(size, _ int64) int {
		if fits(size) {
			return -1
		}
		return 1
	})
	if k == 0 {
		return 0
	}
	return sizes[k-1]
}

// buildBase stacks the residents in a block at the bottom, in the order of their
// starts. Every other buffer stays above the residents that start before it ends.
func (e *ejection) buildBase() {
	in := e.in
	height := make([]int64, in.sections+1)
	var top int64
	s := int32(0)
	for b := range int32(in.n) {
		for ; s < in.lo[b]; s++ {
			height[s] = top
		}
		if in.resident(b) && in.matesOf(b) == nil {
			e.base[b], e.members[b] = top, false
			top += in.size[b]
		}
	}
	for ; int(s) < len(height); s++ {
		height[s] = top
	}
	for b := range in.n {
		e.floor[b] = height[in.hi[b]-1]
	}
}

// pairs counts the overlapping pairs of members.
func (e *ejection) pairs() int64 {
	begun := make([]int64, e.in.sections+1) // of each section: members that start before it
	for b := range e.in.n {
		if e.members[b] {
			begun[e.in.lo[b]+1]++
		}
	}
	for s := range e.in.sections {
		begun[s+1] += begun[s]
	}
	var n int64
	for b := range e.in.n {
		if e.members[b] {
			n += begun[e.in.hi[b]] - begun[e.in.lo[b]+1]
		}
	}
	return n
}

// findOverlaps lists the overlapping members of each member.
func (e *ejection) findOverlaps() {
	in := e.in
	e.overlap = make([][]int32, in.n)
	for b := range int32(in.n) {
		for c := b + 1; e.members[b] && int(c) < in.n && in.lo[c] < in.hi[b]; c++ {
			if e.members[c] {
				e.overlap[b] = append(e.overlap[b], c)
				e.overlap[c] = append(e.overlap[c], b)
			}
		}
	}
}

// attempt is one search under a cap.
type attempt struct {
	*ejection
	cap         int64
	high        bool
	off         []int64   // of each buffer: its offset, -1 if it is not placed
	ejectCost   []float64 // of each buffer: the cost of ejecting it
	baseCost    []float64 // of each buffer: size · √life, by which ejectCost grows
	rank        []int32   // of each buffer: its place in the order of insertion
	ejected     rankHeap  // ranks of the ejected buffers, inserted before new ones
	looks       int64
	randomState uint64

	blocks []block // scratch: the placed buffers that overlap the current one, by lo
	ends   []block // scratch: the same by hi
}

// block is a placed buffer that overlaps the current one in time. sum is the eject cost
// of it and of all blocks before it in its list.
type block struct {
	lo, hi int64
	sum    float64
	b      int32
}

// attempt inserts every member in the order of start. It returns false if a buffer does
// not fit, the looks are used up or the contest is decided.
func (e *ejection) attempt(j *job, limit int64, start ejectStart, seed uint64) (layout, bool) {
	in := e.in
	seq := start.order.sorted(in)
	a := &attempt{ejection: e, cap: limit, high: start.high, off: make([]int64, in.n), ejectCost: make([]float64, in.n),
		baseCost: make([]float64, in.n), rank: make([]int32, in.n), randomState: seed}
	for r, b := range seq {
		a.off[b], a.rank[b] = -1, int32(r)
		a.baseCost[b] = float64(in.size[b]) * math.Sqrt(in.lifeKey(b))
		a.ejectCost[b] = a.baseCost[b]
	}
	step, budget := 0, min(ejectLooks, ejectLooksPer*int64(in.n))
	for _, b := range seq {
		if !e.members[b] {
			continue
		}
		for next := b; ; next = seq[a.ejected.pop()] {
			step++
			if a.looks > budget || step%stopEvery == 0 && j.stopped() || !a.insert(next) {
				return layout{}, false
			}
			if len(a.ejected) == 0 {
				break
			}
		}
	}
	return e.complete(j, a.off)
}

// insert places b and ejects the buffers in the way. It fails only if b does not fit
// between its floor and the cap.
func (a *attempt) insert(b int32) bool {
	size, floor := a.in.size[b], a.floor[b]
	if floor+size > a.cap {
		return false
	}
	a.listBlocks(b)
	x := a.hole(floor, size, a.high && a.in.life(b) < a.median)
	if x < 0 {
		x = a.cheapest(floor, size)
		a.ejectCost[b] += a.baseCost[b]
		for _, o := range a.blocks {
			if o.lo < x+size && x < o.hi {
				a.off[o.b] = -1
				a.ejected.push(a.rank[o.b])
			}
		}
	}
	a.off[b] = x
	return true
}

// listBlocks lists the placed buffers that overlap b in time.
func (a *attempt) listBlocks(b int32) {
	a.blocks = a.blocks[:0]
	for _, c := range a.overlap[b] {
		if x := a.off[c]; x >= 0 {
			a.blocks = append(a.blocks, block{lo: x, hi: x + a.in.size[c], b: c})
		}
	}
	a.looks += int64(len(a.overlap[b])) + 8
	slices.SortFunc(a.blocks, func(x, y block) int { return cmp.Or(cmp.Compare(x.lo, y.lo), cmp.Compare(x.b, y.b)) })
}

// hole is the lowest or highest free offset from floor up, or -1 if there is none.
func (a *attempt) hole(floor, size int64, high bool) int64 {
	x, found := floor, int64(-1)
	for _, o := range a.blocks {
		if o.lo-x >= size {
			if !high {
				return x
			}
			found = o.lo - size
		}
		x = max(x, o.hi)
	}
	if a.cap-x < size {
		return found
	}
	if high {
		return a.cap - size
	}
	return x
}

// cheapest is the offset at which the buffers in the way cost least to eject. As the
// offset grows, the cost falls only when a block has ended and rises only when one
// begins. So the floor, the ends of the blocks and the offsets just below a block are
// enough. Among equal costs it draws one at random.
func (a *attempt) cheapest(floor, size int64) int64 {
	a.looks += cheapestLooks * int64(len(a.blocks))
	a.ends = append(a.ends[:0], a.blocks...)
	slices.SortFunc(a.ends, func(x, y block) int { return cmp.Or(cmp.Compare(x.hi, y.hi), cmp.Compare(x.b, y.b)) })
	sum := 0.0
	for i := range a.blocks {
		sum += a.ejectCost[a.blocks[i].b]
		a.blocks[i].sum = sum
	}
	sum = 0
	for i := range a.ends {
		sum += a.ejectCost[a.ends[i].b]
		a.ends[i].sum = sum
	}
	best, least, ties := floor, a.costAt(floor, size), uint64(1)
	try := func(x int64) {
		if x < floor || x+size > a.cap {
			return
		}
		c := a.costAt(x, size)
		if c < least {
			best, least, ties = x, c, 1
		} else if c == least {
			if ties++; splitmix.Next(&a.randomState)%ties == 0 {
				best = x
			}
		}
	}
	for _, o := range a.blocks {
		try(o.hi)
		try(o.lo - size)
	}
	try(a.cap - size)
	return best
}

// costAt is the cost of ejecting every block in [x, x+size).
func (a *attempt) costAt(x, size int64) float64 {
	begun, _ := slices.BinarySearchFunc(a.blocks, x+size, func(o block, y int64) int { return cmp.Compare(o.lo, y) })
	ended, _ := slices.BinarySearchFunc(a.ends, x, func(o block, y int64) int {
		if o.hi <= y {
			return -1
		}
		return 1
	})
	c := 0.0
	if begun > 0 {
		c = a.blocks[begun-1].sum
	}
	if ended > 0 {
		c -= a.ends[ended-1].sum
	}
	return c
}

// complete adds the base block, and the pool by first fit.
func (e *ejection) complete(j *job, off []int64) (layout, bool) {
	var placed []int32
	for b := range int32(e.in.n) {
		if e.base[b] >= 0 {
			off[b] = e.base[b]
		}
		if off[b] >= 0 {
			placed = append(placed, b)
		}
	}
	return place(j, append(placed, e.pool...), func(t *occupancy, b int32) int64 {
		if off[b] >= 0 {
			return off[b]
		}
		return t.lowestOf(e.in, b, 0)
	})
}

// rankHeap is a binary heap of ranks, the least first.
type rankHeap []int32

func (h *rankHeap) push(r int32) {
	s := append(*h, r)
	i := len(s) - 1
	for ; i > 0 && s[(i-1)/2] > r; i = (i - 1) / 2 {
		s[i] = s[(i-1)/2]
	}
	s[i] = r
	*h = s
}

func (h *rankHeap) pop() int32 {
	s := *h
	least, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	i := 0
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1] < s[child] {
			child++
		}
		if s[child] >= last {
			break
		}
		s[i] = s[child]
		i = child
	}
	if len(s) > 0 {
		s[i] = last
	}
	*h = s
	return least
}
