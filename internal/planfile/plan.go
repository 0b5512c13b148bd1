// Package planfile reads and writes the binary plan: the offset of every buffer of a
// recorded process in one arena per device, and the reuses of memory that the device has
// to order. docs/planfile.md is the authority for the format. Encode and Decode are exact
// inverses: a plan has one byte string, and Encode writes every file that Decode accepts
// again byte for byte.
package planfile

import (
	"fmt"
	"math"
)

// Versions of the format. Encode writes the one that the plan demands, and Decode reads
// both: Version is that of a plan in which every slot has a place of its own, and
// VersionShares, the newest, that of a plan in which some slot shares its place.
const (
	Version       = 1
	VersionShares = 2
)

// Mode says what the slots of a device cover.
type Mode uint32

// Numbers of modes are never reused.
const (
	ModeRecorded Mode = 1 // the whole recorded process, once
	ModePeriodic Mode = 2 // a prologue once, then steady bodies for ever
)

// String is the mode's name in reports.
func (m Mode) String() string {
	return nameOf(m, "mode", map[Mode]string{ModeRecorded: "recorded", ModePeriodic: "periodic"})
}

// nameOf is the name of v, or what and its number if it has no name.
func nameOf[T ~uint16 | ~uint32](v T, what string, names map[T]string) string {
	if name, ok := names[v]; ok {
		return name
	}
	return fmt.Sprintf("%s %d", what, uint32(v))
}

// EndKind is the end of live ranges that the plan was made for.
type EndKind uint16

// With EndRequested memory is reused as soon as the program has freed it, and Waits lists
// the reuses that the device has to order. With EndCompleted memory is reused only after
// the recorded completion of the free.
const (
	EndRequested EndKind = 1
	EndCompleted EndKind = 2
)

// String is the end's name in reports.
func (e EndKind) String() string {
	return nameOf(e, "end", map[EndKind]string{EndRequested: "requested", EndCompleted: "completed"})
}

// Advice says whether a plan should be used.
type Advice uint16

// With AdvicePool the recording was served at less cost from one pool, without the plan.
const (
	AdviceNone Advice = 0
	AdvicePool Advice = 1
)

// String is the advice in reports, "" for none.
func (a Advice) String() string {
	return nameOf(a, "advice", map[Advice]string{
		AdviceNone: "",
		AdvicePool: "serve without the plan: the pool alone costs less",
	})
}

// BoundKind says what proves a lower bound.
type BoundKind uint32

const (
	// BoundLoad is the load at one time: the bytes live at that time. No two buffers that
	// are live at one time can share memory.
	BoundLoad BoundKind = 1
	// BoundWitness is above the load: a few slots need that many bytes by themselves.
	BoundWitness BoundKind = 2
	// BoundApart is the bound of a plan in which no byte is ever used by two streams: the
	// sum of the max loads of the streams. No plan that keeps the streams apart takes
	// fewer bytes. Certificate.At is the first time at which the stream with the largest
	// max load has it, the first stream among equals.
	BoundApart BoundKind = 3
)

// MaxWitness is the largest number of slots of a witness. A verifier tries all their
// layouts, so it bounds a search that is exponential in it.
const MaxWitness = 24

// SlotFlags marks slots that are not simply allocated and freed in their phase.
type SlotFlags uint32

// A resident slot is never freed; in mode periodic its place is never reused. An
// initial slot was live before the recording began. The two sides of a cell are a
// leaving slot, which is allocated in its phase and live at its end, and an entering
// slot, which is live when its body begins and is freed in it. A stray outlives its
// body and has no place in the plan. A sharing slot has its place together with an
// earlier slot of its phase, its holder: data decide how many bytes each of the two
// takes, but not how many they take together. Its Cell is the index of the holder in
// Device.Slots.
const (
	SlotResident SlotFlags = 1 << iota
	SlotInitial
	SlotEntering
	SlotLeaving
	SlotStray
	SlotShares

	slotFlagsKnown = SlotResident | SlotInitial | SlotEntering | SlotLeaving | SlotStray | SlotShares
)

// NoCell is the cell of a slot that neither crosses the seam nor shares its place.
const NoCell = math.MaxUint32

// WaitKind says why a reuse has to be ordered on the device.
type WaitKind uint32

// WaitCrossStream: the earlier slot was allocated on another stream, and the wait is for
// all that any stream had been given by its free. WaitPending: its free had not completed
// when the later slot began, and the wait is for what it was waiting for. WaitSeam is not a
// reason. It says that the earlier slot belongs to the phase before: to the prologue, or to
// the pass of the same body before this one.
const (
	WaitCrossStream WaitKind = 1 << iota
	WaitPending
	WaitSeam

	waitReasons    = WaitCrossStream | WaitPending
	waitKindsKnown = waitReasons | WaitSeam
)

// PhaseKind says how often a phase is served.
type PhaseKind uint32

// The prologue is served once, before all bodies. Then bodies follow one another for
// ever, in any order. An interlude is a body that leaves all cells filled, as it finds
// them.
const (
	PhasePrologue  PhaseKind = 1
	PhaseBody      PhaseKind = 2
	PhaseInterlude PhaseKind = 3
)

// String is the kind's name in reports.
func (k PhaseKind) String() string {
	return nameOf(k, "phase kind", map[PhaseKind]string{
		PhasePrologue: "prologue", PhaseBody: "body", PhaseInterlude: "interlude",
	})
}

// Plan is the whole file: the devices of one process.
type Plan struct {
	Producer string   // the program that wrote it, e.g. "stplan 0.1.0"
	Devices  []Device // by Ordinal, at least one
}

// Version is the format version that the plan demands. It is not stored in a plan in
// memory, so that a plan has one byte string only.
func (p *Plan) Version() uint32 {
	for i := range p.Devices {
		if p.Devices[i].Shares() {
			return VersionShares
		}
	}
	return Version
}

// Device is the plan of one device. Sizes and offsets are bytes. Times are event
// indices of the device's list in the recording; in a body they count its
// allocations.
type Device struct {
	Ordinal     uint32 // index of the device in the recorded process, up to 2^31 - 1
	Rank        int32  // of the process in its job, -1 if unknown; the same for all devices
	Mode        Mode
	End         EndKind
	Advice      Advice
	Fingerprint [32]byte // of the recorded program: trace.Device.HasFingerprint
	Events      uint64   // number of entries in the device's list; no time is later
	Alignment   uint64   // of every offset and size: a power of two, at least 512
	ArenaBytes  uint64   // the makespan: the largest offset + size

	// PeakAllocated and PeakActive are the max loads with slots live to their requested
	// and to their completed end, in requested sizes rounded up to 512 B.
	// RecordedPeakReserved is the most bytes that the recorded allocator held.
	PeakAllocated, PeakActive, RecordedPeakReserved uint64

	Iterations  uint32 // number of iterations in the recording, 0 if none were found
	SteadyStart uint64 // event at which the first steady iteration starts; in mode periodic the cut
	Certificate Certificate
	SteadyEnd   uint64 // mode periodic: the event after the last pass; otherwise 0
	StrayBytes  uint64 // mode periodic: the largest sum of the aligned bytes of strays of a pass; otherwise 0

	Streams []uint64 // their names, in the order of their first slot: numbers from 0, or the recording's handles
	Slots   []Slot   // phase by phase; a prologue's by Start, the initial ones first
	Waits   []Wait   // by Later, then Earlier

	// Mode periodic only: the prologue, then the bodies in the order of their
	// first pass; and every recorded pass of a body, in order.
	Phases []Phase
	Passes []Pass
}

// SlotEnd is the end of slot i's own live range under the device's End. A holder's place is
// taken for longer: see KeptEnds.
func (d *Device) SlotEnd(i int) uint64 {
	if d.End == EndCompleted {
		return d.Slots[i].CompletedEnd
	}
	return d.Slots[i].RequestedEnd
}

// Certificate says how good the plan is at least: no plan takes fewer than LowerBound
// bytes, because of what is live at time At. At is an event, or in mode periodic a plan
// time, in which the phases follow one another.
type Certificate struct {
	Kind       BoundKind
	LowerBound uint64
	At         uint64
	Gap        uint64 // ArenaBytes - LowerBound, in bytes

	// Witness is empty but with BoundWitness: the indices of the slots that need
	// LowerBound bytes by themselves, ascending. At is 0 then.
	Witness []uint32
}

// Slot is one buffer's place. Its live range is half-open and has two ends, of which
// Device.End picks one. In mode periodic the slots of a body are those of all its
// recorded passes, merged: with the latest ends and the largest sizes.
type Slot struct {
	// Start and the two ends are times. In the prologue a resident or leaving slot ends
	// with it. In a body an allocation starts at its ordinal and an entering slot at 0,
	// and ends are numbers of allocations begun. A completed end after the phase is the
	// phase's length plus a time of the body that follows.
	Start, RequestedEnd, CompletedEnd uint64
	Offset, Size                      uint64 // bytes, multiples of Device.Alignment; 0 for a stray, those of its holder for a sharing slot
	Requested, Least                  uint64 // bytes that the program asked for: the most and the fewest
	Stream                            uint32 // index into Device.Streams
	Flags                             SlotFlags
	Occurrences                       uint32 // number of recorded passes that had it; 1 outside of bodies
	Cell                              uint32 // of an entering or leaving slot; of a sharing one its holder; otherwise NoCell
}

// Wait says that slot Later takes over bytes whose last owner was slot Earlier,
// and that the device has to order the two. Both are indices into Device.Slots.
type Wait struct {
	Later, Earlier uint32
	Kind           WaitKind
}

// Phase is a stretch of the run: the prologue, one kind of steady iteration, or what the
// program does between two of them.
type Phase struct {
	Kind        PhaseKind
	Occurrences uint32 // number of recorded passes; 1 for the prologue
	Length      uint64 // number of events of the prologue, or of allocation slots of a body

	FirstSlot, SlotCount uint64 // Device.Slots[FirstSlot:FirstSlot+SlotCount]

	Makespan   uint64 // the largest offset + size of the slots live in it, in bytes
	LowerBound uint64 // its max load, in requested sizes rounded up to 512 B, and shared places whole
	BoundAt    uint64 // a time of the phase with that load
}

// Pass is one recorded steady iteration. It ends where the next one begins, and the last
// one at Device.SteadyEnd.
type Pass struct {
	FirstEvent uint64
	Phase      uint32 // index into Device.Phases, a body

	// Present has a bit for each allocation slot of the body, without the entering slots:
	// bit k%64 of word k/64 is set if slot k occurred. The i-th allocation of the pass is
	// the slot of the i-th set bit.
	Present []uint64
}

// presenceWords is the number of words that the presence of a pass takes, for a body with
// that many allocation slots.
func presenceWords(slots uint64) uint64 { return slots/64 + min(1, slots%64) }
