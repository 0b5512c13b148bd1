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

	// recorded is the program as the recording shows it.
	recorded *baseline.Program
	served   *replay.Program // nil until it is asked for
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
	return &Job{Trace: &alone, Device: &alone.Devices[0], Timeline: tl, Recorded: recorded, recorded: program}, nil
}

// Allocated is the job's peak of allocated bytes.
func (j *Job) Allocated() trace.Bytes { return j.Timeline.PeakAllocated.Bytes }

// requests are the program for the runtime.
func (j *Job) requests() *replay.Program {
	if j.served == nil {
		j.served = replay.NewProgram(j.Timeline)
	}
	return j.served
}

// resized is the job with other sizes of its allocations, by the index of the buffer.
func (j *Job) resized(size func(i int) trace.Bytes) (*Job, error) {
	d := *j.Device
	d.Events = make([]trace.Event, len(j.Device.Events))
	d.Final, d.AddressesInvented = nil, true
	for i, e := range j.Device.Events {
		switch e.Action {
		case trace.ActionAlloc, trace.ActionFreeRequested, trace.ActionFreeCompleted, trace.ActionOOM:
		default:
			e.Action, e.Addr, e.Size = trace.ActionOther, 0, 0 // what the recorded allocator did
		}
		d.Events[i] = e
	}
	for i := range j.Timeline.Buffers {
		b := &j.Timeline.Buffers[i]
		for _, at := range []trace.Time{b.Start, b.RequestedEnd, b.CompletedEnd} {
			if at < trace.Time(len(d.Events)) && d.Events[at].Addr == b.Addr || at == b.Start {
				d.Events[at].Size = size(i)
			}
		}
	}
	t := *j.Trace
	t.Devices = []trace.Device{d}
	out := &Job{Trace: &t, Device: &t.Devices[0], Recorded: j.Recorded}
	var err error
	if out.Timeline, err = lifespan.Build(out.Device); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	out.recorded = j.recorded.Resized(out.Device)
	return out, nil
}
