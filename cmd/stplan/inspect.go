package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
)

type inspectFlags struct {
	device int
	json   bool
	csv    bool
	repeat int
}

func (a *app) inspectCommand() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect PLAN.bin",
		Short: "Show what is in a plan",
		Long: `inspect shows what is in a plan. With --csv it prints one row per planned
allocation, id,lower,upper,size,offset: live in [lower, upper) counted in events
of the device's list, size and offset in bytes; buffers that are never freed end
at the last event. The largest offset + size is the plan's size, so any outside
checker can judge it.

A periodic plan is unrolled for that on one timeline: the prologue's events, then
--repeat rounds of every body, each as many steps long as it has allocations. What
crosses a seam is one row; residents and what the last pass leaves end with the
timeline; strays have no place and no row.`,
		Example: `  stplan inspect run.bin
  stplan inspect run.bin --csv > placed.csv
  stplan inspect run.bin --csv --repeat 5 > placed.csv
  stplan inspect run.bin --json --device 1`,
		Args: exactArgs("PLAN.bin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("repeat") {
				if err := checkRepeat(f); err != nil {
					return err
				}
			}
			return a.runInspect(args[0], f, cmd.Flags().Changed("device"))
		},
	}
	cmd.Flags().IntVar(&f.device, "device", 0, "show only this device")
	cmd.Flags().BoolVar(&f.json, "json", false, "print everything but the allocations as JSON")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "print the allocations of one device as CSV")
	cmd.Flags().IntVar(&f.repeat, "repeat", 0, fmt.Sprintf("unroll a periodic plan by this many rounds of its bodies, up to %d (default %d)", maxRepeat, defaultRepeat))
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	return cmd
}

func (a *app) runInspect(path string, f inspectFlags, one bool) error {
	p, err := a.readPlan(path)
	if err != nil {
		return err
	}
	devices := p.Devices
	if one {
		d, err := planDeviceByOrdinal(p, f.device, inputName(path))
		if err != nil {
			return err
		}
		devices = []planfile.Device{*d}
	}
	switch {
	case f.csv && len(devices) != 1:
		return &hinted{fmt.Errorf("%s: %d devices, and --csv prints one", inputName(path), len(devices)), "choose with --device"}
	case f.csv:
		return a.writeSlots(inputName(path), &devices[0], f.repeat)
	case f.json:
		return report.WriteJSON(a.stdout, inspectPlan(p, inputName(path), devices))
	}
	return inspectPlan(p, inputName(path), devices).write(a.stdout)
}

// planDeviceByOrdinal finds a device of the plan, and names those there are
// where it is none of them.
func planDeviceByOrdinal(p *planfile.Plan, ordinal int, name string) (*planfile.Device, error) {
	var have string
	for i := range p.Devices {
		if int64(p.Devices[i].Ordinal) == int64(ordinal) {
			return &p.Devices[i], nil
		}
		have += fmt.Sprintf(" %d", p.Devices[i].Ordinal)
	}
	if have == "" {
		return nil, fmt.Errorf("%s: the plan has no devices", name)
	}
	return nil, fmt.Errorf("%s: no device %d in the plan; it has%s", name, ordinal, have)
}

// inspected is what `inspect --json` prints.
type inspected struct {
	Plan     string            `json:"plan"`
	Producer string            `json:"producer"`
	Version  int               `json:"format_version"`
	Devices  []inspectedDevice `json:"devices"`
}

type inspectedDevice struct {
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
	report.Waits

	// Of periodic plans; empty and 0 of recorded ones.
	Phases     []inspectedPhase `json:"phases"`
	Passes     int              `json:"passes"`
	Cells      int              `json:"cells"`
	CellBytes  uint64           `json:"cell_bytes"`
	StrayBytes uint64           `json:"stray_bytes"`
}

func inspectPlan(p *planfile.Plan, name string, devices []planfile.Device) *inspected {
	in := &inspected{Plan: name, Producer: p.Producer, Version: planfile.Version, Devices: []inspectedDevice{}}
	for i := range devices {
		in.Devices = append(in.Devices, inspectDevice(&devices[i]))
	}
	return in
}

func inspectDevice(d *planfile.Device) inspectedDevice {
	row := inspectedDevice{
		Device: d.Ordinal, Mode: d.Mode.String(), End: d.End.String(), Advice: d.Advice.String(), Fingerprint: fmt.Sprintf("%x", d.Fingerprint),
		Events: d.Events, Alignment: d.Alignment, PlanBytes: d.ArenaBytes,
		LowerBound: d.Certificate.LowerBound, GapBytes: d.Certificate.Gap,
		PeakAllocated: d.PeakAllocated, PeakActive: d.PeakActive, RecordedPeakReserved: d.RecordedPeakReserved,
		Iterations: d.Iterations, SteadyStart: d.SteadyStart,
		Buffers: allocations(d), Streams: d.Streams, Waits: accountWaits(d),
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
	row.Cells, row.CellBytes = cells(d)
	return row
}

// write prints the same for people.
func (in *inspected) write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s: plan format %d, by %s\n", in.Plan, in.Version, in.Producer)
	for i := range in.Devices {
		in.Devices[i].write(out)
	}
	return out.Flush()
}

func (d *inspectedDevice) write(w io.Writer) {
	fmt.Fprintf(w, "\ndevice %d\n", d.Device)
	row := func(label, value string) { fmt.Fprintf(w, "  %-27s%s\n", label, value) }
	row("mode", d.Mode)
	row("buffers end at", d.End)
	if d.Advice != "" {
		row("advice", d.Advice)
	}
	row("plan", report.Count(d.PlanBytes)+" B")
	if d.LowerBoundAt != nil {
		row("lower bound, as claimed", fmt.Sprintf("%s B at event %s", report.Count(d.LowerBound), report.Count(*d.LowerBoundAt)))
	} else {
		row("lower bound, as claimed", fmt.Sprintf("%s B, the largest of the phases'", report.Count(d.LowerBound)))
	}
	row("gap, as claimed", report.Gap(int64(d.PlanBytes), int64(d.LowerBound)))
	row("peak allocated", report.Count(d.PeakAllocated)+" B")
	row("peak active", report.Count(d.PeakActive)+" B")
	row("recorded peak reserved", report.Count(d.RecordedPeakReserved)+" B")
	row("events", report.Count(d.Events))
	row("iterations", fmt.Sprintf("%s, steady from event %s", report.Count(d.Iterations), report.Count(d.SteadyStart)))
	row("buffers", report.Count(d.Buffers))
	row("residents", fmt.Sprintf("%s, %s B", report.Count(d.Residents), report.Count(d.ResidentBytes)))
	row("live before the recording", report.Count(d.Initial))
	row("streams", report.Count(len(d.Streams)))
	row("waits", d.Waits.Line())
	row("fingerprint", d.Fingerprint[:16]+"…")
	d.writePhases(w, row)
}
