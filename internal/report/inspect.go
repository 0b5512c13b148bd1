package report

import (
	"bufio"
	"fmt"
	"io"

	"github.com/stplan/stplan/internal/planfile"
)

// Inspected is what `inspect --json` prints.
type Inspected struct {
	Plan     string            `json:"plan"`
	Producer string            `json:"producer"`
	Version  int               `json:"format_version"`
	Devices  []InspectedDevice `json:"devices"`
}

// InspectedDevice is one device of a plan. Sizes are bytes. Times are event indices
// of the device's list; LowerBoundTime, of a periodic plan, is a time of its phases
// put one after the other.
type InspectedDevice struct {
	Device               uint32   `json:"device"`
	Rank                 *int32   `json:"rank"`
	Mode                 string   `json:"mode"`
	End                  string   `json:"buffers_end"`
	Advice               string   `json:"advice,omitempty"`
	Fingerprint          string   `json:"fingerprint"`
	Events               uint64   `json:"events"`
	Alignment            uint64   `json:"alignment_bytes"`
	PlanBytes            uint64   `json:"plan_bytes"`
	LowerBound           uint64   `json:"lower_bound_bytes"`
	LowerBoundAt         *uint64  `json:"lower_bound_event"`
	LowerBoundTime       *uint64  `json:"lower_bound_plan_time"`
	GapBytes             uint64   `json:"gap_bytes"`
	PeakAllocated        uint64   `json:"peak_allocated_bytes"`
	PeakActive           uint64   `json:"peak_active_bytes"`
	RecordedPeakReserved uint64   `json:"recorded_peak_reserved_bytes"`
	Iterations           uint32   `json:"iterations"`
	SteadyStart          uint64   `json:"steady_start_event"`
	SteadyEnd            *uint64  `json:"steady_end_event"`
	Buffers              int      `json:"buffers"`
	Residents            int      `json:"residents"`
	ResidentBytes        uint64   `json:"resident_bytes"`
	Initial              int      `json:"live_before_recording"`
	Streams              []uint64 `json:"streams"`
	Waits

	// Of periodic plans; empty and 0 of recorded ones.
	Phases     []InspectedPhase `json:"phases"`
	Passes     int              `json:"passes"`
	Cells      int              `json:"cells"`
	CellBytes  uint64           `json:"cell_bytes"`
	StrayBytes uint64           `json:"stray_bytes"`
}

// Inspect describes some devices of a plan, which is in the file of that name.
func Inspect(p *planfile.Plan, name string, devices []planfile.Device) *Inspected {
	in := &Inspected{Plan: name, Producer: p.Producer, Version: int(p.Version()), Devices: []InspectedDevice{}}
	for i := range devices {
		in.Devices = append(in.Devices, inspectDevice(&devices[i]))
	}
	return in
}

func inspectDevice(d *planfile.Device) InspectedDevice {
	row := InspectedDevice{
		Device: d.Ordinal, Mode: d.Mode.String(), End: d.End.String(), Advice: d.Advice.String(), Fingerprint: fmt.Sprintf("%x", d.Fingerprint),
		Events: d.Events, Alignment: d.Alignment, PlanBytes: d.ArenaBytes,
		LowerBound: d.Certificate.LowerBound, GapBytes: d.Certificate.Gap,
		PeakAllocated: d.PeakAllocated, PeakActive: d.PeakActive, RecordedPeakReserved: d.RecordedPeakReserved,
		Iterations: d.Iterations, SteadyStart: d.SteadyStart,
		Buffers: d.Allocations(), Streams: d.Streams, Waits: WaitsOf(d),
		Phases: inspectPhases(d), Passes: len(d.Passes), StrayBytes: d.StrayBytes,
	}
	if d.Mode == planfile.ModePeriodic {
		row.LowerBoundTime, row.SteadyEnd = &d.Certificate.At, &d.SteadyEnd
	} else {
		row.LowerBoundAt = &d.Certificate.At
	}
	if d.Rank >= 0 {
		row.Rank = &d.Rank
	}
	for i := range d.Slots {
		if d.Slots[i].Flags&planfile.SlotResident != 0 {
			row.Residents++
			row.ResidentBytes += d.Slots[i].Size
		}
		if d.Slots[i].Flags&planfile.SlotInitial != 0 {
			row.Initial++
		}
	}
	row.Cells, row.CellBytes = d.Cells()
	return row
}

// Write prints the same for people.
func (in *Inspected) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s: plan format %d, by %s\n", Printable(in.Plan), in.Version, Printable(in.Producer))
	for i := range in.Devices {
		in.Devices[i].write(out)
	}
	return out.Flush()
}

func (d *InspectedDevice) write(w io.Writer) {
	fmt.Fprintf(w, "\ndevice %d\n", d.Device)
	row := func(label, value string) { _ = writeWrapped(w, fmt.Sprintf("  %-27s", label), value) } // w keeps its error
	row("mode", d.Mode)
	row("buffers end at", d.End)
	if d.Advice != "" {
		row("advice", d.Advice)
	}
	row("plan", Count(d.PlanBytes)+" B")
	if d.LowerBoundAt != nil {
		row("lower bound, as claimed", fmt.Sprintf("%s B at event %s", Count(d.LowerBound), Count(*d.LowerBoundAt)))
	} else {
		row("lower bound, as claimed", fmt.Sprintf("%s B, the largest of the phases'", Count(d.LowerBound)))
	}
	row("gap, as claimed", Gap(int64(d.PlanBytes), int64(d.LowerBound)))
	row("peak allocated", Count(d.PeakAllocated)+" B")
	row("peak active", Count(d.PeakActive)+" B")
	row("recorded peak reserved", Count(d.RecordedPeakReserved)+" B")
	row("events", Count(d.Events))
	row("iterations", fmt.Sprintf("%s, steady from event %s", Count(d.Iterations), Count(d.SteadyStart)))
	row("buffers", Count(d.Buffers))
	row("residents", fmt.Sprintf("%s, %s B", Count(d.Residents), Count(d.ResidentBytes)))
	row("live before the recording", Count(d.Initial))
	row("streams", Count(len(d.Streams)))
	row("waits", d.Waits.Line())
	if cross := d.Waits.CrossLine(); cross != "" {
		row("cross-stream reuses", cross)
	}
	row("fingerprint", d.Fingerprint[:16]+"…")
	d.writePhases(w, row)
}
