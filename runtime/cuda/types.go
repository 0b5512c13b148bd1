// Package cuda binds the C runtime of this folder, which serves device memory by
// a plan, to its primitives without a device, for replay and tests. stplan.h is
// the authority for what the functions mean; a training process loads the same
// C sources without Go.
package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Base is the address of a host device's memory: offsets are addresses less
// it. It is not 0, which means no memory.
const Base = 1 << 40

// Options describes a device that is none: its memory is addresses only.
type Options struct {
	Capacity    uint64 // bytes, more than any request
	Granularity uint64 // bytes that growth comes in: a power of two, at least 512
	Partial     bool   // grows in place and gives parts back, as virtual memory does
	Silent      bool   // keeps no Operations
	Limit       uint64 // bytes that may be reserved; 0 is no limit
}

// Source says where a block came from.
type Source int

// The sources of stplan.h.
const (
	FromPlan Source = 0
	FromGap  Source = 1
	FromGrow Source = 2
)

// State says how the plan is doing.
type State int

// The states of stplan.h.
const (
	NoPlan   State = 0
	Prologue State = 1
	Body     State = 2
	Ended    State = 3
	Off      State = 4
	Declined State = 5
)

// Counters are those of stplan.h.
type Counters struct {
	State                            State
	AllocatedBytes, PeakAllocated    uint64
	ReservedBytes, PeakReserved      uint64
	Allocations, AllocationBytes     uint64
	PlannedAllocations, PlannedBytes uint64
	Frees, RefusedFrees, Failed      uint64
	Growths, Clashes                 uint64
	DriftEvents, Resyncs             uint64
	Waits, EventsRecorded            uint64
	MovedBytes                       uint64
	DisplacedAllocations             uint64
}

// fields are the numbers behind State, in the order of stplan.h.
func (c *Counters) fields() []*uint64 {
	return []*uint64{
		&c.AllocatedBytes, &c.PeakAllocated,
		&c.ReservedBytes, &c.PeakReserved,
		&c.Allocations, &c.AllocationBytes,
		&c.PlannedAllocations, &c.PlannedBytes,
		&c.Frees, &c.RefusedFrees, &c.Failed,
		&c.Growths, &c.Clashes,
		&c.DriftEvents, &c.Resyncs,
		&c.Waits, &c.EventsRecorded,
		&c.MovedBytes,
		&c.DisplacedAllocations,
	}
}

// ReadCounters decodes what stplan_share keeps in a file: the struct of stplan.h
// as it is in the memory of a process of this machine. A process may have been
// killed while it wrote, and a newer runtime may count more; neither is an error.
func ReadCounters(data []byte) (Counters, error) {
	var c Counters
	fields := c.fields()
	known := 2 + len(fields) // `fields` and `state` come first
	if len(data) < 8*known {
		return Counters{}, fmt.Errorf("counters: expected at least %d bytes, found %d", 8*known, len(data))
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(data[8*i:]) }
	if n := word(0); n < uint64(known) {
		return Counters{}, fmt.Errorf("counters: expected at least %d fields, found %d", known, n)
	}
	c.State = State(word(1))
	for i, field := range fields {
		*field = word(2 + i)
	}
	return c, nil
}

// Operation is what the runtime asked of the device: an event recorded on a
// stream, a stream made to wait for an event, or the host waiting for all streams.
type Operation struct {
	Stream uint64
	Event  uint64 // numbered from 0
	Wait   bool
	Host   bool // then nothing else counts
}

// ErrNoMemory is the answer where the device or the limit has no memory left.
var ErrNoMemory = errors.New("out of device memory")

// ErrBadPointer is the answer to a double or foreign free.
var ErrBadPointer = errors.New("not a live block")

// PlanError is what the C reader says of a plan: the class of the error, a
// colon, and the rule that is broken.
type PlanError struct{ Message string }

func (e *PlanError) Error() string { return e.Message }

// ErrNotBuilt is the answer of a build without cgo.
var ErrNotBuilt = errors.New("this stplan was built without cgo and holds no runtime")
