package report

// Peaked is what `peak --json` prints.
type Peaked struct {
	Trace   string         `json:"trace"`
	Devices []PeakedDevice `json:"devices"`
}

// PeakedDevice is one device's memory at one instant. Sizes are bytes, shares are of
// the allocated bytes.
type PeakedDevice struct {
	Device int   `json:"device"`
	Event  int64 `json:"event"`
	// ChosenBy is "out-of-memory", "peak" or "asked".
	ChosenBy string `json:"chosen_by"`
	PeakedPhase
	Iterations int   `json:"iterations"` // whole ones in the recording
	Allocated  int64 `json:"allocated_bytes"`
	Pending    int64 `json:"pending_bytes"`
	Reserved   int64 `json:"reserved_bytes"`
	Buffers    int   `json:"buffers"`

	Line string `json:"line"` // of the latest request at the event
	From string `json:"from"`

	Failed *PeakedRequest `json:"out_of_memory"`

	Lines      []PeakedLine     `json:"lines"`
	Modules    []PeakedModule   `json:"modules"`
	Categories []PeakedCategory `json:"categories"`
	Phases     []PeakedPhaseRow `json:"phases"`
	Memory     PeakedMemory     `json:"memory"`

	// Of these lists the first are printed; this is how many there are.
	LinesTotal   int `json:"lines_total"`
	ModulesTotal int `json:"modules_total"`
	PhasesTotal  int `json:"phases_total"`

	HasStacks bool `json:"has_stacks"`
	Marked    bool `json:"has_optimizer_steps"`

	// ShowStacks makes Write print whole stacks.
	ShowStacks bool `json:"-"`
}

// PeakedPhase is when something happened: Iteration is counted from 1, 0 is what came
// before the first, -1 before the recording.
type PeakedPhase struct {
	Iteration int    `json:"iteration"`
	Part      string `json:"part"`
	Phase     string `json:"phase"` // both in words
}

// PeakedShare is what some buffers hold.
type PeakedShare struct {
	Bytes    int64   `json:"bytes"`
	Fraction float64 `json:"fraction"`
	Buffers  int     `json:"buffers"`
}

// PeakedLine is a line of code.
type PeakedLine struct {
	Line string `json:"line"`
	From string `json:"from"`
	File string `json:"file"`
	PeakedShare
	Largest  int64    `json:"largest_bytes"`
	Category string   `json:"category"` // of most of its bytes
	Stack    []string `json:"stack"`    // of the largest buffer, outermost first
}

// PeakedModule is a chain of forward calls, outermost first.
type PeakedModule struct {
	Calls []string `json:"calls"`
	PeakedShare
	Category string `json:"category"`
}

// PeakedCategory is what buffers are for.
type PeakedCategory struct {
	Category string `json:"category"`
	PeakedShare
	Sure  float64      `json:"sure_fraction"`
	Rules []PeakedRule `json:"rules"`
}

// PeakedRule is why buffers have their category.
type PeakedRule struct {
	Rule  string `json:"rule"`
	Sure  bool   `json:"sure"`
	Bytes int64  `json:"bytes"`
}

// PeakedPhaseRow is what was allocated in a phase.
type PeakedPhaseRow struct {
	PeakedPhase
	PeakedShare
}

// PeakedRequest is the request that failed.
type PeakedRequest struct {
	Failure
	Stack []string `json:"stack"`
	// Cause is "short", "fragmented", "limit" or "fragmented by a limit".
	Cause   string `json:"cause"`
	Missing int64  `json:"missing_bytes"` // even if all free memory were in one piece
}

// PeakedMemory is the reserved memory that was not allocated.
type PeakedMemory struct {
	Segments int `json:"segments"`
	// Of the stream and size class of the request, or of the stream that holds most.
	Stream      uint64 `json:"stream"`
	Usable      int64  `json:"usable_bytes"`
	Pieces      int    `json:"pieces"`
	Largest     int64  `json:"largest_piece_bytes"`
	Empty       int64  `json:"empty_segments_bytes"` // of the usable bytes
	OtherStream int64  `json:"other_streams_bytes"`
	OtherClass  int64  `json:"other_class_bytes"`
	Private     int64  `json:"private_pools_bytes"`
	Slack       int64  `json:"slack_bytes"`

	MostlyFree     int             `json:"mostly_free_segments"`
	MostlyFreeHold int64           `json:"mostly_free_bytes"`
	InTheWay       []PeakedSegment `json:"in_the_way"`
	Holders        []PeakedHolder  `json:"holders"`
	HoldersTotal   int             `json:"holders_total"`
}

// PeakedSegment is a segment that is mostly free and held by some blocks.
type PeakedSegment struct {
	Address uint64        `json:"address"`
	Size    int64         `json:"size_bytes"`
	Free    int64         `json:"free_bytes"`
	Largest int64         `json:"largest_piece_bytes"`
	Count   int           `json:"blocks"`
	Blocks  []PeakedBlock `json:"largest_blocks"`
}

// PeakedBlock is a buffer in a segment.
type PeakedBlock struct {
	Address   uint64 `json:"address"`
	Bytes     int64  `json:"bytes"`
	Allocated int64  `json:"allocated_event"` // -1: before recording began
	Age       int    `json:"age_iterations"`
	Category  string `json:"category"`
	Line      string `json:"line"`
}

// PeakedHolder is a line of code whose blocks lie in such segments.
type PeakedHolder struct {
	Line     string `json:"line"`
	From     string `json:"from"`
	Category string `json:"category"`
	Blocks   int    `json:"blocks"`
	Bytes    int64  `json:"bytes"`
	Segments int    `json:"segments"`
	Free     int64  `json:"free_bytes"`
	Oldest   int64  `json:"oldest_event"`
	Age      int    `json:"oldest_age_iterations"`
}
