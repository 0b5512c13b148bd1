package compile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// paysWithin is the share of the pool's bytes, as a divisor, that a plan may
// reserve more if data does not decide what an iteration allocates: half a per
// cent, which moving half as much memory is worth.
const paysWithin = 200

// clearlyWithin is the share of the pool's bytes, as a divisor, that a plan has to reserve less if
// data decides what an iteration allocates and no iteration is left that the plan does not know:
// as much as another choice of iterations changes (docs/results/repeated.md).
const clearlyWithin = 1000

// pays says whether a plan reserves no more than the pool, or at most slack bytes
// more while it spares half of what the pool moves. If slack is negative it has to reserve that much less.
func pays(planned, pool replay.Cost, slack int64) bool {
	return planned.Reserved <= pool.Reserved+min(slack, 0) ||
		planned.Reserved <= pool.Reserved+slack && planned.Moved < pool.Moved/2
}

// better says whether one plan serves clearly better than another: if it reserves less, or spares half
// of what that moves, by more than plans may cost without being judged worse.
func better(one, than replay.Cost) bool {
	slack := than.Reserved / paysWithin
	return one.Reserved < than.Reserved-slack ||
		one.Reserved <= than.Reserved+slack && one.Moved < than.Moved/2 && than.Moved-one.Moved > slack
}

// judges says whether a plan is judged by how it serves.
func (c *compiler) judges() bool { return c.Serve != nil && !c.NoCrossStream && !c.NoReusePending }

// advise serves the recording with the plan and without, and writes into the plan
// whether it pays. If data decides what an iteration allocates, a plan that knows
// all iterations says little: then one that was made without the last iteration
// has to pay as well, and neither may reserve more than the pool; if there are too few for that, the
// plan has to reserve clearly less. Nothing is said
// if the options forbid waits, since the pool makes what they forbid; nor without
// a Server. A plan whose slots share places has room for what data decide, and pays unless it is clearly worse than the pool: steps take less time with
// it (docs/results/first_runs.md). Of a recording that ends in an out-of-memory only the memory counts. served is what serving the recording with the
// plan took, nil if that is not known yet.
func (c *compiler) advise(dev *planfile.Device, served *replay.Cost) (*report.Judged, error) {
	if !c.judges() {
		return nil, nil
	}
	program := replay.NewProgram(c.timeline)
	pool, err := c.Serve(program, nil, 0)
	if err != nil {
		return nil, c.unserved(err)
	}
	if served, err = c.orServe(program, dev, served); err != nil {
		return nil, err
	}
	planned := *served
	judged := &report.Judged{Pool: pool.Reserved, PoolMoved: pool.Moved}
	slack, decided, shares := pool.Reserved/paysWithin, differ(dev), dev.Shares()
	if decided {
		slack = 0 // what the next iterations add is not known
	}
	if c.timeline.Failed() != nil {
		slack, decided = 0, false // the run goes no further without less memory
	}
	worth := func() bool {
		if shares && c.timeline.Failed() == nil {
			return !better(pool, planned)
		}
		return pays(planned, pool, slack)
	}
	if decided && worth() {
		other, err := c.withoutLast()
		if err != nil {
			return nil, err
		}
		if judged.Unseen = other != nil; judged.Unseen {
			if planned, err = c.serve(program, other); err != nil {
				return nil, err
			}
		} else {
			slack = -pool.Reserved / clearlyWithin
		}
	}
	judged.Planned, judged.PlannedMoved = planned.Reserved, planned.Moved
	// The recording does not show what a plan for more than was recorded is made for.
	if judged.Pays = worth(); !judged.Pays && c.scaled == nil {
		dev.Advice = planfile.AdvicePool
	}
	return judged, nil
}

// serve serves a program by the plan of one device.
func (c *compiler) serve(program *replay.Program, dev *planfile.Device) (replay.Cost, error) {
	data, err := planfile.Encode(&planfile.Plan{Producer: c.Producer, Devices: []planfile.Device{*dev}})
	if err != nil {
		return replay.Cost{}, c.unserved(err)
	}
	cost, err := c.Serve(program, data, int(dev.Ordinal))
	if err != nil {
		return replay.Cost{}, c.unserved(err)
	}
	return cost, nil
}

// orServe is what serving a program by a plan takes: served, if that is not nil.
func (c *compiler) orServe(program *replay.Program, dev *planfile.Device, served *replay.Cost) (*replay.Cost, error) {
	if served != nil {
		return served, nil
	}
	cost, err := c.serve(program, dev)
	return &cost, err
}

// unserved is a recording that the runtime could not serve, or a plan that it refuses: a bug
// in one of the two, unless the recording needs more than a device can have.
func (c *compiler) unserved(err error) error {
	err = fmt.Errorf("%s: device %d: %w", c.trace, c.device.Ordinal, err)
	var limit *replay.LimitError
	if errors.As(err, &limit) {
		return err
	}
	return &BugError{err}
}

// withoutLast is the plan of the recording without its last pass. It is nil if there are
// too few.
func (c *compiler) withoutLast() (*planfile.Device, error) {
	if c.periodic == nil || len(c.periodic.Passes) < 3 {
		return nil, nil
	}
	// Nothing says that a plan of all but the last pass takes less to make. Without the
	// time for it, the plan is judged by the passes that it knows.
	if c.late(c.analysed) {
		return nil, nil
	}
	end := c.periodic.Passes[len(c.periodic.Passes)-1].First
	short := *c.device
	short.Events = c.device.Events[:end]
	if later := slices.IndexFunc(c.device.Annotations, func(n trace.Annotation) bool { return n.At > end }); later >= 0 {
		short.Annotations = c.device.Annotations[:later]
	}
	other := compiler{Options: c.Options, ctx: c.ctx, trace: c.trace, device: &short, stacks: c.stacks, settings: c.settings, joined: c.joined.until(end), other: c.other, shared: c.shared}
	other.Mode, other.TimeLimit = planfile.ModePeriodic, c.remaining()
	other.Note, other.Progress, other.Serve = nil, nil, nil
	made, _, err := other.compile()
	c.limited = c.limited || other.limited
	if c.ctx.Err() != nil {
		return nil, c.ctx.Err()
	}
	if err != nil {
		return nil, nil // there is no plan of so little, and nothing to learn from it
	}
	return made, nil
}

// steadyStretch: data decides what a job allocates if a stretch of optional slots
// begins more often than once in that many allocations. In the recordings of
// mixtures of experts that is once in 26 to 57, in others never above once in 965.
const steadyStretch = 256

// differ says whether data decides what the passes of a plan allocate.
func differ(dev *planfile.Device) bool {
	for x := range dev.Phases {
		p := &dev.Phases[x]
		stretches, inside := uint64(0), false
		for _, s := range dev.PhaseSlots(x) {
			optional := s.Flags&planfile.SlotEntering == 0 && s.Occurrences < p.Occurrences
			if optional && !inside {
				stretches++
			}
			inside = optional
		}
		if stretches*steadyStretch > p.Length {
			return true
		}
	}
	return false
}
