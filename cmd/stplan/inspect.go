package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
)

type inspectFlags struct {
	device int
	json   bool
	csv    bool
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
checker can judge it.`,
		Example: `  stplan inspect run.bin
  stplan inspect run.bin --csv > placed.csv
  stplan inspect run.bin --json --device 1`,
		Args: exactArgs("PLAN.bin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runInspect(args[0], f, cmd.Flags().Changed("device"))
		},
	}
	cmd.Flags().IntVar(&f.device, "device", 0, "show only this device")
	cmd.Flags().BoolVar(&f.json, "json", false, "print everything but the allocations as JSON")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "print the allocations of one device as CSV")
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
		return writeSlots(a.stdout, &devices[0])
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

// writeSlots prints the planned allocations of one device.
func writeSlots(w io.Writer, d *planfile.Device) error {
	out := bufio.NewWriterSize(w, 1<<16)
	out.WriteString("id,lower,upper,size,offset\n")
	var line []byte
	for i := range d.Slots {
		s := &d.Slots[i]
		line = strconv.AppendInt(line[:0], int64(i), 10)
		for _, v := range [...]uint64{s.Start, d.SlotEnd(i), s.Size, s.Offset} {
			line = append(line, ',')
			line = strconv.AppendUint(line, v, 10)
		}
		line = append(line, '\n')
		out.Write(line)
	}
	return out.Flush()
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
	Fingerprint          string   `json:"fingerprint"`
	Events               uint64   `json:"events"`
	Alignment            uint64   `json:"alignment_bytes"`
	PlanBytes            uint64   `json:"plan_bytes"`
	LowerBound           uint64   `json:"lower_bound_bytes"`
	LowerBoundAt         uint64   `json:"lower_bound_event"`
	GapBytes             uint64   `json:"gap_bytes"`
	PeakAllocated        uint64   `json:"peak_allocated_bytes"`
	PeakActive           uint64   `json:"peak_active_bytes"`
	RecordedPeakReserved uint64   `json:"recorded_peak_reserved_bytes"`
	Iterations           uint32   `json:"iterations"`
	SteadyStart          uint64   `json:"steady_start_event"`
	Buffers              int      `json:"buffers"`
	Residents            int      `json:"residents"`
	ResidentBytes        uint64   `json:"resident_bytes"`
	Initial              int      `json:"live_before_recording"`
	Streams              []uint64 `json:"streams"`
	Waits                int      `json:"waits"`
	WaitsCrossStream     int      `json:"waits_cross_stream"`
	WaitsPending         int      `json:"waits_pending"`
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
		Device: d.Ordinal, Mode: d.Mode.String(), End: d.End.String(), Fingerprint: fmt.Sprintf("%x", d.Fingerprint),
		Events: d.Events, Alignment: d.Alignment, PlanBytes: d.ArenaBytes,
		LowerBound: d.Certificate.LowerBound, LowerBoundAt: d.Certificate.At, GapBytes: d.Certificate.Gap,
		PeakAllocated: d.PeakAllocated, PeakActive: d.PeakActive, RecordedPeakReserved: d.RecordedPeakReserved,
		Iterations: d.Iterations, SteadyStart: d.SteadyStart,
		Buffers: len(d.Slots), Streams: d.Streams, Waits: len(d.Waits),
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
	for _, w := range d.Waits {
		if w.Kind&planfile.WaitCrossStream != 0 {
			row.WaitsCrossStream++
		}
		if w.Kind&planfile.WaitPending != 0 {
			row.WaitsPending++
		}
	}
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
	row("plan", report.Count(d.PlanBytes)+" B")
	row("lower bound, as claimed", fmt.Sprintf("%s B at event %s", report.Count(d.LowerBound), report.Count(d.LowerBoundAt)))
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
	row("waits", fmt.Sprintf("%s (%s cross-stream, %s pending)", report.Count(d.Waits), report.Count(d.WaitsCrossStream), report.Count(d.WaitsPending)))
	row("fingerprint", d.Fingerprint[:16]+"…")
}
