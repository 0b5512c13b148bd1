package report

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Failure is the last request that ran out of memory in a recording.
type Failure struct {
	Event      int64  `json:"event"`
	Requested  int64  `json:"requested_bytes"` // rounded
	Stream     uint64 `json:"stream"`
	DriverFree int64  `json:"driver_free_bytes"`
	// Had is what the process could have in all, of a history. That does not tell what
	// the driver had free.
	Had int64 `json:"had_bytes,omitempty"`
	// Fatal says that nothing was allocated after it: the recording ends in it.
	Fatal bool `json:"ends_recording"`
	// Count is the number of requests that ran out of memory, this one included.
	Count int `json:"count"`
}

// Line says it in words. subject is what has the recording.
func (f *Failure) Line(subject string) string {
	subject = Printable(subject)
	there := Bytes(f.DriverFree) + " free on the device"
	if f.Had > 0 {
		there = Bytes(f.Had) + " to have in all"
	}
	asked := fmt.Sprintf("at event %s: %s asked for, %s", Count(f.Event), Bytes(f.Requested), there)
	switch {
	case f.Fatal && f.Count > 1:
		return fmt.Sprintf("%s ends in an out-of-memory %s (%s more before, survived)", subject, asked, Count(f.Count-1))
	case f.Fatal:
		return fmt.Sprintf("%s ends in an out-of-memory %s", subject, asked)
	case f.Count > 1:
		return fmt.Sprintf("%s ran out of memory %s times and went on, the last %s", subject, Count(f.Count), asked)
	}
	return fmt.Sprintf("%s ran out of memory once and went on, %s", subject, asked)
}

// DeviceFailure is a device and the last request that failed on it.
type DeviceFailure struct {
	Device  int
	Failure *Failure // nil if none did
}

// WriteFailures prints a line for each device whose recording has an out-of-memory. The
// device is named if there are several.
func WriteFailures(w io.Writer, name string, devices []DeviceFailure) error {
	for _, d := range devices {
		if d.Failure == nil {
			continue
		}
		subject := name
		if len(devices) > 1 {
			subject = fmt.Sprintf("%s, device %d,", name, d.Device)
		}
		if err := writeWrapped(w, "", d.Failure.Line(subject)); err != nil {
			return err
		}
	}
	return nil
}

// mostEnded is how many recordings that end in an out-of-memory are named as text.
const mostEnded = 5

// ended are the recordings of a table that end in an out-of-memory, and of how many.
type ended struct {
	names []string
	of    int
}

// count counts a recording, in which devices failed so, and names it if it ends in that.
func (e *ended) count(name string, failures ...*Failure) {
	e.of++
	for _, f := range failures {
		if f != nil && f.Fatal {
			e.names = append(e.names, filepath.Base(name))
			return
		}
	}
}

// write names them in a line, the first ones of many.
func (e *ended) write(w io.Writer) error {
	n := len(e.names)
	if n == 0 {
		return nil
	}
	verb := "end"
	if n == 1 {
		verb = "ends"
	}
	text := fmt.Sprintf("%s of %s %s in an out-of-memory: %s", Count(n), count(e.of, "recording"), verb, strings.Join(e.names[:min(n, mostEnded)], ", "))
	if n > mostEnded {
		text += fmt.Sprintf(" and %s more", Count(n-mostEnded))
	}
	return writeWrapped(w, "", text)
}

// WouldFit says what allocators reserve for a recording that ends in an out-of-memory
// if the request that failed is served as well. What the program would have done after
// it is not in the recording.
type WouldFit struct {
	// Available is what the process had and could get when the request failed: null if
	// a limit that the recording does not hold kept it from what the device had.
	Available *int64 `json:"available_bytes"`
	// Held is the most that the process held in the recording, so that it can have that
	// in any case.
	Held       int64 `json:"held_bytes"`
	Native     Fit   `json:"native"`
	Expandable Fit   `json:"expandable_segments"`
	Plan       Fit   `json:"plan"` // what serves a run: the pool if the plan does not pay
}

// Fit is one allocator's answer.
type Fit struct {
	// PeakReserved is without a limit.
	PeakReserved int64 `json:"peak_reserved_bytes"`
	// Fits says whether it gets by with what was available, giving cached memory back
	// if need be. If that is not known, it is true for what is no more than was held,
	// and else null. The allocator that was recorded does not fit.
	Fits *bool `json:"fits"`
	// Within is what it reserves with the limit, if it gets by; null if no limit is known.
	Within *int64 `json:"peak_reserved_within_bytes"`
}

// verdict says it in words.
func (f *Fit) verdict() string {
	switch {
	case f.Fits == nil:
		return ""
	case !*f.Fits:
		return "does not fit"
	case f.Within != nil && *f.Within < f.PeakReserved:
		return "fits in " + Bytes(*f.Within)
	}
	return "fits"
}

func (f *WouldFit) write(w io.Writer) error {
	head := fmt.Sprintf("  to serve that request too, where at least %s were available:", Bytes(f.Held))
	if f.Available != nil {
		head = fmt.Sprintf("  to serve that request too, where %s were available:", Bytes(*f.Available))
	}
	fmt.Fprintf(w, "\n%s\n", head)
	var t Table
	row := func(label string, fit Fit) {
		t.Row("    "+label, Bytes(fit.PeakReserved), fit.verdict())
	}
	row("native", f.Native)
	row("expandable segments", f.Expandable)
	row("stplan run", f.Plan)
	return t.Write(w)
}
