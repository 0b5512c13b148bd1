// Package compile turns a recording into a plan. It is the pipeline of
// docs/architecture.md, device by device:
//
//	events ─lifespan→ buffers, iterations, steady state
//	       ─draft→    slots in phases                          (draft.go)
//	       ─line→     one packing problem                      (line.go)
//	       ─packing→  offsets                                  (place.go)
//	       ─waits→    fewer waits, and those that are left     (waits.go, unroll.go)
//	       ─write→    a planfile.Device with its certificate   (write.go)
//	       ─serve→    the best of several steady states        (other.go)
//	       ─advise→   the recording served with and without it (advice.go)
//
// It knows no files, no terminal and no C: what it has to say goes to
// Options.Note, and what serves a recording is passed in as Options.Serve.
package compile

import (
	"context"
	"fmt"
	"time"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// Compile makes the plan of a recording, and the summary of what it is. The plan
// has passed verify.Plan and verify.AgainstTrace. Devices without allocations have no part in it.
//
// The same recording and options give the same plan, unless TimeLimit stopped
// something early; the summary says so then. Errors are those of the packages
// that it calls, with the trace's name in front, and a *BugError.
func Compile(ctx context.Context, t *trace.Trace, opt Options) (*planfile.Plan, report.Compiled, error) {
	return compileJoined(ctx, t, nil, opt)
}

// compileJoined compiles a trace. If it is of several recordings, joined has its devices as
// they were joined.
func compileJoined(ctx context.Context, t *trace.Trace, joined []joinedDevice, opt Options) (*planfile.Plan, report.Compiled, error) {
	p := &planfile.Plan{Producer: opt.Producer}
	sum := report.Compiled{Trace: t.Name, Notes: t.Notes, Devices: []report.CompiledDevice{}}
	start := opt.Began
	if start.IsZero() {
		start = time.Now()
	}
	left := 0
	for i := range t.Devices {
		if HasAllocations(&t.Devices[i]) {
			left++
		}
	}
	for i := range t.Devices {
		c := compiler{Options: opt, ctx: ctx, trace: t.Name, device: &t.Devices[i], stacks: &t.Stacks, settings: t.Settings}
		if joined != nil {
			c.joined = &joined[i]
		}
		if !HasAllocations(c.device) {
			c.note("no allocations, and so no part in the plan")
			continue
		}
		c.TimeLimit = shareOf(opt.TimeLimit, start, left)
		left--
		began := time.Now()
		dev, row, err := c.compile()
		if err != nil {
			return nil, sum, err
		}
		row.Seconds = time.Since(began).Seconds()
		p.Devices = append(p.Devices, *dev)
		sum.Devices = append(sum.Devices, row)
	}
	if v := append(verify.Plan(p, nil), verify.AgainstTrace(p, t)...); len(v) > 0 {
		return nil, sum, &BugError{fmt.Errorf("%s: the plan does not verify: %s", t.Name, v[0].Message)}
	}
	sum.Kept = keeps(sum.Devices)
	return p, sum, nil
}

// HasAllocations says whether a device allocated anything while it was recorded.
func HasAllocations(d *trace.Device) bool {
	for i := range d.Events {
		if d.Events[i].Action == trace.ActionAlloc {
			return true
		}
	}
	return false
}

// compile makes the device's plan and its row of the summary.
func (c *compiler) compile() (*planfile.Device, report.CompiledDevice, error) {
	none := report.CompiledDevice{}
	c.startClock()
	began := time.Now()
	if err := c.analyse(); err != nil {
		return nil, none, err
	}
	c.analysed = time.Since(began)
	dev, best, err := c.made()
	if err != nil {
		return nil, none, err
	}
	dev, best, served, err := c.orOther(dev, best)
	if err != nil {
		return nil, none, err
	}
	if dev, best, served, err = c.orShared(dev, best, served); err != nil {
		return nil, none, err
	}
	if dev, best, served, err = c.orEnough(dev, best, served); err != nil {
		return nil, none, err
	}
	dev, row, err := c.judged(dev, best, served)
	if err != nil {
		return nil, none, err
	}
	row.Against = c.against()
	row.Failure = FailureOf(c.device)
	if row.WouldFit, err = c.wouldFit(row.PlanBytes+OffPlan(dev, c.timeline), row.Judged); err != nil {
		return nil, none, err
	}
	if row.TimeLimitHit = c.limited; c.limited {
		c.note("the time limit stopped the work on the plan early; another run may give another plan")
	}
	return dev, row, nil
}

// mostOfRun is the number of buffers up to which a plan that is made of a whole run is of that run if no other pays: it takes 75 MB then, in
// a cache of plans of a megabyte or so.
const mostOfRun = 1 << 20

// judged is a plan with its advice, and its row of the summary. If it does not pay, the plan of the other steady state is judged, if there is one.
// If that does not pay either, the plan is of the recorded process if of its passes none is worthwhile without shared places, or if it is
// a whole run: that serves a run that does the same.
func (c *compiler) judged(dev *planfile.Device, best packing.Placement, served *replay.Cost) (*planfile.Device, report.CompiledDevice, error) {
	row := c.summary(dev, best)
	row.OfRun = c.ofRun
	judged, err := c.advise(dev, served)
	row.Judged = judged
	if c.periodic == nil && c.Mode == 0 && judged != nil && judged.Pays && c.runsDiffer() {
		c.note("runs differ: this one has left the plan of an earlier one, so the plan of it advises against itself")
		dev.Advice, judged.Pays = planfile.AdvicePool, false
		return dev, row, nil
	}
	if err != nil || judged == nil || judged.Pays {
		return dev, row, err
	}
	if otherDev, otherRow, err := c.judgedOther(); otherDev != nil || err != nil {
		return otherDev, otherRow, err
	}
	if !c.sharedOnly && (!c.WholeRun || len(c.timeline.Buffers) > mostOfRun) || c.Mode != 0 || c.scaled != nil || c.joined != nil || c.runsDiffer() {
		return dev, row, nil
	}
	c.note("the plan is of the recorded process only: one that fits every pass does not pay (--mode periodic makes it)")
	c.periodic, c.shared, c.sharedOnly, c.ofRun = nil, false, false, true
	if dev, best, err = c.made(); err != nil {
		return nil, report.CompiledDevice{}, err
	}
	row = c.summary(dev, best)
	row.OfRun = true
	row.Judged, err = c.advise(dev, nil)
	return dev, row, err
}

// judgedOther is the plan of the other steady state and its row, if that was made and pays.
func (c *compiler) judgedOther() (*planfile.Device, report.CompiledDevice, error) {
	none, over := report.CompiledDevice{}, c.passedOver
	if over == nil {
		return nil, none, nil
	}
	row := over.summary(over.dev, over.best)
	judged, err := over.advise(over.dev, over.cost)
	c.limited = c.limited || over.limited
	if err != nil || !judged.Pays {
		return nil, none, err
	}
	row.Judged = judged
	*c = over.compiler
	return over.dev, row, nil
}

// analyse finds the buffers, the iterations and the steady state.
func (c *compiler) analyse() (err error) {
	began := time.Now()
	if c.timeline, err = lifespan.Build(c.device); err != nil {
		return fmt.Errorf("%s: %w", c.trace, err)
	}
	c.reserved = baseline.FromRecording(c.device).PeakReserved
	c.reserve(time.Since(began))
	if c.joined != nil {
		return c.analyseJoined()
	}
	if c.iterations, err = lifespan.FindIterations(c.stacks, c.device, c.timeline, c.Marker); err != nil {
		return c.fault(err)
	}
	c.iterations.Enough = c.alignedEnough
	c.periodic, err = c.steadyState()
	return err
}
