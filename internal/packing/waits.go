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

// Use is how the device uses a buffer: on which stream, and until when.
type Use struct {
	// Stream is the stream on which the buffer was allocated. A buffer of another
	// stream that takes over its bytes has to wait for this stream.
	Stream int32
	// Settled is when the last use of the buffer had ended in the recording. A buffer
	// that takes over its bytes before then has to wait for that use. A value at or
	// before End has no effect.
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
// p, and no larger makespan. It counts the waits first, then the bytes that are
// taken over with one (fewer are better), then the instants between the end of the
// earlier buffer and the start of the later one (more are better). It returns pl
// itself if it finds nothing better.
//
// It is a local search (mover) from pl and from the layouts of a few rules. Its work is
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

// usesOf is uses in the instance's numbering. Buffers with mates are pinned.
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

// waitStarts are the orders of first fit from which the search starts too, beside the
// given placement: how few waits it reaches depends on the start. They are not used if
// a buffer is pinned or there are more than waitStartBuffers.
var waitStarts = []order{bySize, residentsFirst(bySizeStart), byCrestSize}

// waitStartBuffers is the largest instance, in buffers, that is searched from
// waitStarts too. Each start takes as long as the search from the given placement.
const waitStartBuffers = 60_000

// leastWaits searches from every start side by side, and then goes on with the layout
// of the least cost, the first among equals. When ctx ends, it returns early, with a
// valid layout that costs no more than the known one.
func leastWaits(ctx context.Context, in *instance, uses []Use, known layout, opt Options) layout {
	starts := startsUnder(ctx, in, uses, known, opt)
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

// startsUnder is the known layout, and those of waitStarts with no larger makespan,
// each once.
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
	_ = group.Wait() // do returns no error
}

// fitUnder is the layout of first fit in the given order; ok is false if its makespan
// is above limit.
func fitUnder(ctx context.Context, in *instance, o order, limit int64) (layout, bool) {
	j := &job{in: in, ctx: ctx, accepted: new(atomic.Int64), limit: new(atomic.Int64)}
	j.accepted.Store(math.MaxInt64)
	j.limit.Store(limit)
	return firstFit(j, o.sorted(in))
}
