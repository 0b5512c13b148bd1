package packing

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
)

// contest is a portfolio: a list of attempts that run in parallel, with a deterministic
// winner. An attempt is accepted if its makespan is at most target. The accepted one
// with the lowest index wins; without one, the smallest makespan, and the lowest index
// among equals. This never depends on scheduling: attempts start in the order of their
// indices, an attempt with a lower index than an accepted one always finishes, and an
// attempt gives up early only on a makespan that is both beaten and above target.
type contest struct {
	tasks      int                                // number of attempts
	run        func(i int, j *job) (layout, bool) // makes attempt i; false if it has no result
	target     int64                              // a makespan up to this is accepted
	known      int64                              // a makespan above this is of no use
	mustFinish bool                               // the first attempt ignores the time limit
	done       func(best int64)                   // called after each attempt, never twice at once; may be nil
}

// job is one attempt's view of its contest: the instance, and when to give up.
type job struct {
	in         *instance
	ctx        context.Context
	index      int64         // of the attempt
	accepted   *atomic.Int64 // lowest accepted index so far
	limit      *atomic.Int64 // a makespan above this cannot win
	mustFinish bool          // the time limit does not count
}

// stopEvery is the number of placed buffers between two calls of job.stopped, which
// looks at the clock. A sweep places that many in about a millisecond, a skyline in
// less than 0.1 s.
const stopEvery = 1024

// halted reports whether the attempt may stop: its makespan is beaten already, or, at
// every stopEvery-th step, stopped.
func (j *job) halted(step int, makespan int64) bool {
	if makespan > j.limit.Load() {
		return true
	}
	return step%stopEvery == 0 && j.stopped()
}

// stopped reports whether an attempt before this one was accepted, or time is up.
func (j *job) stopped() bool {
	return j.accepted.Load() < j.index || (!j.mustFinish && j.ctx.Err() != nil)
}

// unlimited is j without its limit: a placement may be worse than the best one known.
func (j *job) unlimited() *job {
	own := *j
	own.limit = new(atomic.Int64)
	own.limit.Store(math.MaxInt64)
	return &own
}

// decide runs the contest and returns the winner. ok is false if no attempt has a
// result.
func (s *search) decide(c contest) (best layout, ok bool) {
	var (
		mu         sync.Mutex
		next       int
		cut, limit atomic.Int64
		results    = make([]layout, c.tasks)
		lowest     = c.known
	)
	cut.Store(math.MaxInt64)
	limit.Store(max(c.known, c.target))
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		if next >= c.tasks || int64(next) > cut.Load() {
			return -1
		}
		next++
		return next - 1
	}
	finish := func(i int, l layout, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if ok {
			results[i] = l
			lowest = min(lowest, l.makespan)
			limit.Store(min(limit.Load(), max(l.makespan, c.target)))
			if l.makespan <= c.target {
				cut.Store(min(cut.Load(), int64(i)))
			}
		}
		if c.done != nil {
			c.done(lowest)
		}
	}
	var wg sync.WaitGroup
	for range min(s.opt.Workers, c.tasks) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := take(); i >= 0; i = take() {
				j := &job{in: s.in, ctx: s.ctx, index: int64(i), accepted: &cut, limit: &limit, mustFinish: c.mustFinish && i == 0}
				l, ok := c.run(i, j)
				finish(i, l, ok)
			}
		}()
	}
	wg.Wait()
	return winner(results, c.target)
}

func winner(results []layout, target int64) (best layout, ok bool) {
	for _, l := range results {
		if l.off == nil {
			continue
		}
		if !ok || l.makespan < best.makespan {
			best, ok = l, true
		}
		if l.makespan <= target {
			return l, true
		}
	}
	return best, ok
}
