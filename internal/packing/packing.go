// Package packing places buffers with known live ranges in one arena: offline
// dynamic storage allocation. Given sizes and half-open live ranges it finds
// offsets so that no two buffers that are live at once overlap, and makes the
// makespan (the largest offset + size) small. The max load is the lower bound.
//
// A portfolio of greedy rules runs first; where it leaves a gap, searches with
// a fixed amount of work refine it. The result depends on the problem alone,
// not on the number of cores (docs/packing.md).
package packing

import (
	"context"
	"runtime"
	"time"

	"github.com/stplan/stplan/internal/fusion"
)

// Time is an instant. Only the order of instants matters to validity.
type Time = fusion.Time

// Bytes is a size or an offset in bytes.
type Bytes = fusion.Bytes

// Buffer is one allocation to place, live in [Start, End).
type Buffer = fusion.Buffer

// Problem is a set of buffers to place. Sizes are rounded up to Alignment
// first, and offsets are multiples of it; 0 means 1.
type Problem struct {
	Buffers   []Buffer
	Alignment Bytes
	Gaps      []Gap // by Buffer, then From; mostly none
}

// Placement is one answer to a Problem.
type Placement struct {
	// Offsets holds the offset of each buffer of the problem, in its order.
	Offsets []Bytes
	// Makespan is the largest offset + rounded size.
	Makespan Bytes
	// MaxLoad is a lower bound that anyone can check: so many bytes
	// are live at one instant.
	MaxLoad Bound
	// LowerBound is what no placement can be under: the max load, or more where
	// the exact search has ruled more out.
	LowerBound Bytes
	// Witness proves what LowerBound has above the load, or part of it. It is nil
	// where no proof is short enough.
	Witness *Witness
	// Heuristic names the rule or search that found it.
	Heuristic string
	// TimeLimitHit says that Options.TimeLimit cut the search short. Without it
	// the same problem always gets the same placement.
	TimeLimitHit bool
}

// Bound is the load at one instant, which no placement can be under.
type Bound struct {
	Load Bytes
	At   Time // the earliest instant with that load; 0 in an empty problem
}

// Options bound the work of Pack. The zero value is ready to use.
type Options struct {
	// Capacity ends the search as soon as the makespan is not above it, in
	// bytes; 0 asks for as few bytes as possible.
	Capacity Bytes
	// TimeLimit ends the search after that long; 0 is no limit. The first rule
	// always finishes.
	TimeLimit time.Duration
	// Workers is how many goroutines search; 0 means GOMAXPROCS. It changes the
	// time and never the result.
	Workers int
	// Progress, if set, is told how many of total steps are done and the best
	// makespan so far. Calls do not overlap.
	Progress func(done, total int, best Bytes)
}

// Pack places the buffers of p. It returns an *InputError for a problem it
// refuses, a *CapacityError together with the best placement if opt.Capacity
// was not reached, ctx's error if cancelled, and a *BugError if its own result
// does not pass Validate.
//
// Problems with more than fuseAbove buffers, and without gaps, are packed through
// fusion (fused.go).
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

// packPlain packs p as it stands, without fusion, within the given work. It
// returns errNotBelow if no rule got below work.below, else what Pack does.
func packPlain(ctx context.Context, p *Problem, opt Options, work work) (Placement, error) {
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
	if err := Validate(p, pl); err != nil {
		return Placement{}, &BugError{Heuristic: pl.Heuristic, Err: err}
	}
	return pl, withinCapacity(pl, opt)
}

// withinCapacity is a *CapacityError if pl is larger than asked for.
func withinCapacity(pl Placement, opt Options) error {
	if opt.Capacity > 0 && pl.Makespan > opt.Capacity {
		return &CapacityError{Capacity: opt.Capacity, Best: pl.Makespan, LowerBound: pl.LowerBound}
	}
	return nil
}
