// Package trace holds recorded allocation traces: the events of every device
// in the order the allocator saw them, the segments it had, and the settings
// it ran under. It reads PyTorch memory snapshots (pickle) and Parquet traces,
// and writes Parquet traces (docs/trace.md).
package trace

// Time is an instant of one device's timeline: the 0-based index of an entry
// in that device's list, every entry counted whatever its action. It is never
// a clock reading: a quarter of neighbouring entries share a microsecond.
type Time int64

// Bytes is a size in bytes.
type Bytes int64

// Action says what the allocator did.
type Action uint8

// The actions of a PyTorch 2.11 snapshot. ActionOther stands for a kind this
// version does not know; it keeps its place in the timeline and means nothing.
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

// ParseAction is the inverse of String; an unknown name is ActionOther.
func ParseAction(name string) Action {
	for a, n := range actionNames {
		if n == name {
			return Action(a)
		}
	}
	return ActionOther
}

// None marks an absent index into one of a Trace's tables.
const None int32 = -1

// Event is one entry of a device's list. Its Time is its index there.
type Event struct {
	// Addr is the device address; for ActionOOM it holds the free bytes that
	// the driver reported instead.
	Addr uint64
	// Size in bytes: as requested, unrounded, for alloc and free; as mapped for
	// segments; rounded for oom; total active bytes for snapshot.
	Size Bytes
	// Stream is the raw stream handle that the block was allocated on.
	Stream uint64
	// TimeUS is Unix time in microseconds, 0 where the recording has none.
	TimeUS int64
	// Stack indexes Trace.Stacks, None without one.
	Stack int32
	// UserMetadata and CompileContext index Trace.Strings, None without one.
	UserMetadata   int32
	CompileContext int32
	// Pool indexes Device.Pools, -1 where the recording does not say (before
	// torch 2.12).
	Pool   int16
	Action Action
}

// Annotation is a named mark (record_function, Optimizer.step, …) on a
// device's timeline.
type Annotation struct {
	Name string
	// End is false where the named range starts, true where it ends.
	End    bool
	TimeUS int64
	// At places the mark: it lies before the event with this index and after
	// its predecessor. len(Events) places it after the last.
	At Time
}

// BlockState is what the allocator says of a block.
type BlockState uint8

// A block is in use, waiting for another stream to let go of it, or free.
const (
	BlockInactive BlockState = iota
	BlockAllocated
	BlockPendingFree
)

// Block is one piece of a segment.
type Block struct {
	Address uint64
	// Size is what the block occupies, unsplit slack included.
	Size Bytes
	// Requested is what the program asked for; meaningless when inactive.
	Requested Bytes
	State     BlockState
	Stack     int32 // index into Trace.Stacks, or None
}

// PoolID names a memory pool: (0,0) the default, (n,0) a CUDA graph's private
// pool, (0,n) a user MemPool.
type PoolID [2]int64

// Segment is memory the allocator took from the driver: one cudaMalloc, or one
// contiguous mapped range of an expandable reservation. Blocks tile it in
// address order.
type Segment struct {
	Address    uint64
	Size       Bytes
	Stream     uint64
	Pool       PoolID
	Small      bool // belongs to the pool of blocks up to 1 MiB
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
	// Final is the state when the recording was dumped, by address.
	Final []Segment
	// Initial is the state when it began: exact with a base snapshot,
	// otherwise inferred from the events and Final. Empty where recording
	// began before the first allocation.
	Initial         []Segment
	InitialInferred bool
}

// Frame is one line of a stack.
type Frame struct {
	File string
	Line int32
	Name string
}

// Stacks holds every distinct stack once. Stack i is the frames
// Frames[Index[k]] for k in [Bounds[i], Bounds[i+1]), innermost first.
type Stacks struct {
	Frames []Frame
	Index  []int32
	Bounds []int32 // len = number of stacks + 1; nil when there are none
}

// Len is the number of distinct stacks.
func (s *Stacks) Len() int { return max(0, len(s.Bounds)-1) }

// At returns the frames of stack i, innermost first, as indices into Frames.
func (s *Stacks) At(i int32) []int32 { return s.Index[s.Bounds[i]:s.Bounds[i+1]] }

// Settings are the allocator's settings when the recording was dumped, as far
// as a snapshot holds them.
type Settings struct {
	// Known is false where the recording carries no settings at all.
	Known bool
	// Conf is the last settings string (PYTORCH_CUDA_ALLOC_CONF), "" if none.
	Conf string
	// MaxSplitSize in bytes, -1 for unlimited.
	MaxSplitSize               Bytes
	GarbageCollectionThreshold float64 // 0 is off
	ExpandableSegments         bool
	RoundupPower2Divisions     Divisions
}

// Trace is one recording: all the devices of one process.
type Trace struct {
	// Name says where it came from, for messages.
	Name     string
	Devices  []Device // those with events, segments or annotations, by Ordinal
	Stacks   Stacks
	Strings  []string // what UserMetadata and CompileContext index
	Settings Settings
	// Notes are things a reader of results should know: an inferred initial
	// state, a recording that looks truncated, actions that are missing.
	Notes []string
}
