package report

// Imported is the summary that `import --json` prints.
type Imported struct {
	Trace       string           `json:"trace"`
	Bytes       int64            `json:"bytes"`
	Stacks      int              `json:"stacks"`
	Notes       []string         `json:"notes"`
	DeviceList  []ImportedDevice `json:"devices"`
	Annotations int              `json:"annotations"`
}

// ImportedDevice is one device of a trace. InitialBlocks are those that lived before
// recording began; InitialInferred says that they follow from the events alone.
type ImportedDevice struct {
	Device          int  `json:"device"`
	Events          int  `json:"events"`
	Allocations     int  `json:"allocations"`
	InitialBlocks   int  `json:"initial_blocks"`
	InitialInferred bool `json:"initial_inferred"`
	// Failure is the last request that ran out of memory.
	Failure *Failure `json:"out_of_memory"`
}
