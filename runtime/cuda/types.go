// Package cuda binds the C runtime of this folder, which serves device memory by a
// plan, to its primitives of a simulated device, for replay and tests. stplan.h is
// the authority for what the functions mean. A training process loads the same C
// sources without Go.
package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Base is the address at which a simulated device's memory begins. It is not 0,
// which means no memory.
const Base = 1 << 40

// Options describes a simulated device: its memory is addresses only.
type Options struct {
	Capacity    uint64 // bytes, more than any request
	Granularity uint64 // bytes of a granule, the unit of growth: a power of two, at least 512
	Partial     bool   // memory is virtual: it grows in place, and parts are given back
	Silent      bool   // Operations are not kept
	KnownOnly   bool   // the device has no events of the whole device, as with drivers before 12.5
	Limit       uint64 // bytes that may be reserved; 0 is no limit
}

// Source is the kind of memory that a block came from.
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

// Memory is the stplan_memory of stplan.h, in bytes.
type Memory struct{ Given, Idle, Live, Beside, Pinned, Plan uint64 }

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
	Installs                         uint64
	FollowedPlan                     uint64
	FollowedBytes, FittingBytes      uint64
	PlanGranuleBytes                 uint64
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
		&c.Installs,
		&c.FollowedPlan,
		&c.FollowedBytes, &c.FittingBytes,
		&c.PlanGranuleBytes,
	}
}

// ReadCounters decodes what stplan_share keeps in a file: the struct of stplan.h as
// it is in the memory of a process of this machine. It is an error if data is
// shorter than the struct, or says that it has fewer fields. It is none if the
// process was killed while it wrote, or if a newer runtime counts more.
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

// Operation is what the runtime asked of the device.
type Operation struct {
	Kind   OperationKind
	Stream uint64 // of Record and Wait
	Event  uint64 // numbered from 0; not of Settled and Carried

	From, To, Bytes uint64 // of Carried
}

// OperationKind is the kind of an Operation: sp_host_kind of prim_host.h.
type OperationKind int

// The kinds of prim_host.h.
const (
	Record      OperationKind = 0 // an event is recorded on a stream
	RecordWhole OperationKind = 1 // an event of the whole device is recorded
	Wait        OperationKind = 2 // a stream waits for an event
	Done        OperationKind = 3 // the host has seen that an event is done
	Settled     OperationKind = 4 // the host has waited for everything
	Carried     OperationKind = 5 // memory at From is also at To, where it will stay
)

// ErrNoMemory is returned if the device or the limit has no memory left.
var ErrNoMemory = errors.New("out of device memory")

// ErrTooManyStreams is returned for an allocation on one stream more than a device has room
// for.
var ErrTooManyStreams = errors.New("too many streams")

// ErrNotInRun is returned for a plan that cannot begin in a run that goes on: it is not
// periodic, or says that it does not pay.
var ErrNotInRun = errors.New("the plan cannot begin in a run")

// ErrBadPointer is returned for a double or foreign free.
var ErrBadPointer = errors.New("not a live block")

// PlanError is the C reader's reason for refusing a plan: the class of the error, a
// colon, and the rule that is broken.
type PlanError struct{ Message string }

func (e *PlanError) Error() string { return e.Message }

// ErrNotBuilt is returned by a build without cgo.
var ErrNotBuilt = errors.New("this stplan was built without cgo and holds no runtime")
