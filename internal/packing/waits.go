package packing

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
)

// Use is how the device uses a buffer: on which stream, and until when.
type Use struct {
	// Stream is the stream on which the buffer was allocated. A buffer of another
	// stream that takes over its bytes has to wait for all that any stream had been
	// given when the buffer ended.
	Stream int32
	// Settled is when the last use of the buffer had ended in the recording. A buffer
	// of the same stream that takes over its bytes before then has to wait for that use.
	// A value at or before End has no effect.
	Settled Time
	// Pinned keeps the buffer at its offset.
	Pinned bool
}

// Wait is a reuse that the device has to order, for one or both of two reasons.
type Wait struct {
	Reuse
	CrossStream bool // the two buffers are on different streams
	Pending     bool // the later one starts before the earlier one has settled
}

// Waits lists the reuses of a valid placement that need a wait, in the order of Reuses.
// uses has one element for each buffer.
func Waits(p *Problem, uses []Use, pl Placement) []Wait {
	var out []Wait
	for _, r := range Reuses(p, pl) {
		w := Wait{
			Reuse:       r,
			CrossStream: uses[r.Earlier].Stream != uses[r.Later].Stream,
			Pending:     uses[r.Earlier].Settled > p.Buffers[r.Later].Start,
		}
		if w.CrossStream || w.Pending {
			out = append(out, w)
		}
	}
	return out
}

// FewerWaits looks for a placement with fewer waits than pl, a valid placement of
// p, and no larger makespan. It counts the waits between streams first, then all waits.
// Of equals, waitCost.less says which is better. It returns pl itself if it finds
// nothing better.
//
// It is a local search (mover) from pl and from the layouts of Alternatives. Its work is
// bounded by counting: without a time limit the result depends on p, uses and pl alone,
// and with one, TimeLimitHit says whether it ended the search. Of opt it uses Workers
// and TimeLimit. It refuses gaps, since the owner of a byte during a gap is not known.
// The errors are those of Pack.
func FewerWaits(ctx context.Context, p *Problem, uses []Use, pl Placement, opt Options) (Placement, error) {
	if len(uses) != len(p.Buffers) {
		return Placement{}, &InputError{Where: "uses", Problem: fmt.Sprintf("expected %d, one per buffer, found %d", len(p.Buffers), len(uses))}
	}
	if len(p.Gaps) > 0 {
		return Placement{}, &InputError{Where: "gaps", Problem: fmt.Sprintf("expected none if waits are counted, found %d", len(p.Gaps))}
	}
	if len(Waits(p, uses, pl)) == 0 {
		return pl, ctx.Err()
	}
	in, err := newInstance(p)
	if err != nil {
		return Placement{}, err
	}
	limited, cancel := ctx, func() {}
	if opt.TimeLimit > 0 {
		limited, cancel = context.WithTimeout(ctx, opt.TimeLimit)
	}
	defer cancel()
	best := leastWaits(limited, in, in.usesOf(uses), in.layoutOf(pl), opt)
	if err := ctx.Err(); err != nil {
		return Placement{}, err
	}
	out, moved := pl, in.placement(best)
	out.Offsets, out.Makespan = moved.Offsets, moved.Makespan
	out.TimeLimitHit = pl.TimeLimitHit || limited.Err() != nil
	if err := Validate(p, out); err != nil {
		return Placement{}, &BugError{Heuristic: "waits", Err: err}
	}
	return out, nil
}

// usesOf is uses in the instance's numbering. Buffers with mates are pinned.
func (in *instance) usesOf(uses []Use) []Use {
	own := make([]Use, in.n)
	for i, o := range in.origin {
		own[i] = uses[o]
		own[i].Pinned = own[i].Pinned || in.matesOf(int32(i)) != nil
	}
	return own
}

func streamsOf(uses []Use) []int32 {
	streams := make([]int32, len(uses))
	for i, u := range uses {
		streams[i] = u.Stream
	}
	return streams
}

// layoutOf is pl in the instance's numbering and units.
func (in *instance) layoutOf(pl Placement) layout {
	l := layout{off: make([]int64, in.n), makespan: int64(pl.Makespan / in.unit), heuristic: pl.Heuristic}
	for i, o := range in.origin {
		l.off[i] = int64(pl.Offsets[o] / in.unit)
	}
	return l
}

// leastWaits searches from every start side by side, unless a buffer is pinned, and then
// goes on with the layout of the least cost, the first among equals. When ctx ends, it returns early, with a
// valid layout that costs no more than the known one.
func leastWaits(ctx context.Context, in *instance, uses []Use, known layout, opt Options) layout {
	starts := []layout{known}
	if !slices.ContainsFunc(uses, func(u Use) bool { return u.Pinned }) {
		starts = startsUnder(ctx, in, streamsOf(uses), known, opt)
	}
	movers := make([]*mover, len(starts))
	var noWait atomic.Int64 // lowest start that has no wait left: those after it cannot win
	noWait.Store(math.MaxInt64)
	each(opt, len(starts), func(i int) {
		if noWait.Load() < int64(i) {
			return
		}
		movers[i] = newMover(in, uses, starts[i], known.makespan)
		movers[i].minimize(ctx)
		if movers[i].cost.count == 0 {
			noWait.Store(min(noWait.Load(), int64(i)))
		}
	})
	best := movers[0]
	for _, m := range movers[1:] {
		if m != nil && m.cost.less(best.cost) {
			best = m
		}
	}
	best.retryCrossFirst(ctx)
	return best.layout()
}
