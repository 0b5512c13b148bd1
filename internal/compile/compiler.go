package compile

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
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
	// MaxScale is what sizes that vary are planned for, in multiples of the largest recorded
	// value of the quantity that they follow (docs/steady-state.md). Up to 1 is as recorded. Not
	// with NoCrossStream, whose bound is of sizes as they are planned.
	MaxScale float64
	// TimeLimit is how long the compilation may take in all; 0 is no limit. What is left of
	// it, after what has to be done in any case, bounds the search for a better plan, and
	// of several devices each gets an equal part.
	TimeLimit time.Duration
	// Began is when TimeLimit began to count: before the recording was read, say. Zero is
	// the beginning of Compile.
	Began time.Time
	// Against is an encoded plan that was there before. If it serves the recording clearly better than the plan that is made of
	// it, the summary says that it is to be kept. If it is of a recorded process and the recording has left it, runs differ, and no plan of
	// a recorded process pays. nil is none; without Serve it is not tried.
	Against []byte
	// WholeRun says that the recording is of a run from its beginning to its end. If no plan of its iterations pays, the plan is of
	// the run itself then, unless runs differ.
	WholeRun bool
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

// Server serves a program with the runtime and says what that takes: by an encoded
// plan's device of the given ordinal, or from the pool alone if plan is nil.
type Server func(program *replay.Program, plan []byte, ordinal int) (replay.Cost, error)

// BugError is a result that the pipeline itself finds to be wrong: a defect of
// stplan, never of its input.
type BugError struct{ Err error }

func (b *BugError) Error() string { return "internal error: " + b.Err.Error() }

// Unwrap returns what was found.
func (b *BugError) Unwrap() error { return b.Err }

// compiler compiles one device.
type compiler struct {
	Options
	ctx    context.Context
	trace  string // its name
	device *trace.Device
	stacks *trace.Stacks // of its events
	// settings are those that the recording ran under.
	settings trace.Settings
	joined   *joinedDevice // nil if the device is of one recording

	timeline   *lifespan.Timeline
	iterations lifespan.Iterations
	reserved   trace.Bytes        // the most that the recording held
	periodic   *lifespan.Periodic // nil: the plan is of the recorded process
	shared     bool               // slots of periodic share places (lifespan.Periodic.Shared), if that saves anything
	sharedOnly bool               // without that, no plan of the passes is worthwhile
	passedOver *candidate         // the plan of the other steady state, if it was made and does not serve the recording better
	other      bool               // periodic is the other steady state (lifespan.Periodic.Other), if there is one
	began      time.Time          // when the time limit began to count, if there is one
	deadline   time.Time          // of the search, likewise
	analysed   time.Duration      // what analyse took
	scaled     *report.Scaled     // nil unless MaxScale is asked for
	believed   int                // slots that are larger than any recorded request (compiler.believe)
	limited    bool               // the time limit stopped something early
	ofRun      bool               // no plan of the passes is worthwhile or pays, so the plan is of the recorded process
	before     *before            // once Against has been tried
}

// before is what serving the recording by Options.Against takes, if that serves it.
type before struct {
	replay.Cost
	run    int // number of slots if it is the plan of a recorded process, otherwise 0
	serves bool
}

// candidate is a plan, what it was made with, and what serving the recording by it takes.
type candidate struct {
	compiler
	dev  *planfile.Device
	best packing.Placement
	cost *replay.Cost
}

// end is the end of the buffers' live ranges that the plan is made for. If the recording tells
// of exchanges, a free that is behind one cannot be waited for until the program has awaited
// it, so the plan leaves room for what is held until then.
func (c *compiler) end() lifespan.End {
	if c.NoReusePending || len(c.timeline.Exchanges) > 0 {
		return lifespan.EndCompleted
	}
	return lifespan.EndRequested
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
