package lifespan

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/stplan/stplan/internal/trace"
)

// Periodic is a recording's steady state: a prologue that runs once, and after it passes
// of bodies that follow one another for ever. docs/steady-state.md has the model.
type Periodic struct {
	// Cut and End bound the recorded passes: the prologue is [0, Cut), the passes cover
	// [Cut, End), and what comes after belongs to no pass.
	Cut, End trace.Time
	Bodies   []Body // alternatives, in order of first appearance
	Passes   []Pass // recorded passes, in order
	// Prologue has the buffers that begin before Cut, in Timeline order.
	Prologue []PrologueSlot
	// Cells are the places that cross the seam, in the order of their leaving slots.
	Cells []Cell
	// StrayBytes is the largest sum, over the passes, of the aligned bytes of strays.
	StrayBytes trace.Bytes
	// Other is another steady state of the same iterations. If these differ in the rounds of a loop, it knows less of what other
	// numbers of rounds take, and may serve the recorded ones better. If two iterations are one body, it has one
	// body for each, and knows more passes. Otherwise it is nil.
	Other *Periodic
}

// Cell is a place for a buffer that is live when a pass begins.
type Cell struct {
	Size trace.Bytes // aligned, the largest of the cell's slots
}

// PrologueSlot is a buffer of the prologue. Its times are the recording's.
type PrologueSlot struct {
	Buffer int32 // index into Timeline.Buffers
	// Holder is the slot of the prologue whose place it shares, itself if that is its own. Size is the aligned size
	// of the place. Like is the slot of the first pass's body that is the same line of the program, if data decide
	// what that takes and it does not share a place; -1 if there is none.
	Holder, Like int32
	Size         trace.Bytes
	Holds        bool  // others share its place
	Resident     bool  // its place is never reused
	Cell         int32 // the cell that it leaves the prologue in, -1 if it does not
	// RequestedEnd is at most Cut, and equal to Cut if the slot is resident or leaves.
	// CompletedEnd may be later: Cut + t is time t of the first body, up to its length.
	RequestedEnd, CompletedEnd trace.Time
}

// Body is one kind of steady iteration. Its time is the ordinal of its allocation slots:
// slot i starts at i, and what is freed after slot i-1 and before slot i ends at i.
type Body struct {
	Length      int // number of allocation slots
	Occurrences int // number of recorded passes
	// Interlude says that the body leaves every cell filled, as it finds it, and has no
	// slots in cells. The first body is never an interlude.
	Interlude bool
	// Entering are the slots of the cells that are filled when the body begins, by cell.
	Entering []Slot
	Slots    []Slot // Slots[i] is allocation slot i
}

// Slot is a place in a body: an allocation, or the content of a cell that the body finds
// and frees.
type Slot struct {
	// Start is 0 for an entering slot. RequestedEnd is at most the body's length, and
	// equal to it if the slot leaves. CompletedEnd may be later: length + t is time t of
	// the following pass, up to twice the length. Each end is the latest of the recorded
	// passes.
	Start, RequestedEnd, CompletedEnd int
	// Size is the largest aligned size of all passes, or the cell's size if the slot is
	// in a cell. Requested and Least are the largest and the smallest requested size.
	Size, Requested, Least trace.Bytes
	Stream                 uint64
	Occurrences            int   // number of recorded passes that had it
	Cell                   int32 // the cell that it enters from or leaves in, -1 for none
	Stray                  bool  // outlives its pass without being in a cell: has no place
	// Holder is the slot of the body whose place it shares, itself if that is its own. The place of a slot
	// that others share is kept from its start to the last of their ends, and Size is that of the place.
	Holder int
	Holds  bool // others share its place
}

// Pass is one recorded steady iteration. It ends where the next one begins.
type Pass struct {
	First trace.Time // the event it begins with
	Body  int        // index into Periodic.Bodies
	// Present has a bit for every allocation slot of the body, 64 a word, the lowest
	// first: the i-th allocation of the pass is the slot of the i-th bit that is set.
	Present []uint64
}

// leastPasses is the number of passes that it takes to show that something repeats.
const leastPasses = 2

// FindPeriodic aligns the steady iterations of a recording, so that each of their
// allocations becomes a slot of a body, and says what crosses from one pass to the next.
// end picks the end of a buffer that decides whether it crosses. If p is nil, why says
// what the recording lacks.
//
// What swaps places from one iteration to the next, such as outputs that are held until
// the next ones exist, repeats only every second iteration. If there is much of it and
// enough is recorded, two iterations become one body.
func FindPeriodic(tl *Timeline, it Iterations, end End) (p *Periodic, why string) {
	p, why = findPeriodic(tl, it, end)
	if p == nil || p.StrayBytes <= tl.PeakAllocated.Bytes/strayShare {
		return p, why
	}
	q, _ := findPeriodic(tl, it.pairs(), end)
	if q != nil && 2*len(q.Passes)+pairsLose >= len(p.Passes) && q.StrayBytes <= p.StrayBytes/2 && q.largest(tl, end)+q.StrayBytes <= p.largest(tl, end)+p.StrayBytes {
		if q.Other == nil {
			q.Other = p
		}
		return q, ""
	}
	return p, ""
}

// strayShare is the divisor of the peak that strays may hold before FindPeriodic tries
// two iterations as one body. Less is not worth a body of twice the length.
const strayShare = 1024

// pairsLose is how many iterations fewer the passes of pairs may be of: one if their number is odd, and one pair more if pairs are cut in the middle.
// Where they are of fewer, something rare is not among them, such as an evaluation, and has no body.
const pairsLose = 3

// pairs joins the steady iterations two by two, counted back from the last. If their
// number is odd, the first one is not steady any more.
func (it Iterations) pairs() Iterations {
	first := it.Count - it.SteadyCount + it.SteadyCount%2
	both := Iterations{Starts: slices.Clone(it.Starts[:first]), SteadyStart: it.Starts[first], SteadyCount: it.SteadyCount / 2, Source: it.Source, Enough: it.Enough}
	for i := first; i <= it.Count; i += 2 {
		both.Starts = append(both.Starts, it.Starts[i])
	}
	both.Count = len(both.Starts) - 1
	return both
}

const (
	// alignmentCost is the share of the recorded peak that the envelope may take beyond that before the iterations are
	// aligned in other ways too. All recordings of dense jobs and of lengths that vary are far below, those of experts above.
	alignmentCost = 1. / 128
	// manyOptional is the share of optional slots from which on they are as well, unless they are rounds of a loop, and manyBodies the number
	// of bodies: a step, and one with an evaluation, are two.
	manyOptional = 1. / 8
	manyBodies   = 3
)

// findPeriodic aligns the iterations by all bytes and by size. If some slots are optional, it also merges those with episodes last. If what comes of it takes
// much more than was recorded, or has many optional slots or bodies, it also aligns in the other ways. It keeps what costs least.
func findPeriodic(tl *Timeline, it Iterations, end End) (p *Periodic, why string) {
	if it.SteadyCount < leastPasses {
		return nil, fmt.Sprintf("%d steady iterations of %d, expected at least %d", it.SteadyCount, it.Count, leastPasses)
	}
	order, starts := mergeOrder(asRecorded), it.steadyStarts(tl)
	var least cost
	keep := func(t tried, o mergeOrder) {
		if t.p == nil {
			why = t.why
		} else if p == nil || t.cost.less(least) {
			p, order, least = t.p, o, t.cost
		}
	}
	keep(try(tl, it, ways[0], asRecorded, end), asRecorded)
	if p != nil && least.optional > 0 && !slices.Equal(asRecorded(starts), episodesLast(starts)) {
		keep(try(tl, it, ways[0], episodesLast, end), episodesLast)
	}
	if p != nil && !p.costly(tl, end) {
		return p, ""
	}
	others := make([]tried, len(ways)-1)
	var asking sync.Mutex
	over := false
	enough := func() bool {
		asking.Lock()
		defer asking.Unlock()
		over = over || p != nil && it.Enough != nil && it.Enough()
		return over
	}
	concurrently(len(others), func(k int) {
		if !enough() {
			others[k] = try(tl, it, ways[1+k], order, end)
		}
	})
	for _, t := range others {
		keep(t, order)
	}
	if p == nil {
		return nil, why
	}
	return p, ""
}

// tried is what comes of aligning iterations in one way. It has none of these if there was no time for it.
type tried struct {
	p    *Periodic
	cost cost
	why  string // there is no p
}

func try(tl *Timeline, it Iterations, w way, order mergeOrder, end End) (t tried) {
	if t.p, t.why = alignedPeriodic(tl, it, w, order, end); t.p != nil {
		t.cost = t.p.cost(tl, end)
	}
	return t
}

// way is a way to align iterations: what their buffers are read as, and what these are matched by.
type way struct {
	read  reader
	align aligner
}

// ways are in the order in which they are tried. Each of them finds what costs least in some recording, and most of them something that costs much more
// in others (docs/steady-state.md).
var ways = []way{
	{whole(tokenize), align}, {readNearPeak, align},
	{whole(tokenize), alignRatios}, {readNearPeak, alignRatios},
	{whole(tokenize), alignClasses}, {readNearPeak, alignClasses},
}

// cost is what alignments are compared by. The bytes are those of the envelope and of strays.
type cost struct {
	bytes           trace.Bytes
	slots, optional int
}

func (p *Periodic) cost(tl *Timeline, end End) cost {
	slots, optional := p.slots()
	return cost{p.largest(tl, end) + p.StrayBytes, slots, optional}
}

const (
	// slotPower is the power of the number of slots by which an alignment costs more. A run does not find its slots again where passes are
	// matched with parts of others, or have bodies of their own that are known from one pass. A 20th fewer slots are worth 1/500 of the bytes, and half of them 1/36.
	slotPower = 1. / 25
	// optionalCost is how many slots an optional one counts for besides. With 1, steps of 4, 5 and 6 micro-batches that are each known from a few passes
	// would be one body, two thirds of whose slots are optional.
	optionalCost = 4
)

// less says whether one costs less than another.
func (c cost) less(other cost) bool { return c.total() < other.total() }

func (c cost) total() float64 {
	return float64(c.bytes) * math.Pow(float64(c.slots+optionalCost*c.optional), slotPower)
}

// costly says whether the envelope takes much more than was recorded, or many slots are optional.
func (p *Periodic) costly(tl *Timeline, end End) bool {
	slots, optional := p.slots()
	return float64(p.largest(tl, end)) > (1+alignmentCost)*float64(p.PeakRecorded(tl, end).Bytes) ||
		p.Other == nil && float64(optional) > manyOptional*float64(slots) || len(p.Bodies) >= manyBodies
}

// slots counts the allocation slots of all bodies, and those that are optional.
func (p *Periodic) slots() (all, optional int) {
	for _, b := range p.Bodies {
		all += len(b.Slots)
		for i := range b.Slots {
			if b.Slots[i].Occurrences < b.Occurrences {
				optional++
			}
		}
	}
	return all, optional
}

// alignedPeriodic is the steady state of iterations that are aligned in one way.
func alignedPeriodic(tl *Timeline, it Iterations, w way, order mergeOrder, end End) (p *Periodic, why string) {
	r, entire, why := chooseCut(tl, mergeIterations(tl, it, w, order), end)
	if r == nil {
		return nil, why
	}
	p, why = r.classified(tl, end)
	if entire != nil && p != nil {
		if q, _ := entire.classified(tl, end); q != nil && q.cost(tl, end).less(p.cost(tl, end)) {
			p, r = q, entire
		}
	}
	if p == nil || !r.looped {
		return p, why
	}
	least, bodies := p.largest(tl, end), len(p.Bodies)
	r.apart = true
	apart, _ := r.classified(tl, end)
	if apart != nil {
		least = min(least, apart.largest(tl, end))
	}
	cheap := func(p *Periodic) bool { return float64(p.largest(tl, end)) <= float64(least)*(1+roundsCost) }
	if apart != nil && !cheap(p) {
		p = apart
	}
	for loops := (&roundAligner{align: w.align, every: fewRounds}); ; loops.every *= fewRounds {
		if r, _, _ := chooseCut(tl, mergeIterations(tl, it, way{w.read, loops.rounds}, order), end); r != nil {
			if q, _ := r.classified(tl, end); q != nil && len(q.Bodies) <= bodies && cheap(q) {
				q.Other = p
				return q, ""
			}
		}
		if loops.every > loops.longest {
			return p, ""
		}
	}
}

const (
	// roundsCost is the share of the envelope that a body for any number of rounds may cost. What is live
	// where a pass lacks rounds lives until behind them (roundAligner). An inference of four generations
	// for which that was 6.9 % moved 0.8 of what it reserved by its own plan, and nothing by that of its
	// alternatives; GRPO's costs nothing.
	roundsCost = 1. / 64
	// A pass may lack rounds behind every fewRounds-th of them, or, if that costs too much, behind every
	// fewRounds times fewRounds-th, and so on. With 4, 16 and 1000, plans of GRPO serve the same.
	fewRounds = 16
)

// classified is the steady state of the passes of a rotation, which is not changed but for what it
// says of loops.
func (r *rotation) classified(tl *Timeline, end End) (p *Periodic, why string) {
	bodies := alternatives(r)
	passes := *r
	if bodies, why = dropFirst(tl, &passes, bodies); why != "" {
		return nil, why
	}
	return classify(tl, &passes, bodies, end), ""
}

// largest is the largest load of all phases.
func (p *Periodic) largest(tl *Timeline, end End) trace.Bytes {
	var most trace.Bytes
	for _, peak := range p.Envelope(tl, end) {
		most = max(most, peak.Bytes)
	}
	return most
}
