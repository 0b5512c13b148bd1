// Package cuda binds the C runtime of this folder, which serves device memory by
// a plan, to its primitives without a device, for replay and tests. stplan.h is
// the authority for what the functions mean; a training process loads the same
// C sources without Go.
package cuda

import "errors"

// Base is the address of a host device's memory: offsets are addresses less
// it. It is not 0, which means no memory.
const Base = 1 << 40

// Options describes a device that is none: its memory is addresses only.
type Options struct {
	Capacity    uint64 // bytes, more than any request
	Granularity uint64 // bytes that growth comes in: a power of two, at least 512
	Partial     bool   // grows in place and gives parts back, as virtual memory does
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
}

// Operation is what the runtime asked of the device: an event recorded on a
// stream, or a stream made to wait for an event.
type Operation struct {
	Stream uint64
	Event  uint64 // numbered from 0
	Wait   bool
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
