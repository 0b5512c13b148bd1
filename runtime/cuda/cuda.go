//go:build cgo

package cuda

/*
#cgo CFLAGS: -std=c11 -O2 -Wall -Wextra
#cgo LDFLAGS: -lpthread -ldl
#include <stdlib.h>
#include "prim_host.h"
#include "stplan.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// Device is a device object. Its methods may be called from any goroutine.
type Device struct {
	prim   C.sp_prim
	device *C.stplan_device
	plans  []parsed
	taken  [64]C.sp_host_entry

	exchanging sync.Mutex
	exchanges  map[uint64]C.uint64_t // by the runtime's number: the simulated device's
}

// parsed is a plan, which outlives the device object that it is opened or installed with.
type parsed struct {
	plan *C.stplan_plan
	data unsafe.Pointer // its bytes
}

// Open makes a device object on a new simulated device. It serves the plan's device
// of this ordinal; without a plan if plan is nil. A *PlanError says that the plan is
// refused.
func Open(plan []byte, ordinal int, opt Options) (*Device, error) {
	d := &Device{}
	var of *C.stplan_plan
	if plan != nil {
		var err error
		if of, err = d.parse(plan); err != nil {
			return nil, err
		}
	}
	options := C.sp_host_options{
		base: Base, capacity: C.uint64_t(opt.Capacity), granularity: C.uint64_t(opt.Granularity), partial: cBool(opt.Partial),
		log: cBool(!opt.Silent), known_only: cBool(opt.KnownOnly),
	}
	if C.sp_host_open(&options, &d.prim) == 0 {
		d.closePlans()
		return nil, errors.New("out of host memory")
	}
	if status := C.stplan_open(&d.prim, of, C.int(ordinal), &d.device); status != C.STPLAN_OK {
		C.sp_host_drop(&d.prim)
		d.closePlans()
		return nil, statusError(status)
	}
	if opt.Limit > 0 {
		C.stplan_set_limit(d.device, C.uint64_t(opt.Limit))
	}
	return d, nil
}

// Prove tells, before the first Malloc, that an earlier run has followed the plan with this
// checksum: if it is the device's, its memory may come in larger granules.
func (d *Device) Prove(checksum uint64) { C.stplan_prove(d.device, C.uint64_t(checksum)) }

func (d *Device) parse(plan []byte) (*C.stplan_plan, error) {
	p := parsed{data: C.CBytes(plan)}
	message := (*C.char)(C.calloc(256, 1))
	defer C.free(unsafe.Pointer(message))
	if C.stplan_plan_parse(p.data, C.size_t(len(plan)), &p.plan, message, 256) != C.STPLAN_OK {
		C.free(p.data)
		return nil, &PlanError{C.GoString(message)}
	}
	d.plans = append(d.plans, p)
	return p.plan, nil
}

func (d *Device) closePlans() {
	for _, p := range d.plans {
		C.stplan_plan_close(p.plan)
		C.free(p.data)
	}
}

// Close gives all memory back and ends the object.
func (d *Device) Close() {
	C.stplan_close(d.device)
	d.closePlans()
}

// Install has an encoded plan's device of this ordinal serve the run from one of its next
// iterations on. A *PlanError says that the plan is refused, ErrNotInRun that it cannot begin
// in a run.
func (d *Device) Install(plan []byte, ordinal int) error {
	of, err := d.parse(plan)
	if err != nil {
		return err
	}
	if status := C.stplan_install(d.device, of, C.int(ordinal)); status != C.STPLAN_BAD_PLAN {
		return statusError(status)
	}
	return ErrNotInRun
}

// Malloc returns the address of a block of `size` bytes, and its source. The error is
// ErrNoMemory or ErrTooManyStreams.
func (d *Device) Malloc(size, stream uint64) (uint64, Source, error) {
	var source C.stplan_source
	var status C.stplan_status
	address := C.stplan_malloc(d.device, C.size_t(size), C.stplan_stream(stream), &source, &status)
	return uint64(address), Source(source), statusError(status)
}

// Free gives a block back, which `stream` used last. ErrBadPointer if there is none at
// the address.
func (d *Device) Free(address, stream uint64) error {
	return statusError(C.stplan_free(d.device, C.uint64_t(address), C.stplan_stream(stream)))
}

// RecordStream tells that a stream uses the block as well.
func (d *Device) RecordStream(address, stream uint64) error {
	return statusError(C.stplan_record_stream(d.device, C.uint64_t(address), C.stplan_stream(stream)))
}

// BeginExchange has an exchange with another process begin, and be under way on the simulated device
// until the program waits for it. It returns its number.
func (d *Device) BeginExchange() uint64 {
	number := C.stplan_exchange_begins(d.device)
	d.exchanging.Lock()
	if d.exchanges == nil {
		d.exchanges = map[uint64]C.uint64_t{}
	}
	d.exchanges[uint64(number)] = C.sp_host_exchange_begins(&d.prim)
	d.exchanging.Unlock()
	C.stplan_exchange_enqueued(d.device, number)
	return uint64(number)
}

// AwaitExchange tells that the program has made a stream wait for an exchange. Then it is over.
func (d *Device) AwaitExchange(number, stream uint64) {
	C.stplan_exchange_awaited(d.device, C.uint64_t(number), C.stplan_stream(stream))
	d.exchanging.Lock()
	defer d.exchanging.Unlock()
	C.sp_host_exchange_over(&d.prim, d.exchanges[number])
}

// KeepHistory has the device keep its history in at most `most` bytes of the host.
func (d *Device) KeepHistory(most uint64) error {
	return statusError(C.stplan_history_begin(d.device, C.uint64_t(most)))
}

// Step tells that a step of an optimizer, numbered from 0, has ended.
func (d *Device) Step(optimizer int) { C.stplan_history_step(d.device, C.uint(optimizer)) }

// LearnDue tells that an iteration has ended, and says whether a plan is to be made of the
// history: after the first iterations, and again if later ones go beyond the plan.
func (d *Device) LearnDue(first int) bool { return C.stplan_learn_due(d.device, C.uint(first), 0) != 0 }

// LearnDueAtEnd is LearnDue of a run that ends: whether one is to be made for the next run.
func (d *Device) LearnDueAtEnd(first int) bool {
	return C.stplan_learn_due(d.device, C.uint(first), 1) != 0
}

// LearnMade tells that a plan is being made.
func (d *Device) LearnMade() { C.stplan_learn_made(d.device) }

// WriteHistory writes the history as that of a device of the given ordinal.
func (d *Device) WriteHistory(path string, ordinal int) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	of := C.stplan_recorded{device: d.device, ordinal: C.int(ordinal)}
	return statusError(C.stplan_history_write(&of, 1, -1, name))
}

// Mark tells that a step of the program begins.
func (d *Device) Mark() { C.stplan_mark(d.device) }

// Pause gives idle memory back, and returns the bytes.
func (d *Device) Pause() (uint64, error) {
	var given C.uint64_t
	status := C.stplan_pause(d.device, &given)
	return uint64(given), statusError(status)
}

// Resume takes up to `most` bytes of that back, and returns how many. ErrNoMemory if the
// device has less.
func (d *Device) Resume(most uint64) (uint64, error) {
	var taken C.uint64_t
	status := C.stplan_resume(d.device, C.uint64_t(most), &taken)
	return uint64(taken), statusError(status)
}

// Survey says where reserved memory is.
func (d *Device) Survey() Memory {
	var m C.stplan_memory
	C.stplan_survey(d.device, &m)
	return Memory{
		Given: uint64(m.given), Idle: uint64(m.idle), Live: uint64(m.live),
		Beside: uint64(m.beside), Pinned: uint64(m.pinned), Plan: uint64(m.plan),
	}
}

// Occupy has another process have this much of the device's memory, or what there is.
func (d *Device) Occupy(bytes uint64) { C.sp_host_occupy(&d.prim, C.uint64_t(bytes)) }

// Misplaced is how often memory was asked for at an address within a granule, which no device
// gives: a defect of the runtime, which then does without.
func (d *Device) Misplaced() uint64 { return uint64(C.sp_host_misplaced(&d.prim)) }

// Pin keeps the physical memory of a live block's bytes where it is.
func (d *Device) Pin(address, size uint64) error {
	return statusError(C.stplan_pin(d.device, C.uint64_t(address), C.uint64_t(size)))
}

// StopMoving has memory stay where it is from now on.
func (d *Device) StopMoving() { C.stplan_stop_moving(d.device) }

// Capture has a stream of the device be captured into a graph from now on.
func (d *Device) Capture(stream uint64) { C.sp_host_capture(&d.prim, C.uint64_t(stream)) }

// Counters reads the counters.
func (d *Device) Counters() Counters {
	var c C.stplan_counters
	C.stplan_read(d.device, &c)
	counters, err := ReadCounters(unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Sizeof(c)))
	if err != nil {
		panic(err) // types.go and stplan.h are not of one version
	}
	return counters
}

// Operations appends what was asked of the device since the last call to `into`. Two
// goroutines must not call it at the same time.
func (d *Device) Operations(into []Operation) []Operation {
	for {
		n := int(C.sp_host_take(&d.prim, &d.taken[0], C.size_t(len(d.taken))))
		for _, e := range d.taken[:n] {
			into = append(into, Operation{
				Kind: OperationKind(e.kind), Stream: uint64(e.stream), Event: uint64(e.event),
				From: uint64(e.from), To: uint64(e.to), Bytes: uint64(e.bytes),
			})
		}
		if n < len(d.taken) {
			return into
		}
	}
}

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func statusError(status C.stplan_status) error {
	switch status {
	case C.STPLAN_OK:
		return nil
	case C.STPLAN_NO_MEMORY:
		return ErrNoMemory
	case C.STPLAN_BAD_POINTER:
		return ErrBadPointer
	case C.STPLAN_BAD_STREAM:
		return ErrTooManyStreams
	case C.STPLAN_BAD_DEVICE:
		return errors.New("the plan has no such device")
	}
	return fmt.Errorf("status %d of the runtime", int(status))
}
