package main

import (
	"fmt"

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
		Long: `inspect shows what is in a plan. The words in its output are those of compile
(see "stplan compile --help"). Residents are buffers that are never freed.

With --csv it prints one row for each planned allocation:
id,lower,upper,size,offset. The buffer is live in [lower, upper), counted in
events of the device's list; size and offset are bytes. Buffers that are never
freed end at the last event. The largest offset + size is the plan's size, so
any outside checker can judge it.

For that a periodic plan is unrolled on one timeline: the events of the
prologue, then --repeat rounds of every body, each as many steps long as it has
allocations. What crosses a seam is one row. Residents, and what the last pass
leaves behind, end with the timeline. Allocations that are off plan have no
place and no row.`,
		Example: `  stplan inspect run.bin
  stplan inspect run.bin --csv > placed.csv
  stplan inspect run.bin --csv --repeat 5 > placed.csv
  stplan inspect run.bin --json --device 1`,
		Args: exactArgs("PLAN.bin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("repeat") {
				if err := checkRepeat(f.repeat, f.csv); err != nil {
					return err
				}
			}
			return a.runInspect(args[0], f, cmd.Flags().Changed("device"))
		},
	}
	cmd.Flags().IntVar(&f.device, "device", 0, "show only this device")
	cmd.Flags().BoolVar(&f.json, "json", false, "print everything but the allocations as JSON")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "print the allocations of one device as CSV")
	cmd.Flags().IntVar(&f.repeat, "repeat", 0, fmt.Sprintf("unroll a periodic plan by this many rounds of its bodies, up to %d (default %d)", maxRepeat, report.DefaultRounds))
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	return cmd
}

func (a *app) runInspect(path string, f inspectFlags, one bool) error {
	if in := a.findInputs([]string{path}, planInputs); in.many && len(in.paths) > 0 {
		return &hinted{fmt.Errorf("%s: expected one plan, found %d", path, len(in.paths)), fmt.Sprintf("stplan table %s prints one table of all, if it is a folder that compile has made", shellQuote(path))}
	}
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
		return report.WriteJSON(a.stdout, report.Inspect(p, inputName(path), devices))
	}
	return report.Inspect(p, inputName(path), devices).Write(a.stdout)
}
