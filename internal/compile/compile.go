// Package compile turns a recording into a plan. It is the pipeline of
// docs/architecture.md, device by device:
//
//	events ─lifespan→ buffers, iterations, steady state
//	       ─draft→    slots in phases                          (draft.go)
//	       ─line→     one packing problem                      (line.go)
//	       ─packing→  offsets                                  (place.go)
//	       ─waits→    fewer waits, and those that are left     (waits.go, unroll.go)
//	       ─write→    a planfile.Device with its certificate   (write.go)
//	       ─advise→   the recording served with and without it (advice.go)
//
// It knows no files, no terminal and no C: what it has to say goes to
// Options.Note, and what serves a recording is passed in as Options.Serve.
package compile

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// Options say what plan is wanted. The zero value makes the plan that fits the
// recording, silently and without an advice.
type Options struct {
	// Mode is what the plan covers. 0 is periodic if that serves the job, else
	// recorded.
	Mode planfile.Mode
	// Marker matches the annotations that begin an iteration. nil looks for
	// optimizer steps, and without any for repetition.
	Marker *regexp.Regexp
	// NoReusePending makes the plan for the recorded completion of each free, so
	// that no reuse waits for a free that is pending.
	NoReusePending bool
	// NoCrossStream gives every stream its own part of the arena.
	NoCrossStream bool
	// TimeLimit ends what improves a device's plan after that long; 0 is no limit.
	TimeLimit time.Duration
	// Producer is the program that the plan names as its maker.
	Producer string

	// Note, if set, is told what the user should know besides the result.
	Note func(text string)
	// Progress, if set, is told how many of total steps of a stage are done. Calls
	// do not overlap, and a stage that has begun is told of before the next one.
	Progress func(stage string, done, total int64)
	// Serve, if set, serves the recording with the plan and without, and the plan
	// carries an advice if it does not pay. Without it there is none.
	Serve Server
}

// BugError is a result that the pipeline itself finds to be wrong: a defect of
// stplan, never of its input.
type BugError struct{ Err error }

func (b *BugError) Error() string { return "internal error: " + b.Err.Error() }

// Unwrap returns what was found.
func (b *BugError) Unwrap() error { return b.Err }

// Compile makes the plan of a recording, and the summary of what it is. The plan
// has passed verify.Plan. Devices without allocations have no part in it.
//
// The same recording and options give the same plan, unless TimeLimit stopped
// something early; the summary says so then. Errors are those of the packages
// that it calls, with the trace's name in front, and a *BugError.
func Compile(ctx context.Context, t *trace.Trace, opt Options) (*planfile.Plan, report.Compiled, error) {
	p := &planfile.Plan{Producer: opt.Producer}
	sum := report.Compiled{Trace: t.Name, Notes: t.Notes, Devices: []report.CompiledDevice{}}
	for i := range t.Devices {
		c := compiler{Options: opt, ctx: ctx, trace: t.Name, device: &t.Devices[i]}
		if !HasAllocations(c.device) {
			c.note("no allocations, and so no part in the plan")
			continue
		}
		began := time.Now()
		dev, row, err := c.compile()
		if err != nil {
			return nil, sum, err
		}
		row.Seconds = time.Since(began).Seconds()
		p.Devices = append(p.Devices, *dev)
		sum.Devices = append(sum.Devices, row)
	}
	if v := verify.Plan(p, nil); len(v) > 0 {
		return nil, sum, &BugError{fmt.Errorf("%s: the plan does not verify: %s", t.Name, v[0].Message)}
	}
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

// compiler compiles one device.
type compiler struct {
	Options
	ctx    context.Context
	trace  string // its name
	device *trace.Device

	timeline   *lifespan.Timeline
	iterations lifespan.Iterations
	reserved   trace.Bytes        // the most that the recording held
	periodic   *lifespan.Periodic // nil: the plan is of the recorded process
	deadline   time.Time          // if there is a time limit
	limited    bool               // the time limit stopped something early
}

// compile makes the device's plan and its row of the summary.
func (c *compiler) compile() (*planfile.Device, report.CompiledDevice, error) {
	none := report.CompiledDevice{}
	if c.TimeLimit > 0 {
		c.deadline = time.Now().Add(c.TimeLimit)
	}
	if err := c.analyse(); err != nil {
		return nil, none, err
	}
	d := newDraft(c.timeline, c.periodic, c.end())
	best, err := c.place(d)
	if err != nil {
		return nil, none, c.fault(err)
	}
	dev := c.write(d, best)
	row := c.summary(dev, best)
	if row.Judged, err = c.advise(dev); err != nil {
		return nil, none, err
	}
	if row.TimeLimitHit = c.limited; c.limited {
		c.note("the time limit stopped the work on the plan early; another run may give another plan")
	}
	return dev, row, nil
}

// analyse finds the buffers, the iterations and the steady state.
func (c *compiler) analyse() (err error) {
	if c.timeline, err = lifespan.Build(c.device); err != nil {
		return fmt.Errorf("%s: %w", c.trace, err)
	}
	if c.iterations, err = lifespan.FindIterations(c.device, c.timeline, c.Marker); err != nil {
		return c.fault(err)
	}
	c.reserved = baseline.FromRecording(c.device).PeakReserved
	c.periodic, err = c.steadyState()
	return err
}

// end is the end of the buffers' live ranges that the plan is made for.
func (c *compiler) end() lifespan.End {
	if c.NoReusePending {
		return lifespan.EndCompleted
	}
	return lifespan.EndRequested
}

// remaining is what is left of the time limit, in the packer's terms: 0 is no
// limit.
func (c *compiler) remaining() time.Duration {
	if c.deadline.IsZero() {
		return 0
	}
	return max(time.Until(c.deadline), 1)
}

// fault names the trace and the device in an error, and tells a defect of the
// packer from its other errors.
func (c *compiler) fault(err error) error {
	named := fmt.Errorf("%s: device %d: %w", c.trace, c.device.Ordinal, err)
	var wrong *packing.BugError
	if errors.As(err, &wrong) {
		return &BugError{named}
	}
	return named
}

func (c *compiler) note(format string, args ...any) {
	if c.Note != nil {
		c.Note(fmt.Sprintf("%s: device %d: ", c.trace, c.device.Ordinal) + fmt.Sprintf(format, args...))
	}
}
