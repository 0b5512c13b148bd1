package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/export"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

type exportFlags struct {
	format string
	output string
	plan   string
	at     int64
	device int
}

// exportForm is a form that a recording is exported to.
type exportForm struct {
	name   string
	suffix string // of the default file
	opens  string // what opens it
	write  func(a *app, w io.Writer, devices []export.Device) error
}

var exportForms = []exportForm{
	{"pprof", profileSuffix, "go tool pprof -http=: ", func(_ *app, w io.Writer, d []export.Device) error { return export.WriteProfile(w, d) }},
	{"perfetto", perfettoSuffix, "https://ui.perfetto.dev opens ", func(_ *app, w io.Writer, d []export.Device) error { return export.WritePerfetto(w, d) }},
	{"lifetimes", lifetimesSuffix, "docs/export.md has queries for ", func(a *app, w io.Writer, d []export.Device) error {
		bar := a.progress("writing lifetimes")
		defer bar.done()
		return export.WriteLifetimes(w, d, bar.update)
	}},
}

func exportFormNames() []string {
	var names []string
	for _, f := range exportForms {
		names = append(names, f.name)
	}
	return names
}

func (a *app) exportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export TRACE --format FORMAT [-o FILE]",
		Short: "Write a recording for pprof, Perfetto, or as a table of lifetimes",
		Long: `export writes a recording in a form that other tools read (docs/export.md):

  pprof      what was allocated at one instant, by stack, for "go tool pprof":
             flame graphs, and differences with -diff_base. The instant is that
             of "stplan peak": the last out-of-memory, or else the peak; --at
             picks another;
  perfetto   memory over the recording, with the large buffers as slices, for
             ui.perfetto.dev and chrome://tracing. A microsecond is an event;
  lifetimes  a Parquet file with a row for each buffer: when it lived, its size,
             stream, stack and category, and with --plan its place in the plan.

Of a folder or a pattern each recording is exported, into the folder -o or
beside it. --plan is a folder or a pattern of plans then: each is that of the
recording of its name.`,
		Example: `  stplan export run.pickle.gz --format pprof     # writes run.pb.gz
  stplan export run.pickle.gz --format perfetto -o run.json
  stplan export run.pickle.gz --format lifetimes --plan run.bin
  stplan export traces/ --format perfetto -o exported/
  stplan export run.pickle.gz --format pprof -o - | go tool pprof -top -`,
		Args: exactArgs("TRACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "output", "plan"); err != nil {
				return err
			}
			return a.runExport(args[0], f, cmd.Flags().Changed("at"), cmd.Flags().Changed("device"))
		},
	}
	cmd.Flags().StringVar(&f.format, "format", "", strings.Join(exportFormNames(), ", "))
	cmd.Flags().StringVarP(&f.output, "output", "o", "", `file to write, "-" for standard output (default: the trace's name with the form's suffix)`)
	cmd.Flags().StringVar(&f.plan, "plan", "", "add each buffer's place in this plan of the recording (lifetimes and perfetto)")
	cmd.Flags().Int64Var(&f.at, "at", 0, "of pprof: look at this `event` of the device's list, counted from 0")
	cmd.Flags().IntVar(&f.device, "device", 0, "export only this device")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(exportFormNames(), cobra.ShellCompDirectiveNoFileComp)) // it fails for unknown flags only
	return cmd
}

func (a *app) runExport(arg string, f exportFlags, at, oneDevice bool) error {
	k := slices.IndexFunc(exportForms, func(form exportForm) bool { return form.name == f.format })
	switch {
	case k < 0:
		return fmt.Errorf("--format: expected one of %s, found %q", strings.Join(exportFormNames(), ", "), f.format)
	case at && f.format != "pprof":
		return fmt.Errorf("--at is of pprof, and %s shows the whole recording", f.format)
	case f.plan != "" && f.format == "pprof":
		return errors.New("--plan is of lifetimes and perfetto, and pprof has no addresses")
	}
	form := exportForms[k]
	in := a.findInputs([]string{arg}, recordingInputs)
	if err := in.none(); err != nil {
		return err
	}
	if in.many {
		return a.runExportMany(in, form, f, at, oneDevice)
	}
	path, output := in.paths[0], f.output
	if output == "" {
		if path == "-" {
			return &hinted{errors.New("a trace from standard input needs a name for its export"), "-o FILE, or -o - for standard output"}
		}
		output = outputName(path, form.suffix)
	}
	if err := oneStdin(path, f.plan, "TRACE", "--plan"); err != nil {
		return err
	}
	if err := a.demandInputs(path, f.plan); err != nil {
		return err
	}
	if err := a.outputs.demand(output); err != nil {
		return err
	}
	if _, err := a.writeExport(path, output, form, f, at, oneDevice); err != nil {
		return err
	}
	if output != "-" {
		a.note("%s%s", form.opens, shellQuote(output))
	}
	return nil
}

// runExportMany exports several recordings, with --plan each with the plan of its name.
func (a *app) runExportMany(in inputs, form exportForm, f exportFlags, at, oneDevice bool) error {
	var pairs []pairedPlan
	failed := in.failed
	if f.plan == "" {
		for _, path := range in.paths {
			pairs = append(pairs, pairedPlan{trace: path})
		}
	} else {
		plans := a.findInputs([]string{f.plan}, planInputs)
		if err := plans.none(); err != nil {
			return err
		}
		pairs, failed = pair(plans, in)
	}
	recordings := recordingsOf(pairs)
	targets, err := a.fileOfEach(recordings, "-o", f.output, form.suffix, "exported")
	if err != nil {
		return err
	}
	a.noteInputs(in.paths)
	all := report.ExportedAll{}
	s := several{app: a}
	s.lacks(failed)
	askEach(&s, "exporting", recordings, func(a *app, i int) (*report.ExportedFile, error) {
		of := f
		of.plan = pairs[i].plan
		n, err := a.writeExport(pairs[i].trace, targets[i], form, of, at, oneDevice)
		if err != nil {
			return nil, err
		}
		return &report.ExportedFile{Trace: inputName(pairs[i].trace), Path: targets[i], Bytes: n}, nil
	}, func(one *report.ExportedFile) {
		if one != nil {
			all.Files = append(all.Files, *one)
		}
	})
	all.Failed = reportFailed(s.failed)
	if len(all.Files) > 0 {
		a.note("%sa file of them", form.opens)
	}
	return s.printAnswer(&all, false, "recordings")
}

// writeExport exports one recording, and returns the size of the file.
func (a *app) writeExport(path, output string, form exportForm, f exportFlags, at, oneDevice bool) (int64, error) {
	devices, err := a.exported(path, f, at, oneDevice)
	if err != nil {
		return 0, err
	}
	var count countingWriter
	err = a.outputs.write(output, func(w io.Writer) error {
		count = countingWriter{w: w}
		return form.write(a, &count, devices)
	})
	return count.n, err
}

// exported reads what there is to export.
func (a *app) exported(path string, f exportFlags, at, oneDevice bool) ([]export.Device, error) {
	var plan *planfile.Plan
	if f.plan != "" {
		var err error
		if plan, err = a.readPlan(f.plan); err != nil {
			return nil, err
		}
	}
	t, err := a.readTrace(path, trace.Options{})
	if err != nil {
		return nil, err
	}
	if plan != nil {
		if err := provenPlan(inputName(f.plan), plan, t); err != nil {
			return nil, err
		}
	}
	recorded, err := allocatingDevices(t, f.device, oneDevice)
	if err != nil {
		return nil, err
	}
	when, err := instant(f.at, at)
	if err != nil {
		return nil, err
	}
	var devices []export.Device
	for _, d := range recorded {
		r, p, err := readPeak(t, d, nil, when)
		if err != nil {
			return nil, err
		}
		if f := compile.FailureOf(d); f != nil {
			subject := t.Name
			if len(recorded) > 1 {
				subject = fmt.Sprintf("%s, device %d,", t.Name, d.Ordinal)
			}
			a.note("%s", f.Line(subject))
		}
		one := export.Device{Recording: r, At: p}
		if plan != nil {
			of, err := planDeviceByOrdinal(plan, d.Ordinal, inputName(f.plan))
			if err != nil {
				return nil, err
			}
			one.Offsets = export.Offsets(of, r.Timeline)
		}
		devices = append(devices, one)
	}
	return devices, nil
}
