// Package planfile reads and writes the binary plan: where every buffer of a
// recorded process lies in one arena per device, and which reuses the device
// has to order. docs/planfile.md is the authority for the format. Encode and
// Decode are exact inverses: one plan has one byte string, and whatever Decode
// accepts Encode writes again byte for byte.
package planfile

import "fmt"

// Version is the format version that Encode writes and the newest that Decode
// reads.
const Version = 1

// Mode says what the slots of a device cover.
type Mode uint32

// Numbers of modes are never reused. ModePeriodic is reserved: version 1 has no
// sections for its phases, and its readers refuse it.
const (
	ModeRecorded Mode = 1 // the whole recorded process, once
	ModePeriodic Mode = 2 // a prologue once, then one steady body for ever
)

// String is the mode's name in reports.
func (m Mode) String() string {
	switch m {
	case ModeRecorded:
		return "recorded"
	case ModePeriodic:
		return "periodic"
	}
	return fmt.Sprintf("mode %d", uint32(m))
}

// EndKind picks the end of a slot's live range that the plan was made for.
type EndKind uint32

// With EndRequested memory is reused from the moment the program frees it, and
// Waits lists what the device has to order. With EndCompleted it is reused only
// after the recorded completion.
const (
	EndRequested EndKind = 1
	EndCompleted EndKind = 2
)

// String is the end's name in reports.
func (e EndKind) String() string {
	switch e {
	case EndRequested:
		return "requested"
	case EndCompleted:
		return "completed"
	}
	return fmt.Sprintf("end %d", uint32(e))
}

// BoundKind says why a lower bound is one.
type BoundKind uint32

// BoundLoad is the load at one instant: so many bytes are live then, and no two
// of their buffers can share memory.
const BoundLoad BoundKind = 1

// SlotFlags marks slots whose live range the recording does not fully show.
type SlotFlags uint32

// A resident slot is never freed in the recording, an initial one was live
// before it began.
const (
	SlotResident SlotFlags = 1 << iota
	SlotInitial

	slotFlagsKnown = SlotResident | SlotInitial
)

// WaitKind says why a reuse has to be ordered on the device.
type WaitKind uint32

// WaitCrossStream: the earlier owner was allocated on another stream.
// WaitPending: its free had not completed when the later one began.
const (
	WaitCrossStream WaitKind = 1 << iota
	WaitPending

	waitKindsKnown = WaitCrossStream | WaitPending
)

// Plan is the whole file: the devices of one process.
type Plan struct {
	Producer string   // the program that wrote it, e.g. "stplan 0.1.0"
	Devices  []Device // by Ordinal, at least one
}

// Device is the plan of one device. Sizes and offsets are bytes; times are
// event indices of the device's list in the recording.
type Device struct {
	Ordinal     uint32 // index of the device in the recorded process
	Rank        int32  // of the process in its job, -1 where unknown; the same for all devices
	Mode        Mode
	End         EndKind
	Fingerprint [32]byte // of the recorded events: trace.Device.Fingerprint
	Events      uint64   // entries in the device's list; no time is later
	Alignment   uint64   // of every offset and size: a power of two, at least 512
	ArenaBytes  uint64   // the makespan: the largest offset + size

	// The account, in requested sizes rounded up to 512 B: the largest load
	// with slots living to their requested and to their completed end, and the
	// most bytes that the recorded allocator held.
	PeakAllocated, PeakActive, RecordedPeakReserved uint64

	Iterations  uint32 // iterations found in the recording; 0 if none
	SteadyStart uint64 // where the first steady one starts
	Certificate Certificate

	Streams []uint64 // raw stream handles, in the order of their first slot
	Slots   []Slot   // by Start; the initial ones first
	Waits   []Wait   // by Later, then Earlier
}

// SlotEnd is the end of slot i's live range under the device's End.
func (d *Device) SlotEnd(i int) uint64 {
	if d.End == EndCompleted {
		return d.Slots[i].CompletedEnd
	}
	return d.Slots[i].RequestedEnd
}

// Certificate is the proof of how good the plan is: no plan takes fewer than
// LowerBound bytes, because of what is live at event At.
type Certificate struct {
	Kind       BoundKind
	LowerBound uint64
	At         uint64
	Gap        uint64 // ArenaBytes - LowerBound, in bytes
}

// Slot is one buffer's place. Its live range is half-open and has two ends, of
// which Device.End picks one.
type Slot struct {
	Start, RequestedEnd, CompletedEnd uint64 // times; a resident slot ends at Device.Events
	Offset, Size                      uint64 // bytes, multiples of Device.Alignment
	Requested                         uint64 // bytes the program asked for
	Stream                            uint32 // index into Device.Streams
	Flags                             SlotFlags
}

// Wait says that slot Later takes over bytes whose last owner was slot Earlier,
// and that the device has to order the two. Both are indices into Device.Slots.
type Wait struct {
	Later, Earlier uint32
	Kind           WaitKind
}
