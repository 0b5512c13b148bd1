// Package packing places buffers with known live ranges in one arena: offline dynamic
// storage allocation. Given sizes and half-open live ranges it finds offsets so that no
// two buffers that are live at once overlap, and makes the makespan (the largest offset
// + size) small. The max load is the lower bound.
//
// A portfolio of greedy rules runs first. If it leaves a gap, searches with a bounded
// amount of work refine its best layout. The result depends on the problem alone, not
// on the number of cores (docs/packing.md).
package packing

import (
	"context"
	"runtime"
	"time"

	"github.com/stplan/stplan/internal/fusion"
)

// Time is an instant. Whether a placement is valid depends on the order of instants
// alone.
type Time = fusion.Time

// Bytes is a size or an offset in bytes.
type Bytes = fusion.Bytes

// Buffer is one allocation to place, live in [Start, End).
type Buffer = fusion.Buffer

// Problem is a set of buffers to place. Sizes are rounded up to Alignment first, and
// offsets are multiples of it; 0 means 1.
type Problem struct {
	Buffers   []Buffer
	Alignment Bytes
	Gaps      []Gap // sorted by Buffer, then From; most problems have none
}

// Placement is one answer to a Problem.
type Placement struct {
	// Offsets holds the offset of each buffer of the problem, in its order.
	Offsets []Bytes
	// Makespan is the largest offset + rounded size.
	Makespan Bytes
	// MaxLoad is a lower bound of the makespan that is easy to check: the bytes that
	// are live at one instant.
	MaxLoad Bound
	// LowerBound is the largest proven lower bound of the makespan: the max load, or
	// more if the exact search has ruled out more.
	LowerBound Bytes
	// Witness proves a lower bound above the max load, LowerBound itself if possible.
	// It is nil if LowerBound is the max load, or if no proof found is short enough.
	Witness *Witness
	// Heuristic names the rule or search that found the placement.
	Heuristic string
	// TimeLimitHit says that Options.TimeLimit cut the search short. If it is false,
	// the same problem always gets the same placement.
	TimeLimitHit bool
}

// Bound is the load at one instant, a lower bound of every makespan.
type Bound struct {
	Load Bytes
	At   Time // the earliest instant with that load; 0 in an empty problem
}

// Options bound the work of Pack. The zero value is ready to use.
type Options struct {
	// Capacity, in bytes, ends the search as soon as the makespan is at most that; 0
	// asks for the smallest makespan.
	Capacity Bytes
	// Tolerance, in bytes, ends the search as soon as the makespan is at most that much
	// above the max load, if there are more than fuseAbove buffers and the rules that
	// take little time have been tried. Smaller problems are searched to the end, which
	// takes little time too.
	Tolerance Bytes
	// TimeLimit is the time after which the search ends; 0 is no limit. The first rule
	// always finishes.
	TimeLimit time.Duration
	// Workers is the number of goroutines that search; 0 means GOMAXPROCS. It changes
	// the time and never the result.
	Workers int
	// Progress, if not nil, is called with the number of steps done, of total, and the
	// best makespan so far. Calls do not overlap.
	Progress func(done, total int, best Bytes)
}

// Pack places the buffers of p. It returns an *InputError for a problem it refuses, a
// *CapacityError together with the best placement if opt.Capacity was not reached,
// ctx's error if cancelled, and a *BugError if its own result does not pass Validate.
//
// Problems with more than fuseAbove buffers and without gaps are packed through fusion
// (fused.go).
func Pack(ctx context.Context, p *Problem, opt Options) (Placement, error) {
	if opt.Capacity < 0 {
		return Placement{}, &InputError{Where: "capacity", Problem: "expected at least 0 bytes, found " + itoa(opt.Capacity)}
	}
	if opt.Workers <= 0 {
		opt.Workers = runtime.GOMAXPROCS(0)
	}
	if len(p.Buffers) > fuseAbove && len(p.Gaps) == 0 {
		return packFused(ctx, p, opt)
	}
	return packPlain(ctx, p, opt, everything)
}

// packPlain packs p as it stands, without fusion, within the given work. It returns
// errNotBelow if no rule got below work.below. The other errors are those of Pack.
func packPlain(ctx context.Context, p *Problem, opt Options, work work) (Placement, error) {
	pl, err := packUnchecked(ctx, p, opt, work)
	if err != nil {
		return Placement{}, err
	}
	if err := Validate(p, pl); err != nil {
		return Placement{}, &BugError{Heuristic: pl.Heuristic, Err: err}
	}
	return pl, withinCapacity(pl, opt)
}

// packUnchecked is packPlain before its result is validated.
func packUnchecked(ctx context.Context, p *Problem, opt Options, work work) (Placement, error) {
	in, err := newInstance(p)
	if err != nil {
		return Placement{}, err
	}
	s := newSearch(ctx, in, opt, work)
	defer s.cancel()
	best, err := s.run()
	if err != nil {
		return Placement{}, err
	}
	pl := in.placement(best)
	pl.TimeLimitHit, pl.LowerBound = s.timeLimitHit, Bytes(s.proven)*in.unit
	pl.MaxLoad, pl.Witness = in.maxLoad(), s.witness()
	return pl, nil
}

// withinCapacity is a *CapacityError if pl is larger than opt.Capacity.
func withinCapacity(pl Placement, opt Options) error {
	if opt.Capacity > 0 && pl.Makespan > opt.Capacity {
		return &CapacityError{Capacity: opt.Capacity, Best: pl.Makespan, LowerBound: pl.LowerBound}
	}
	return nil
}
