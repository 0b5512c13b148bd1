package report

import (
	"fmt"
	"io"
)

// Reported is what `report --json` prints: the files that it has written. What they show
// is what `diff --json` and `peak --json` print.
type Reported struct {
	Trace   string           `json:"trace"`
	Plan    string           `json:"plan"`
	Files   []ReportedFile   `json:"files"`
	Devices []ReportedDevice `json:"devices"`
}

// ReportedFile is a file that was written.
type ReportedFile struct {
	Path  string `json:"path"`
	Bytes int64  `json:"size_bytes"`
}

// ReportedDevice is what is drawn of a device.
type ReportedDevice struct {
	Device  int   `json:"device"`
	Events  int64 `json:"events"`
	Buffers int   `json:"buffers"`
	Shown   int   `json:"buffers_shown"`
	OffPlan int   `json:"buffers_off_plan"`
	// PeakEvent is the instant of `peak`; BoundEvent is when the bound binds.
	PeakEvent  int64           `json:"peak_event"`
	BoundKind  string          `json:"bound_kind"`
	BoundEvent int64           `json:"bound_event"`
	Curves     []ReportedCurve `json:"curves"`
	// Failure is the last request that ran out of memory.
	Failure *Failure `json:"out_of_memory"`
}

// ReportedCurve is memory over time under one allocator.
type ReportedCurve struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	Peak  int64  `json:"peak_bytes"`
}

// Write prints the files for people.
func (r *Reported) Write(w io.Writer) error {
	var failures []DeviceFailure
	for i := range r.Devices {
		failures = append(failures, DeviceFailure{r.Devices[i].Device, r.Devices[i].Failure})
	}
	if err := WriteFailures(w, r.Trace, failures); err != nil {
		return err
	}
	for _, f := range r.Files {
		if _, err := fmt.Fprintf(w, "%s: %s\n", Printable(f.Path), Bytes(f.Bytes)); err != nil {
			return err
		}
	}
	return nil
}
