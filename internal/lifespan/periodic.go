package lifespan

import (
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// Periodic is a recording's steady state: a prologue that runs once, and after
// it passes of bodies that follow one another for ever. docs/steady-state.md
// has the model.
type Periodic struct {
	// Cut and End bound the recorded passes: the prologue is [0, Cut), the
	// passes cover [Cut, End), and what comes after belongs to none.
	Cut, End trace.Time
	Bodies   []Body // alternatives, in order of first appearance
	Passes   []Pass // recorded passes, in order
	// Prologue has the buffers that begin before Cut, in Timeline order.
	Prologue []PrologueSlot
	// Cells are the places that cross the seam, in order of their leaving slots.
	Cells []Cell
	// StrayBytes is the most that the strays of one pass hold, aligned.
	StrayBytes trace.Bytes
}

// Cell is a place for what is live when a pass begins.
type Cell struct {
	Size trace.Bytes // aligned, the largest of the cell's slots
}

// PrologueSlot is a buffer of the prologue. Its times are the recording's.
type PrologueSlot struct {
	Buffer   int32 // index into Timeline.Buffers
	Resident bool  // its place is never reused
	Cell     int32 // that it leaves its content in; -1 for none
	// RequestedEnd is at most Cut, and Cut where the slot is resident or
	// leaves. CompletedEnd may be later: Cut + t is time t of the first body,
	// up to its length.
	RequestedEnd, CompletedEnd trace.Time
}

// Body is one steady iteration. Its time is the ordinal of its allocation
// slots: slot i starts at i, and what is freed after slot i-1 and before slot i
// ends at i.
type Body struct {
	Length      int // allocation slots
	Occurrences int // recorded passes
	// Interlude says that the body leaves every cell as it finds it, filled
	// throughout: it has no slots in cells. The first body is none.
	Interlude bool
	// Entering are the cells that are filled when the body begins, by cell.
	Entering []Slot
	Slots    []Slot // Slots[i] is allocation slot i
}

// Slot is a place in a body: an allocation, or the content of a cell that the
// body finds and frees.
type Slot struct {
	// Start is 0 for an entering slot. RequestedEnd is at most the body's
	// length, and equal to it where the slot leaves. CompletedEnd may be later:
	// length + t is time t of the following pass, up to twice the length. Each
	// end is the latest of the recorded passes.
	Start, RequestedEnd, CompletedEnd int
	// Size is the envelope, aligned: the largest of all passes, and in a cell
	// the cell's. Requested and Least are the largest and the smallest
	// requested size.
	Size, Requested, Least trace.Bytes
	Stream                 uint64
	Occurrences            int   // recorded passes that had it
	Cell                   int32 // that it enters from or leaves in; -1 for none
	Stray                  bool  // outlives its pass without being in a cell: has no place
}

// Pass is one recorded steady iteration. It ends where the next begins.
type Pass struct {
	First trace.Time // the event it begins with
	Body  int
	// Present has a bit for every allocation slot of the body, 64 a word, the
	// lowest first: the i-th allocation of the pass is the slot of the i-th bit
	// that is set.
	Present []uint64
}

// leastPasses is how many passes show a steady state: that something repeats
// takes two.
const leastPasses = 2

// FindPeriodic aligns the steady iterations of a recording, so that each of
// their allocations is known as a slot of a body, and says what crosses from
// one pass to the next. end decides which of a buffer's two ends does that. ok
// is whether p is not nil; where it is nil, why says what the recording lacks.
//
// What swaps places from one iteration to the next, such as outputs that are
// held until the next ones exist, repeats only every second iteration. Where
// there is much of it and enough is recorded, two iterations become one body.
func FindPeriodic(tl *Timeline, it Iterations, end End) (p *Periodic, why string) {
	p, why = findPeriodic(tl, it, end)
	if p == nil || p.StrayBytes <= tl.PeakAllocated.Bytes/strayShare {
		return p, why
	}
	if q, _ := findPeriodic(tl, it.pairs(), end); q != nil && q.StrayBytes <= p.StrayBytes/2 {
		return q, ""
	}
	return p, ""
}

// strayShare is the share of the peak, as a divisor, that may be strays before
// two iterations are tried as one.
const strayShare = 1024

// pairs takes two steady iterations for one each, the last two and those before
// them.
func (it Iterations) pairs() Iterations {
	first := it.Count - it.SteadyCount + it.SteadyCount%2
	both := Iterations{Starts: slices.Clone(it.Starts[:first]), SteadyStart: it.Starts[first], SteadyCount: it.SteadyCount / 2, Source: it.Source}
	for i := first; i <= it.Count; i += 2 {
		both.Starts = append(both.Starts, it.Starts[i])
	}
	both.Count = len(both.Starts) - 1
	return both
}

func findPeriodic(tl *Timeline, it Iterations, end End) (p *Periodic, why string) {
	if it.SteadyCount < leastPasses {
		return nil, fmt.Sprintf("%d steady iterations of %d, expected at least %d", it.SteadyCount, it.Count, leastPasses)
	}
	m := mergeIterations(tl, it)
	r, why := chooseCut(tl, m, end)
	if r == nil {
		return nil, why
	}
	bodies := alternatives(r)
	if bodies, why = dropLonely(r, bodies); why != "" {
		return nil, why
	}
	return classify(tl, r, bodies, end), ""
}
