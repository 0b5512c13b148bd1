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

// Alternatives are pl, a valid placement of p, and the different placements that a few
// rules find with no larger makespan: how few waits a search reaches depends on where it
// starts. If the one with the streams at the two ends is among them, it comes second. streams has the stream of each buffer. The bounds of all are those of pl. Of
// opt it uses Workers. The errors are those of Pack.
func Alternatives(ctx context.Context, p *Problem, streams []int32, pl Placement, opt Options) ([]Placement, error) {
	if len(streams) != len(p.Buffers) {
		return nil, &InputError{Where: "streams", Problem: fmt.Sprintf("expected %d, one per buffer, found %d", len(p.Buffers), len(streams))}
	}
	in, err := newInstance(p)
	if err != nil {
		return nil, err
	}
	own := make([]int32, in.n)
	for i, o := range in.origin {
		own[i] = streams[o]
	}
	all := []Placement{pl}
	for _, l := range startsUnder(ctx, in, own, in.layoutOf(pl), opt)[1:] {
		other, found := pl, in.placement(l)
		other.Offsets, other.Makespan, other.Heuristic = found.Offsets, found.Makespan, found.Heuristic
		if err := Validate(p, other); err != nil {
			return nil, &BugError{Heuristic: l.heuristic, Err: err}
		}
		all = append(all, other)
	}
	return all, ctx.Err()
}

// waitStart is a rule that makes a layout to start from. If apart is set, the buffers of
// the main stream lie as low as they can and those of the others as high: then only the
// memory between the two changes streams.
type waitStart struct {
	order
	apart bool
}

// waitStarts are the rules that a search for fewer waits starts from, beside the given
// placement. They are not used if there are more than waitStartBuffers.
var waitStarts = []waitStart{{byCrestLast, true}, {bySize, false}, {residentsFirst(bySizeStart), false}, {byCrestSize, false}}

// waitStartBuffers is the largest instance, in buffers, that is searched from
// waitStarts too. Each start takes as long as the search from the given placement.
const waitStartBuffers = 60_000

// startsUnder is the known layout, and those of waitStarts with no larger makespan,
// each once.
func startsUnder(ctx context.Context, in *instance, streams []int32, known layout, opt Options) []layout {
	starts := []layout{known}
	if in.n > waitStartBuffers {
		return starts
	}
	main := in.mainStream(streams)
	fits := make([]layout, len(waitStarts))
	each(opt, len(waitStarts), func(i int) {
		s := waitStarts[i]
		switch {
		case !s.apart:
			fits[i] = fitUnder(ctx, in, s, known.makespan, func(int32) bool { return true })
		case slices.ContainsFunc(streams, func(stream int32) bool { return stream != main }):
			fits[i] = fitUnder(ctx, in, s, known.makespan, func(b int32) bool { return streams[b] == main })
		}
	})
	for _, l := range fits {
		if l.off != nil && !slices.ContainsFunc(starts, func(o layout) bool { return slices.Equal(o.off, l.off) }) {
			starts = append(starts, l)
		}
	}
	return starts
}

// mainStream is the stream whose buffers take the most memory for the longest time, the
// lowest among equals.
func (in *instance) mainStream(streams []int32) (main int32) {
	area := map[int32]float64{}
	for b, stream := range streams {
		area[stream] += in.areaKey(int32(b))
	}
	most := -1.0
	for stream, a := range area {
		if a > most || a == most && stream < main {
			main, most = stream, a
		}
	}
	return main
}

// fitUnder is the layout that s makes: each buffer goes to the lowest free offset if low
// says so, else to the highest one below limit. It has no offsets if its makespan is
// above limit.
func fitUnder(ctx context.Context, in *instance, s waitStart, limit int64, low func(b int32) bool) layout {
	j := &job{in: in, ctx: ctx, accepted: new(atomic.Int64), limit: new(atomic.Int64)}
	j.accepted.Store(math.MaxInt64)
	j.limit.Store(limit)
	l, ok := place(j, s.sorted(in), func(t *occupancy, b int32) int64 {
		if !low(b) && in.matesOf(b) == nil {
			if x := t.highest(in.lo[b], in.hi[b], in.size[b], limit); x >= 0 {
				return x
			}
		}
		return t.lowestOf(in, b, 0)
	})
	if !ok {
		return layout{}
	}
	if l.heuristic = s.name + "-FF"; s.apart {
		l.heuristic = s.name + "-ends"
	}
	return l
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
