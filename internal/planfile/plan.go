// Package planfile reads and writes the binary plan: where every buffer of a
// recorded process lies in one arena per device, and which reuses the device
// has to order. docs/planfile.md is the authority for the format. Encode and
// Decode are exact inverses: one plan has one byte string, and whatever Decode
// accepts Encode writes again byte for byte.
package planfile

import (
	"fmt"
	"math"
)

// Version is the format version that Encode writes and the newest that Decode
// reads.
const Version = 1

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

// nameOf is the name of v among names, or its number after what it is a number of.
func nameOf[T ~uint16 | ~uint32](v T, what string, names map[T]string) string {
	if name, ok := names[v]; ok {
		return name
	}
	return fmt.Sprintf("%s %d", what, uint32(v))
}

// EndKind picks the end of a slot's live range that the plan was made for.
type EndKind uint16

// With EndRequested memory is reused from the moment the program frees it, and
// Waits lists what the device has to order. With EndCompleted it is reused only
// after the recorded completion.
const (
	EndRequested EndKind = 1
	EndCompleted EndKind = 2
)

// String is the end's name in reports.
func (e EndKind) String() string {
	return nameOf(e, "end", map[EndKind]string{EndRequested: "requested", EndCompleted: "completed"})
}

// Advice is what a plan says of its own use.
type Advice uint16

// AdvicePool: the pool alone, without the plan, costs less.
const (
	AdviceNone Advice = 0
	AdvicePool Advice = 1
)

// String is what reports say of it: nothing without advice.
func (a Advice) String() string {
	return nameOf(a, "advice", map[Advice]string{
		AdviceNone: "",
		AdvicePool: "serve without the plan: the pool alone costs less",
	})
}

// BoundKind says why a lower bound is one.
type BoundKind uint32

const (
	// BoundLoad is the load at one instant: so many bytes are live then, and no
	// two of their buffers can share memory.
	BoundLoad BoundKind = 1
	// BoundWitness is above the load: a few slots need so many bytes though no
	// others were there.
	BoundWitness BoundKind = 2
	// BoundApart is of a plan where no byte is ever used by two streams: the sum,
	// over the streams, of the most bytes that are live at once on each. No plan
	// that keeps them apart takes fewer. Certificate.At is the first time at which the
	// stream with the largest load has it, the first stream among equals.
	BoundApart BoundKind = 3
)

// MaxWitness is the most slots of a witness: so few that all their layouts can
// be tried.
const MaxWitness = 24

// SlotFlags marks slots that are not simply allocated and freed in their phase.
type SlotFlags uint32

// A resident slot is never freed (in mode periodic: never again usable by
// others), an initial one was live before the recording began. An entering slot
// is live when its body begins and is freed in it, a leaving one is allocated in
// its phase and live at its end: the two sides of a cell. A stray outlives its
// body and has no place in the plan.
const (
	SlotResident SlotFlags = 1 << iota
	SlotInitial
	SlotEntering
	SlotLeaving
	SlotStray

	slotFlagsKnown = SlotResident | SlotInitial | SlotEntering | SlotLeaving | SlotStray
)

// NoCell is the cell of a slot that does not cross the seam.
const NoCell = math.MaxUint32

// WaitKind says why a reuse has to be ordered on the device.
type WaitKind uint32

// WaitCrossStream: the earlier owner was allocated on another stream.
// WaitPending: its free had not completed when the later one began. WaitSeam is
// no reason but says which slot is meant: the earlier one is of the phase before,
// the prologue or the pass of the same body before this one.
const (
	WaitCrossStream WaitKind = 1 << iota
	WaitPending
	WaitSeam

	waitReasons    = WaitCrossStream | WaitPending
	waitKindsKnown = waitReasons | WaitSeam
)

// PhaseKind says how often a phase is served.
type PhaseKind uint32

// The prologue is served once and first. After it bodies follow one another for
// ever, in any order. An interlude is a body that leaves all cells filled, as it
// finds them.
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

// Device is the plan of one device. Sizes and offsets are bytes. Times are event
// indices of the device's list in the recording; in a body they count its
// allocations.
type Device struct {
	Ordinal     uint32 // index of the device in the recorded process
	Rank        int32  // of the process in its job, -1 where unknown; the same for all devices
	Mode        Mode
	End         EndKind
	Advice      Advice
	Fingerprint [32]byte // of the recorded events: trace.Device.Fingerprint
	Events      uint64   // entries in the device's list; no time is later
	Alignment   uint64   // of every offset and size: a power of two, at least 512
	ArenaBytes  uint64   // the makespan: the largest offset + size

	// The account, in requested sizes rounded up to 512 B: the largest load
	// with slots living to their requested and to their completed end, and the
	// most bytes that the recorded allocator held.
	PeakAllocated, PeakActive, RecordedPeakReserved uint64

	Iterations  uint32 // iterations found in the recording; 0 if none
	SteadyStart uint64 // where the first steady one starts; in mode periodic the cut, where the prologue ends
	Certificate Certificate
	SteadyEnd   uint64 // mode periodic: the event after the last pass, otherwise 0
	StrayBytes  uint64 // mode periodic: aligned bytes of strays in a pass, the largest, otherwise 0

	Streams []uint64 // raw stream handles, in the order of their first slot
	Slots   []Slot   // phase by phase; a prologue's by Start, the initial ones first
	Waits   []Wait   // by Later, then Earlier

	// Mode periodic only: the prologue, then the bodies in the order of their
	// first pass; and every recorded pass of a body, in order.
	Phases []Phase
	Passes []Pass
}

// SlotEnd is the end of slot i's live range under the device's End.
func (d *Device) SlotEnd(i int) uint64 {
	if d.End == EndCompleted {
		return d.Slots[i].CompletedEnd
	}
	return d.Slots[i].RequestedEnd
}

// Certificate is the proof of how good the plan is: no plan takes fewer than
// LowerBound bytes, because of what is live at At: an event, in mode periodic a
// time of the plan's phases put one after the other.
type Certificate struct {
	Kind       BoundKind
	LowerBound uint64
	At         uint64
	Gap        uint64 // ArenaBytes - LowerBound, in bytes

	// Witness, with BoundWitness only, are the slots that need LowerBound bytes
	// by themselves, ascending. At is 0 then.
	Witness []uint32
}

// Slot is one buffer's place. Its live range is half-open and has two ends, of
// which Device.End picks one. In mode periodic the slots of a body are those of
// all its recorded passes, merged: their ends are the latest, their sizes the
// largest.
type Slot struct {
	// Times. In the prologue a resident or leaving slot ends where it does; in
	// a body an allocation starts at its ordinal, an entering slot at 0, and
	// ends are counted in allocations begun. A completed end beyond the phase
	// goes on in the time of the body that follows.
	Start, RequestedEnd, CompletedEnd uint64
	Offset, Size                      uint64 // bytes, multiples of Device.Alignment; 0 of a stray
	Requested, Least                  uint64 // bytes the program asked for: the most and the fewest
	Stream                            uint32 // index into Device.Streams
	Flags                             SlotFlags
	Occurrences                       uint32 // recorded passes that had it; 1 outside of bodies
	Cell                              uint32 // of an entering or leaving slot, otherwise NoCell
}

// Wait says that slot Later takes over bytes whose last owner was slot Earlier,
// and that the device has to order the two. Both are indices into Device.Slots.
type Wait struct {
	Later, Earlier uint32
	Kind           WaitKind
}

// Phase is a stretch of the run: the prologue, one kind of steady iteration, or
// what the program does between them.
type Phase struct {
	Kind        PhaseKind
	Occurrences uint32 // recorded passes; 1 of the prologue
	Length      uint64 // events of the prologue; allocation slots of a body

	FirstSlot, SlotCount uint64 // Device.Slots[FirstSlot:FirstSlot+SlotCount]

	Makespan   uint64 // the largest offset + size of what is live in it
	LowerBound uint64 // its largest load, in requested sizes
	BoundAt    uint64 // a time of the phase where that is reached
}

// Pass is one recorded steady iteration. It ends where the next one begins, the
// last at Device.SteadyEnd.
type Pass struct {
	FirstEvent uint64
	Phase      uint32 // index into Device.Phases, a body

	// Present has a bit for each allocation slot of the body, entering slots
	// not counted: bit k%64 of word k/64 is set where slot k occurred. The i-th
	// allocation of the pass is the slot of the i-th set bit.
	Present []uint64
}

// presenceWords is how many words the presence of a pass takes.
func presenceWords(slots uint64) uint64 { return slots/64 + min(1, slots%64) }
