// Package simdevice is the runtime on a simulated device, whose memory is
// addresses only: what `replay` drives, and what compile tries a plan with. It
// needs the C runtime, which a build without cgo lacks (Built).
package simdevice

import (
	"errors"
	"fmt"

	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/cuda"
)

// Built says whether this build has the C runtime. If not, Open and Serve answer
// cuda.ErrNotBuilt.
const Built = cuda.Built

// The simulated device has more memory than any real one, and gives it in pieces
// of 2 MiB, as CUDA's virtual memory does.
const (
	capacity    = 1 << 50
	granularity = 2 << 20
)

// Device is the runtime on a simulated device, as package replay drives it: its
// addresses begin at 0.
type Device struct {
	device *cuda.Device
	memory uint64 // bytes that it can give
}

// Open makes a device that is served by an encoded plan's device of the given
// ordinal, or from the pool alone if plan is nil. A silent one keeps no record of
// what the runtime asks of it; replay's judge needs that record.
func Open(plan []byte, ordinal int, silent bool) (*Device, error) {
	return open(plan, ordinal, silent, capacity, 0)
}

// open opens a device with so many bytes, of which the process may take limit; 0 is no limit.
func open(plan []byte, ordinal int, silent bool, memory, limit uint64) (*Device, error) {
	d, err := cuda.Open(plan, ordinal, cuda.Options{Capacity: memory, Granularity: granularity, Partial: true, Silent: silent, Limit: limit})
	if err != nil {
		return nil, err
	}
	if limit != 0 {
		memory = limit
	}
	return &Device{d, memory}, nil
}

// Close frees the device.
func (d *Device) Close() { d.device.Close() }

// Prove tells, before the first Malloc, that an earlier run has followed the plan with this
// checksum.
func (d *Device) Prove(checksum uint64) { d.device.Prove(checksum) }

// StopMoving has memory stay where it is from now on.
func (d *Device) StopMoving() { d.device.StopMoving() }

// KeepHistory has the runtime keep its history in at most `most` bytes.
func (d *Device) KeepHistory(most uint64) error { return d.device.KeepHistory(most) }

// Step tells the history that a step of an optimizer, numbered from 0, has ended.
func (d *Device) Step(optimizer int) { d.device.Step(optimizer) }

// LearnDue tells that an iteration has ended, and says whether a plan is to be made of the
// history: after the first iterations, and again if later ones go beyond the plan.
func (d *Device) LearnDue(first int) bool { return d.device.LearnDue(first) }

// LearnMade tells that a plan is being made.
func (d *Device) LearnMade() { d.device.LearnMade() }

// WriteHistory writes the history as that of a device of the given ordinal.
func (d *Device) WriteHistory(path string, ordinal int) error {
	return d.device.WriteHistory(path, ordinal)
}

// Install has an encoded plan's device of the given ordinal serve the run from one of its next
// iterations on. The error is cuda.ErrNotInRun if the plan cannot begin in a run.
func (d *Device) Install(plan []byte, ordinal int) error { return d.device.Install(plan, ordinal) }

// Misplaced is how often the runtime asked for memory at an address within a granule: a defect.
func (d *Device) Misplaced() uint64 { return d.device.Misplaced() }

// Counters are what the runtime has counted.
func (d *Device) Counters() cuda.Counters { return d.device.Counters() }

// Malloc allocates size bytes for a stream. The source is a cuda.Source. The error is a
// *replay.LimitError if the device has no memory or no streams left.
func (d *Device) Malloc(size, stream uint64) (address uint64, source int, err error) {
	at, from, err := d.device.Malloc(size, stream)
	switch {
	case errors.Is(err, cuda.ErrNoMemory):
		err = &replay.LimitError{Problem: fmt.Sprintf("the simulated device has %d B of memory, and the program needs more", d.memory)}
	case errors.Is(err, cuda.ErrTooManyStreams):
		err = &replay.LimitError{Problem: "the program uses more streams than the runtime serves"}
	}
	return at - cuda.Base, int(from), err
}

// Free frees what Malloc returned.
func (d *Device) Free(address, stream uint64) error {
	return d.device.Free(address+cuda.Base, stream)
}

// RecordStream says that a stream uses an allocation besides its own.
func (d *Device) RecordStream(address, stream uint64) error {
	return d.device.RecordStream(address+cuda.Base, stream)
}

// BeginExchange has an exchange with another process begin, and returns its number.
func (d *Device) BeginExchange() uint64 { return d.device.BeginExchange() }

// AwaitExchange tells that the program has made a stream wait for an exchange, which is then over.
func (d *Device) AwaitExchange(number, stream uint64) { d.device.AwaitExchange(number, stream) }

var _ replay.Exchanging = (*Device)(nil)

// kinds are the kinds of operations in replay's terms.
var kinds = map[cuda.OperationKind]replay.Kind{
	cuda.Record: replay.Record, cuda.RecordWhole: replay.RecordWhole, cuda.Wait: replay.Wait, cuda.Done: replay.Done, cuda.Settled: replay.Settled,
	cuda.Carried: replay.Carried,
}

// Operations appends what the runtime asked of the device since the last call.
func (d *Device) Operations(into []replay.Operation) []replay.Operation {
	var from [16]cuda.Operation
	for _, o := range d.device.Operations(from[:0]) {
		op := replay.Operation{Kind: kinds[o.Kind], Stream: o.Stream, Event: o.Event}
		if o.Kind == cuda.Carried {
			op.From, op.To, op.Bytes = o.From-cuda.Base, o.To-cuda.Base, o.Bytes
		}
		into = append(into, op)
	}
	return into
}

// Serve serves a program by an encoded plan's device of the given ordinal, or from
// the pool alone if plan is nil, and says what that takes.
func Serve(program *replay.Program, plan []byte, ordinal int) (replay.Cost, error) {
	return ServeWithin(program, plan, ordinal, 0)
}

// ServeWithin is Serve on a device that has limit bytes to give, 0 for no limit. If they
// are not enough, the error is a *replay.LimitError.
func ServeWithin(program *replay.Program, plan []byte, ordinal int, limit int64) (replay.Cost, error) {
	d, err := open(plan, ordinal, true, capacity, uint64(limit))
	if err != nil {
		return replay.Cost{}, err
	}
	defer d.Close()
	if err := replay.Drive(program, d); err != nil {
		return replay.Cost{}, err
	}
	c := d.Counters()
	return replay.Cost{Reserved: int64(c.PeakReserved), Moved: int64(c.MovedBytes), Planned: int64(c.PlannedAllocations)}, nil
}

// FollowPool serves a program from the pool alone, and calls see after each request and
// free with the entry that it belongs to, -1 before the first, and the most bytes that the
// runtime has reserved since the call before.
func FollowPool(program *replay.Program, see func(at trace.Time, reserved trace.Bytes)) error {
	d, err := Open(nil, 0, true)
	if err != nil {
		return err
	}
	defer d.Close()
	var peak uint64
	return replay.Follow(program, d, func(at trace.Time) {
		c := d.Counters()
		now := c.ReservedBytes
		if c.PeakReserved > peak {
			peak, now = c.PeakReserved, c.PeakReserved
		}
		see(at, trace.Bytes(now))
	})
}
