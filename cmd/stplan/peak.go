package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

type peakFlags struct {
	at     int64
	device int
	top    int
	folded string
	marker string
	stacks bool
	json   bool
}

// defaultTop is the number of rows of each table: what fits one screen.
const defaultTop = 10

func (a *app) peakCommand() *cobra.Command {
	var f peakFlags
	cmd := &cobra.Command{
		Use:   "peak TRACE...",
		Short: "Show what was in memory at the peak or at an out-of-memory",
		Long: `peak shows what was in a GPU's memory at one instant of a recording. If the
recording has an out-of-memory, that is the last request that failed: how much
it asked for and in which line of code, why there was no memory for it, and
which blocks kept free memory in pieces. Otherwise it is the peak of allocated
memory. --at looks at any other event.

It tells what was allocated apart by

  line      the innermost line of Python that is not torch's own or of Python's
            library; "from" is the innermost line outside installed packages;
  module    the forward calls of nn.Modules that were running;
  category  parameters, gradients, optimizer state, activations, temporaries.
            A recording does not say what a buffer is for. "sure" is the share
            of a category that stacks and annotations show. The rest is inferred
            from when buffers were allocated and freed, and peak says how;
  phase     the iteration in which it was allocated, and the part of it.

Several recordings, a folder or a pattern are one table, a row for each device.

docs/peak.md has the rules. Lines and modules need Python stacks:
torch.cuda.memory._record_memory_history(stacks="python").

--folded writes what was allocated as folded stacks, one a line with its bytes,
for flamegraph.pl and speedscope. Sizes are bytes, rounded up to 512.`,
		Example: `  stplan peak oom.pickle.gz
  stplan peak traces/
  stplan peak run.pickle.gz --at 201654 --top 30
  stplan peak run.parquet --json
  stplan peak run.pickle.gz --folded peak.folded && flamegraph.pl --countname bytes peak.folded > peak.svg`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "expected at least one TRACE, found none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "folded", "iteration-marker"); err != nil {
				return err
			}
			return a.runPeak(args, f, cmd.Flags().Changed("at"), cmd.Flags().Changed("device"))
		},
	}
	cmd.Flags().Int64Var(&f.at, "at", 0, "look at this `event` of the device's list, counted from 0")
	cmd.Flags().IntVar(&f.device, "device", 0, "show only this device")
	cmd.Flags().IntVar(&f.top, "top", defaultTop, "rows of each table")
	cmd.Flags().StringVar(&f.folded, "folded", "", `write folded stacks to this file, "-" for standard output in place of the tables`)
	cmd.Flags().StringVar(&f.marker, "iteration-marker", "", "regular expression: annotations that begin an iteration (default: optimizer steps, else periodicity)")
	cmd.Flags().BoolVar(&f.stacks, "stacks", false, "print a whole stack for each line of code, the latest call last")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the same as JSON, with whole stacks")
	return cmd
}

func (a *app) runPeak(args []string, f peakFlags, at, oneDevice bool) error {
	if f.top < 1 {
		return fmt.Errorf("--top: expected at least 1, found %d", f.top)
	}
	if f.folded == "-" && f.json {
		return twoWriters("--folded")
	}
	var marker *regexp.Regexp
	if f.marker != "" {
		var err error
		if marker, err = regexp.Compile(f.marker); err != nil {
			return fmt.Errorf("--iteration-marker: %w", err)
		}
	}
	when, err := instant(f.at, at)
	if err != nil {
		return err
	}
	in := a.findInputs(args, recordingInputs)
	if err := in.none(); err != nil {
		return err
	}
	if in.many && f.folded != "" {
		return errors.New("--folded: expected one recording, found a folder, a pattern or several")
	}
	if in.many {
		return a.runPeakMany(in, f, func(a *app, i int) (*report.Peaked, error) {
			result, _, err := a.lookAt(in.paths[i], f, marker, when, oneDevice)
			return result, err
		})
	}
	path := in.paths[0]
	if err := a.demandInputs(path); err != nil {
		return err
	}
	if err := a.outputs.demand(f.folded); err != nil {
		return err
	}
	result, folds, err := a.lookAt(path, f, marker, when, oneDevice)
	if err != nil {
		return err
	}
	if f.folded != "" {
		if err := a.outputs.write(f.folded, inTurn(folds)); err != nil || f.folded == "-" {
			return err
		}
	}
	return a.print(result, f.json)
}

// runPeakMany shows the peaks of several recordings in one table.
func (a *app) runPeakMany(in inputs, f peakFlags, look func(a *app, i int) (*report.Peaked, error)) error {
	all := report.PeakedAll{Recordings: []report.Peaked{}}
	s := several{app: a}
	s.lacks(in.failed)
	askEach(&s, "looking for peaks", in.paths, look, func(one *report.Peaked) {
		if one != nil {
			all.Recordings = append(all.Recordings, *one)
		}
	})
	all.Failed = reportFailed(s.failed)
	return s.printAnswer(&all, f.json, "recordings")
}

// lookAt looks at one instant of the devices of a recording; folds write it as folded stacks.
func (a *app) lookAt(path string, f peakFlags, marker *regexp.Regexp, when trace.Time, oneDevice bool) (*report.Peaked, []func(io.Writer) error, error) {
	t, err := a.readTrace(path, trace.Options{})
	if err != nil {
		return nil, nil, err
	}
	devices, err := allocatingDevices(t, f.device, oneDevice)
	if err != nil {
		return nil, nil, err
	}
	result := report.Peaked{Trace: t.Name, Devices: []report.PeakedDevice{}}
	var folds []func(io.Writer) error
	for _, d := range devices {
		r, p, err := readPeak(t, d, marker, when)
		if err != nil {
			return nil, nil, err
		}
		one := peakedDevice(r, p, f.top)
		one.ShowStacks = f.stacks
		result.Devices = append(result.Devices, one)
		folds = append(folds, func(w io.Writer) error { return r.WriteFolded(w, p) })
	}
	return &result, folds, nil
}

// readPeak looks at one instant of a device.
func readPeak(t *trace.Trace, d *trace.Device, marker *regexp.Regexp, when trace.Time) (*peak.Recording, *peak.Peak, error) {
	r, err := peak.Read(t, d, marker)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	p, err := r.At(when)
	if err != nil {
		return nil, nil, fmt.Errorf("--at: device %d: %w", d.Ordinal, err)
	}
	return r, p, nil
}

// inTurn writes several things one after the other.
func inTurn(all []func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, write := range all {
			if err := write(w); err != nil {
				return err
			}
		}
		return nil
	}
}

// instant is the event of --at, or the one that peak chooses.
func instant(at int64, given bool) (trace.Time, error) {
	switch {
	case !given:
		return peak.Auto, nil
	case at < 0:
		return 0, fmt.Errorf("--at: expected an event from 0 on, found %d", at)
	}
	return trace.Time(at), nil
}
