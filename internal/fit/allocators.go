package fit

import (
	"context"
	"errors"
	"fmt"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/trace"
)

// Allocator is one that a job can be tried on: a row of every table.
type Allocator struct {
	Key   string // its name in JSON
	Title string // its name in text
	// Try says what the job takes with usable bytes to have, of a device with so many.
	Try func(ctx context.Context, j *Job, usable, device trace.Bytes) (Answer, error)
	// Slow says that Try takes seconds, so that a search should ask it seldom.
	Slow bool
	// Error is the share by which what it takes may be off, 0 if every address is known.
	Error float64
}

// Keys of the allocators that are not in package baseline.
const (
	KeyPool = "pool"
	KeyPlan = "plan"
)

// Answer is what an allocator does with a job. Sizes are bytes.
type Answer struct {
	// Reserved is what it takes without a limit.
	Reserved trace.Bytes
	Fits     bool
	// Within is what it takes with the limit, if it fits: less than Reserved if it has to
	// give cached memory back, which it does Retries times.
	Within  trace.Bytes
	Retries int
	// At and Requested are the request that it cannot serve, if it does not fit.
	At        trace.Time
	Requested trace.Bytes
	// Instead is the key of the allocator that serves in the place of this one: a plan
	// that does not pay leaves it to the pool.
	Instead string
	// Unfit says why the allocator cannot serve such a program at all, with any memory.
	Unfit string
}

// Server serves a program with the runtime, as compile.Server does, on a device with limit
// bytes to give, 0 for no limit.
type Server func(program *replay.Program, plan []byte, ordinal int, limit int64) (replay.Cost, error)

// Allocators lists those that every job is tried on, in the order in which they are shown.
// recorded is what the recording ran under. Without a server, the runtime's own rows are
// left out.
func Allocators(recorded baseline.Config, serve Server, plans Planner) []Allocator {
	var all []Allocator
	for _, a := range baseline.Allocators(recorded) {
		all = append(all, Simulated(a))
	}
	if serve == nil {
		return all
	}
	return append(all,
		Allocator{Key: KeyPool, Title: "pool", Try: func(_ context.Context, j *Job, usable, _ trace.Bytes) (Answer, error) {
			return tryServed(j, serve, nil, usable)
		}},
		Allocator{Key: KeyPlan, Title: "plan", Slow: true, Try: func(ctx context.Context, j *Job, usable, _ trace.Bytes) (Answer, error) {
			return tryPlanned(ctx, j, serve, plans, usable)
		}})
}

// Simulated is a row for an allocator of package baseline.
func Simulated(a baseline.Allocator) Allocator {
	return Allocator{Key: a.Key, Title: a.Title, Error: a.Error, Try: func(_ context.Context, j *Job, usable, device trace.Bytes) (Answer, error) {
		w, err := baseline.SimulateWithin(j.recorded.Granted(), a, usable, device, nil)
		var unfit *baseline.UnfitError
		if errors.As(err, &unfit) {
			return Answer{Unfit: unfit.Why}, nil
		}
		if err != nil {
			return Answer{}, fmt.Errorf("%s: %w", a.Title, err)
		}
		out := Answer{Reserved: w.PeakReserved, Fits: w.Fits(), Retries: w.Limited.Retries}
		if out.Fits {
			out.Within = w.Limited.PeakReserved
		} else {
			out.At, out.Requested = w.Limited.OOM.Event, w.Limited.OOM.Requested
		}
		return out, nil
	}}
}

// Planner makes the plan of a job.
type Planner func(ctx context.Context, j *Job) (*planfile.Plan, error)

// Compiled is the planner that compiles a plan for the job alone, as `stplan compile` does. It
// keeps the last one, for a job that is tried with several amounts of memory.
func Compiled(opt compile.Options) Planner {
	var last *Job
	var kept *planfile.Plan
	return func(ctx context.Context, j *Job) (*planfile.Plan, error) {
		if j == last {
			return kept, nil
		}
		p, _, err := compile.Compile(ctx, j.Trace, opt)
		if err == nil {
			last, kept = j, p
		}
		return p, err
	}
}

func tryPlanned(ctx context.Context, j *Job, serve Server, plans Planner, usable trace.Bytes) (Answer, error) {
	p, err := plans(ctx, j)
	if err != nil {
		return Answer{}, err
	}
	if p.Devices[0].Advice != planfile.AdviceNone {
		out, err := tryServed(j, serve, nil, usable)
		out.Instead = KeyPool
		return out, err
	}
	data, err := planfile.Encode(p)
	if err != nil {
		return Answer{}, &compile.BugError{Err: err}
	}
	return tryServed(j, serve, data, usable)
}

// tryServed serves a job by an encoded plan, or from the pool alone if there is none.
func tryServed(j *Job, serve Server, plan []byte, usable trace.Bytes) (Answer, error) {
	ordinal := j.Device.Ordinal
	free, err := serve(j.requests(), plan, ordinal, 0)
	if err != nil {
		return Answer{}, unserved(j, err)
	}
	out := Answer{Reserved: trace.Bytes(free.Reserved), Fits: true, Within: trace.Bytes(free.Reserved)}
	if out.Reserved <= usable {
		return out, nil
	}
	within, err := serve(j.requests(), plan, ordinal, int64(max(1, usable)))
	var limit *replay.LimitError
	switch {
	case errors.As(err, &limit):
		out.Fits, out.Within, out.At, out.Requested = false, 0, limit.At, limit.Requested
		return out, nil
	case err != nil:
		return out, unserved(j, err)
	}
	out.Within = trace.Bytes(within.Reserved)
	return out, nil
}

// unserved is a job that the runtime could not serve without a limit: a bug, unless the
// recording needs more than any device has.
func unserved(j *Job, err error) error {
	err = fmt.Errorf("%s: device %d: %w", j.Trace.Name, j.Device.Ordinal, err)
	var limit *replay.LimitError
	if errors.As(err, &limit) {
		return err
	}
	return &compile.BugError{Err: err}
}
