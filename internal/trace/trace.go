// Package trace holds recorded allocation traces: the events of every device in the
// order in which the allocator saw them, the segments that it had, and its settings.
// It reads PyTorch memory snapshots (pickle), histories that stplan's runtime keeps
// (docs/history.md) and Parquet traces, and writes Parquet traces (docs/trace.md).
package trace

// Time is an instant of one device's timeline: the index of an entry in that device's
// list, from 0. Entries of all actions count. It is never a clock reading, since a
// quarter of neighbouring entries share a microsecond.
type Time int64

// Bytes is a size in bytes.
type Bytes int64

// Action says what the allocator did.
type Action uint8

// The actions of a PyTorch 2.11 snapshot. ActionOther is any action that this program
// does not know. Such an entry keeps its place in the timeline and has no effect.
const (
	ActionOther Action = iota
	ActionAlloc
	ActionFreeRequested
	ActionFreeCompleted
	ActionSegmentAlloc
	ActionSegmentFree
	ActionSegmentMap
	ActionSegmentUnmap
	ActionSnapshot
	ActionOOM
)

var actionNames = [...]string{
	ActionOther:         "other",
	ActionAlloc:         "alloc",
	ActionFreeRequested: "free_requested",
	ActionFreeCompleted: "free_completed",
	ActionSegmentAlloc:  "segment_alloc",
	ActionSegmentFree:   "segment_free",
	ActionSegmentMap:    "segment_map",
	ActionSegmentUnmap:  "segment_unmap",
	ActionSnapshot:      "snapshot",
	ActionOOM:           "oom",
}

// String is the action's name in a snapshot.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "other"
}

// ParseAction is the inverse of String. An unknown name is ActionOther.
func ParseAction(name string) Action {
	for a, n := range actionNames {
		if n == name {
			return Action(a)
		}
	}
	return ActionOther
}

// None is the index of nothing in one of a Trace's tables. It is parquet.None too.
const None int32 = -1

// Event is one entry of a device's list. Its Time is its index there.
type Event struct {
	// Addr is the device address. For ActionOOM it is the number of free bytes
	// that the driver reported, or, if addresses are invented, of those that the
	// process could have in all.
	Addr uint64
	// Size in bytes: for alloc and free as requested, not rounded; for segments as
	// mapped; for oom rounded; for snapshot all active bytes.
	Size Bytes
	// Stream is the raw handle of the stream that the block was allocated on.
	Stream uint64
	// TimeUS is Unix time in microseconds, 0 if the recording has none.
	TimeUS int64
	// Stack is an index into Trace.Stacks, or None.
	Stack int32
	// UserMetadata and CompileContext are indices into Trace.Strings, or None.
	UserMetadata   int32
	CompileContext int32
	// Pool is an index into Device.Pools, or -1 if the recording does not tell the
	// pool (before torch 2.12).
	Pool   int16
	Action Action
}

// Annotation is a named mark (record_function, Optimizer.step, …) on a
// device's timeline.
type Annotation struct {
	Name string
	// End is false for the start of the named range, true for its end.
	End    bool
	TimeUS int64
	// At is the index of the first event after the mark, len(Events) if there is
	// none.
	At Time
}

// BlockState is the state of a block in the allocator.
type BlockState uint8

// The states of a block.
const (
	BlockInactive    BlockState = iota // free
	BlockAllocated                     // in use
	BlockPendingFree                   // freed, but another stream may still use it
)

// Block is one piece of a segment.
type Block struct {
	Address uint64
	// Size is the number of bytes that the block occupies, with slack that the
	// allocator did not split off.
	Size Bytes
	// Requested is the size that the program asked for. It has no meaning if the
	// block is inactive.
	Requested Bytes
	State     BlockState
	Stack     int32 // index into Trace.Stacks, or None
}

// PoolID names a memory pool: (0,0) is the default pool, (n,0) a CUDA graph's private
// pool, (0,n) a user's MemPool.
type PoolID [2]int64

// Segment is memory that the allocator took from the driver: one cudaMalloc, or one
// contiguous mapped range of an expandable reservation. Blocks tile it in address
// order.
type Segment struct {
	Address    uint64
	Size       Bytes
	Stream     uint64
	Pool       PoolID
	Small      bool // serves requests of up to 1 MiB
	Expandable bool
	Blocks     []Block
}

// Device is the recording of one device.
type Device struct {
	// Ordinal is the device's index in the recording process.
	Ordinal     int
	Events      []Event
	Annotations []Annotation // by At, then in recorded order
	Pools       []PoolID     // what Event.Pool indexes
	// Final is the state when the recording was saved, by address.
	Final []Segment
	// Initial is the state when the recording began. It is empty if recording began
	// before the first allocation. It is exact if a base snapshot was given, and
	// otherwise inferred from the events and Final.
	Initial []Segment
	// InitialInferred says that Initial may differ from the state at that time.
	InitialInferred bool
	// AddressesInvented says that the recording has neither addresses nor segments: the
	// addresses of its events only keep blocks apart that live at the same time.
	AddressesInvented bool
}

// Frame is one line of a stack.
type Frame struct {
	File string
	Line int32
	Name string
}

// Stacks holds every distinct stack once. Stack i has the frames Frames[Index[k]] for
// k in [Bounds[i], Bounds[i+1]), innermost first.
type Stacks struct {
	Frames []Frame
	Index  []int32
	Bounds []int32 // one more than there are stacks; nil if there are none
}

// Len is the number of distinct stacks.
func (s *Stacks) Len() int { return max(0, len(s.Bounds)-1) }

// At returns the frames of stack i, innermost first, as indices into Frames.
func (s *Stacks) At(i int32) []int32 { return s.Index[s.Bounds[i]:s.Bounds[i+1]] }

// Settings are the allocator's settings when the recording was saved, as far as a
// snapshot has them.
type Settings struct {
	// Known is false if the recording has no settings at all.
	Known bool
	// Conf is the last settings string (PYTORCH_CUDA_ALLOC_CONF), "" if none.
	Conf string
	// MaxSplitSize is in bytes, -1 for no limit.
	MaxSplitSize               Bytes
	GarbageCollectionThreshold float64 // 0 is off
	ExpandableSegments         bool
	RoundupPower2Divisions     Divisions
}

// Trace is one recording: all the devices of one process.
type Trace struct {
	// Name is the name of the file, for messages.
	Name     string
	Devices  []Device // those with events, segments or annotations, by Ordinal
	Stacks   Stacks
	Strings  []string // what UserMetadata and CompileContext index
	Settings Settings
	// Notes are what a reader of results should know: that the initial state is
	// inferred, that the recording looks truncated, which actions are missing.
	Notes []string
}
