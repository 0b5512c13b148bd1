package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Served is what `run` says of a job, and what `run --summary` writes.
type Served struct {
	ExitCode  int             `json:"exit_code"` // the job's
	Processes []ServedProcess `json:"processes"` // those that used CUDA
}

// ServedProcess is one process. Its Name is the script's with its rank, or with
// its id. Similar says that Plan was learned from a similar run. Backend is what served it, "shim" or "pluggable"; null if that is
// PyTorch's own allocator, and Error says why. Learned is the plan that was learned from it
// for the next run; null if none was.
type ServedProcess struct {
	Name    string         `json:"name"`
	PID     int            `json:"pid"`
	Plan    *string        `json:"plan"`
	Similar bool           `json:"similar"`
	Backend *string        `json:"backend"`
	Error   *string        `json:"error"`
	Learned *string        `json:"learned"`
	Devices []ServedDevice `json:"devices"`
}

// ServedDevice is one device of a process. Sizes are bytes, shares are of 1.
// PlanState is how the plan fared at last: "no plan", "prologue", "body", "ended",
// "off" or "declined". PlanBytes and RecordedPeakReserved are the plan's: its size, and what
// the recorded process had reserved; null without a plan for the device at the start. Installs
// are the plans that were put in place while the process ran.
type ServedDevice struct {
	Device               int     `json:"device"`
	PlanState            string  `json:"plan_state"`
	Allocations          int64   `json:"allocations"`
	AllocationBytes      int64   `json:"allocation_bytes"`
	PlannedAllocations   int64   `json:"planned_allocations"`
	PlannedBytes         int64   `json:"planned_bytes"`
	PlannedFraction      float64 `json:"planned_fraction"`
	PlannedBytesFraction float64 `json:"planned_bytes_fraction"`
	PeakAllocated        int64   `json:"peak_allocated_bytes"`
	PeakReserved         int64   `json:"peak_reserved_bytes"`
	Efficiency           float64 `json:"efficiency"`
	PlanBytes            *int64  `json:"plan_bytes"`
	RecordedPeakReserved *int64  `json:"recorded_peak_reserved_bytes"`
	DriftEvents          int64   `json:"drift_events"`
	Resyncs              int64   `json:"resyncs"`
	Clashes              int64   `json:"clashes"`
	Waits                int64   `json:"waits"`
	Growths              int64   `json:"growths"`
	FailedAllocations    int64   `json:"failed_allocations"`
	RefusedFrees         int64   `json:"refused_frees"`
	MovedBytes           int64   `json:"moved_bytes"`
	Installs             int64   `json:"installs"`
}

// Derive fills the shares and the efficiency from the sizes and counts.
func (d *ServedDevice) Derive() {
	d.PlannedFraction = share(d.PlannedAllocations, d.Allocations)
	d.PlannedBytesFraction = share(d.PlannedBytes, d.AllocationBytes)
	d.Efficiency = Account{PeakReserved: d.PeakReserved, PeakAllocated: d.PeakAllocated}.Efficiency()
}

func share(part, whole int64) float64 { return float64(part) / float64(max(1, whole)) }

// servedRows is how many rows a table has at most; of more, those with the least
// on plan are shown.
const servedRows = 16

// servedRow is a device with the name of its process.
type servedRow struct {
	name string
	*ServedDevice
}

// Write prints a table for people, a row for each device of a process that
// allocated there, and one for all if there are several. It prints nothing if there
// is none.
func (s *Served) Write(w io.Writer) error {
	rows, planned := s.rows()
	if len(rows) == 0 {
		return nil
	}
	lines := servedHeading(planned)
	shown := rows
	if len(rows) > servedRows {
		shown = slices.Clone(rows)
		slices.SortStableFunc(shown, func(a, b servedRow) int {
			return cmp.Or(cmp.Compare(a.PlannedBytesFraction, b.PlannedBytesFraction), -cmp.Compare(a.PeakReserved, b.PeakReserved))
		})
		shown = shown[:servedRows]
	}
	for _, r := range shown {
		lines = append(lines, r.line(planned))
	}
	if more := len(rows) - len(shown); more > 0 {
		lines = append(lines, tableLine{label: fmt.Sprintf("... and %s more", Count(more))})
	}
	if len(rows) > 1 {
		lines = append(lines, servedTotal(rows).line(planned))
	}
	out := bufio.NewWriter(w)
	writeLines(out, lines)
	return out.Flush()
}

// servedHeading is the heading of the table. --summary has the other figures.
func servedHeading(planned bool) []tableLine {
	if planned {
		return []tableLine{
			{figures: []string{"of bytes", "peak", "peak", "when", "", ""}},
			{label: "served", figures: []string{"on plan", "allocated", "reserved", "recorded", "drift", "waits"}},
		}
	}
	return []tableLine{
		{figures: []string{"", "peak", "peak", "", ""}},
		{label: "served without a plan", figures: []string{"allocations", "allocated", "reserved", "efficiency", "waits"}},
	}
}

// Allocated says that a process allocated on a device, so that Write prints a
// table.
func (s *Served) Allocated() bool {
	rows, _ := s.rows()
	return len(rows) > 0
}

// rows are the devices with allocations; planned if one of them had a plan, at the start or
// later.
func (s *Served) rows() (rows []servedRow, planned bool) {
	for i := range s.Processes {
		p := &s.Processes[i]
		for j := range p.Devices {
			d := &p.Devices[j]
			if d.Allocations == 0 {
				continue
			}
			name := p.Name
			if len(p.Devices) > 1 {
				name = fmt.Sprintf("%s, device %d", p.Name, d.Device)
			}
			rows = append(rows, servedRow{name, d})
			planned = planned || d.PlanBytes != nil || d.Installs > 0
		}
	}
	return rows, planned
}

// servedTotal has the sum of what is counted and the largest of each peak.
func servedTotal(rows []servedRow) servedRow {
	var all ServedDevice
	var planBytes, recorded int64
	for _, r := range rows {
		all.Allocations += r.Allocations
		all.AllocationBytes += r.AllocationBytes
		all.PlannedAllocations += r.PlannedAllocations
		all.PlannedBytes += r.PlannedBytes
		all.DriftEvents += r.DriftEvents
		all.Waits += r.Waits
		all.Installs += r.Installs
		all.PeakAllocated = max(all.PeakAllocated, r.PeakAllocated)
		all.PeakReserved = max(all.PeakReserved, r.PeakReserved)
		if r.PlanBytes != nil {
			planBytes, recorded = max(planBytes, *r.PlanBytes), max(recorded, *r.RecordedPeakReserved)
			all.PlanBytes, all.RecordedPeakReserved = &planBytes, &recorded
		}
	}
	all.Derive()
	return servedRow{fmt.Sprintf("all %s (largest peaks)", Count(len(rows))), &all}
}

func (r servedRow) line(planned bool) tableLine {
	if !planned {
		return tableLine{label: r.name, figures: []string{
			Count(r.Allocations), Bytes(r.PeakAllocated), Bytes(r.PeakReserved), Percent(r.Efficiency), Count(r.Waits),
		}}
	}
	onPlan, recorded := "-", "-"
	if r.PlanBytes != nil || r.Installs > 0 {
		onPlan = Percent(r.PlannedBytesFraction)
	}
	if r.RecordedPeakReserved != nil && *r.RecordedPeakReserved > 0 {
		recorded = Bytes(*r.RecordedPeakReserved)
	}
	return tableLine{label: r.name, figures: []string{
		onPlan, Bytes(r.PeakAllocated), Bytes(r.PeakReserved), recorded, Count(r.DriftEvents), Count(r.Waits),
	}}
}

// namesShown is how many names one line lists.
const namesShown = 3

// Names lists names for one line: "a", "a and b", "a, b, c and 5 more".
func Names(names []string) string {
	switch {
	case len(names) == 0:
		return ""
	case len(names) > namesShown+1:
		return fmt.Sprintf("%s and %s more", strings.Join(names[:namesShown], ", "), Count(len(names)-namesShown))
	}
	last := len(names) - 1
	return strings.TrimPrefix(strings.Join(names[:last], ", ")+" and "+names[last], " and ")
}
