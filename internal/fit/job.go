// Package fit says whether a recorded job fits into a device's memory, under which
// allocator, and from recordings of the job at several sizes at which sizes it would.
//
// A job is a recorded program, or one that was made up from recordings: the order of the
// requests of the nearest recording, with the sizes that the laws give (laws.go). Both are
// tried on the same allocators (allocators.go).
package fit

import (
	"fmt"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/trace"
)

// Job is what a program asks of one device's memory.
type Job struct {
	// Trace has the device and nothing else.
	Trace    *trace.Trace
	Device   *trace.Device
	Timeline *lifespan.Timeline
	// Recorded is what the recording ran under.
	Recorded baseline.Config

	simulated *baseline.Program
	served    *replay.Program
}

// NewJob reads the job of a recorded device. A recording that ends in an out-of-memory
// counts with the request that failed.
func NewJob(t *trace.Trace, d *trace.Device, recorded baseline.Config) (*Job, error) {
	program, err := baseline.ReadProgram(d, recorded)
	if err != nil {
		return nil, fmt.Errorf("%s: device %d: %w", t.Name, d.Ordinal, err)
	}
	tl, err := lifespan.Build(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	alone := *t
	alone.Devices = []trace.Device{*d}
	return &Job{
		Trace: &alone, Device: &alone.Devices[0], Timeline: tl, Recorded: recorded,
		simulated: program.Granted(), served: replay.NewProgram(tl),
	}, nil
}

// Allocated is the job's peak of allocated bytes.
func (j *Job) Allocated() trace.Bytes { return j.Timeline.PeakAllocated.Bytes }
