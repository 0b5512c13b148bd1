package packing

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Use is what the device does with a buffer apart from the program: on which
// stream it runs what works on it, and for how long.
type Use struct {
	// Stream is where it was allocated. Another stream can take its bytes over
	// only after it has waited for this one.
	Stream int32
	// Settled is when its last use had ended, in the recording. Who takes its
	// bytes over before waits for that use. Nothing at or before End matters.
	Settled Time
	// Pinned keeps the buffer where it is.
	Pinned bool
}

// Wait is a reuse that the device has to order, for one or both of two reasons.
type Wait struct {
	Reuse
	CrossStream bool // the two buffers are on different streams
	Pending     bool // the later one starts before the earlier one has settled
}

// Waits lists the reuses of a valid placement that need a wait, in the order of
// Reuses. uses has one element for each buffer.
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

// FewerWaits looks for a placement with fewer waits than pl has, a valid
// placement of p, and no larger makespan: fewer waits, then fewer bytes that
// are taken over with one, then more time between the end of the earlier buffer
// and the start of the later one. It returns pl itself where it finds none.
//
// It moves buffers one by one (mover), from pl and from what a few rules make of
// the problem. The work is bounded by counting, so that without a time limit the
// result depends on the problem and pl alone; with one, TimeLimitHit says whether
// it ended the search. Of opt only Workers and TimeLimit matter. Gaps are refused:
// who owns a byte in one is not known here. The errors are those of Pack.
func FewerWaits(ctx context.Context, p *Problem, uses []Use, pl Placement, opt Options) (Placement, error) {
	if len(uses) != len(p.Buffers) {
		return Placement{}, &InputError{Where: "uses", Problem: fmt.Sprintf("expected %d, one per buffer, found %d", len(p.Buffers), len(uses))}
	}
	if len(p.Gaps) > 0 {
		return Placement{}, &InputError{Where: "gaps", Problem: fmt.Sprintf("expected none where waits are counted, found %d", len(p.Gaps))}
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
	out := pl
	out.TimeLimitHit = pl.TimeLimitHit || limited.Err() != nil
	out.Offsets, out.Makespan = make([]Bytes, in.buffers), Bytes(best.makespan)*in.unit
	for i, o := range in.origin {
		out.Offsets[o] = Bytes(best.off[i]) * in.unit
	}
	if err := Validate(p, out); err != nil {
		return Placement{}, &BugError{Heuristic: "waits", Err: err}
	}
	return out, nil
}

// usesOf is uses in the instance's numbering. What has mates stays where it is.
func (in *instance) usesOf(uses []Use) []Use {
	own := make([]Use, in.n)
	for i, o := range in.origin {
		own[i] = uses[o]
		own[i].Pinned = own[i].Pinned || in.matesOf(int32(i)) != nil
	}
	return own
}

// layoutOf is pl in the instance's numbering and units.
func (in *instance) layoutOf(pl Placement) layout {
	l := layout{off: make([]int64, in.n), makespan: int64(pl.Makespan / in.unit), heuristic: pl.Heuristic}
	for i, o := range in.origin {
		l.off[i] = int64(pl.Offsets[o] / in.unit)
	}
	return l
}

// waitStarts are the orders whose first fit is tried beside the placement at
// hand: how few waits the moves can reach depends on where they start. Where
// buffers are pinned or too many there is only the one placement.
var waitStarts = []order{bySize, residentsFirst(bySizeStart), byCrestSize}

// waitStartBuffers is how many buffers are placed anew.
const waitStartBuffers = 60_000

// leastWaits moves buffers from each start on, side by side, and goes on with what
// costs least then, the first of equals. It ends early when ctx does, with a valid
// layout that costs no more than the known one.
func leastWaits(ctx context.Context, in *instance, uses []Use, known layout, opt Options) layout {
	starts := startsUnder(ctx, in, uses, known, opt)
	movers := make([]*mover, len(starts))
	var free atomic.Int64 // a start from which no wait is left: those behind it cannot win
	free.Store(math.MaxInt64)
	each(opt, len(starts), func(i int) {
		if free.Load() < int64(i) {
			return
		}
		movers[i] = newMover(in, uses, starts[i], known.makespan)
		movers[i].minimize(ctx)
		if movers[i].cost.count == 0 {
			free.Store(min(free.Load(), int64(i)))
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

// startsUnder is the known layout, and those of waitStarts that need no more
// than it, each once.
func startsUnder(ctx context.Context, in *instance, uses []Use, known layout, opt Options) []layout {
	if in.n > waitStartBuffers || slices.ContainsFunc(uses, func(u Use) bool { return u.Pinned }) {
		return []layout{known}
	}
	fits := make([]layout, len(waitStarts))
	each(opt, len(waitStarts), func(i int) {
		if l, ok := fitUnder(ctx, in, waitStarts[i], known.makespan); ok {
			fits[i] = l
		}
	})
	starts := []layout{known}
	for _, l := range fits {
		if l.off != nil && !slices.ContainsFunc(starts, func(o layout) bool { return slices.Equal(o.off, l.off) }) {
			starts = append(starts, l)
		}
	}
	return starts
}

// each calls do for 0 to n-1, opt.Workers of them at a time.
func each(opt Options, n int, do func(i int)) {
	var group errgroup.Group
	workers := opt.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = group.Wait() // do has no error
}

// fitUnder is first fit in the given order, if it needs no more than limit.
func fitUnder(ctx context.Context, in *instance, o order, limit int64) (layout, bool) {
	j := &job{in: in, ctx: ctx, accepted: new(atomic.Int64), limit: new(atomic.Int64)}
	j.accepted.Store(math.MaxInt64)
	j.limit.Store(limit)
	return firstFit(j, o.sorted(in))
}
