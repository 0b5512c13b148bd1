package packing

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
)

// job is one attempt's view of the search: the instance, and when to give up.
type job struct {
	in         *instance
	ctx        context.Context
	index      int64         // of the task within its race
	accepted   *atomic.Int64 // lowest accepted index so far
	limit      *atomic.Int64 // a makespan above it cannot win
	mustFinish bool          // finish whatever the time
}

// stopEvery is how many placements pass between two looks at the clock.
const stopEvery = 1024

// halted says that the attempt may stop: its makespan is already beaten, a task
// before it was accepted, or (looked at every stopEvery steps) time is up.
func (j *job) halted(step int, makespan int64) bool {
	if makespan > j.limit.Load() {
		return true
	}
	return step%stopEvery == 0 && j.stopped()
}

// stopped is halted without a makespan.
func (j *job) stopped() bool {
	return j.accepted.Load() < j.index || (!j.mustFinish && j.ctx.Err() != nil)
}

// contest is a list of attempts of which the first accepted one wins, else the
// one with the least makespan, else the first of those. The winner never
// depends on scheduling: tasks start in index order, one with a lower index
// than an accepted one always finishes, and an attempt gives up only on a
// makespan that is both beaten and not acceptable.
type contest struct {
	tasks      int
	run        func(i int, j *job) (layout, bool) // false: no result
	target     int64                              // a makespan up to this is accepted
	known      int64                              // a makespan above this is of no use
	mustFinish bool                               // the first task finishes whatever the time
	done       func(best int64)                   // told after each task, calls do not overlap; may be nil
}

// decide runs the contest and returns the winner, or ok false without one.
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
