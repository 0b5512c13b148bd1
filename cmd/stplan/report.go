package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/page"
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

type reportFlags struct {
	traces []string
	output string
	svg    string
	png    string
	device int
	json   bool
}

func (a *app) reportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report PLAN.bin --trace TRACE [-o FILE] [--svg FILE] [--png FILE]",
		Short: "Draw a plan and its recording: one HTML file, or still pictures",
		Long: `report writes one HTML file that any browser opens, without a network:

  memory over time: what the program held, and what PyTorch's native allocator,
  its expandable segments, the runtime's pool and the plan reserve for it;
  the plan as a picture, time by address, each buffer a rectangle, beside the
  segments of the recorded allocator: what is grey there was reserved and of no
  use. Point at a buffer for its size, lifetime and stack, search for a line of
  code, zoom and move with the mouse or the keyboard;
  where the lower bound binds, what was in memory at the peak as a flame graph,
  and the tables of "stplan diff" and "stplan peak", whose figures it has.

--svg and --png write a still picture for a paper, a chat or a terminal: memory
over time, and both pictures by address. Without -o no page is written then.

A folder or a pattern of plans, with one of recordings, makes a page for each
plan, with the recording of its name. -o, --svg and --png are folders then;
without them each page lies beside its plan.

A plan of several recordings (compile --merge) takes all of them, in the order
in which they were merged, and shows them as one: the first, and then the steady
iterations of the others, as the plan was made from them. What was recorded of
the allocator is left out then.

docs/report.md says what is on the page and how to read it.`,
		Example: `  stplan report run.bin --trace run.pickle.gz            # writes run.html
  stplan report run.bin --trace run.pickle.gz -o report.html
  stplan report run.bin --trace run.pickle.gz --png run.png --svg run.svg
  stplan report plans/ --trace traces/ -o pages/
  stplan report plan.bin --trace s1.pickle --trace s2.pickle   # of --merge`,
		Args: exactArgs("PLAN.bin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := demandValues(cmd, "trace", "output", "svg", "png"); err != nil {
				return err
			}
			return a.runReport(args[0], f, cmd.Flags().Changed("device"))
		},
	}
	cmd.Flags().StringArrayVar(&f.traces, "trace", nil, "the recording that the plan was made from; of several recordings, once for each")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", `HTML file to write, "-" for standard output (default: the plan's name with .html)`)
	cmd.Flags().StringVar(&f.svg, "svg", "", `still picture to write as SVG, "-" for standard output`)
	cmd.Flags().StringVar(&f.png, "png", "", `still picture to write as PNG, "-" for standard output`)
	cmd.Flags().IntVar(&f.device, "device", 0, "show only this device")
	cmd.Flags().BoolVar(&f.json, "json", false, "print what was written as JSON")
	return cmd
}

func (a *app) runReport(path string, f reportFlags, oneDevice bool) error {
	if len(f.traces) == 0 {
		return &hinted{errors.New("report needs the recording that the plan was made from"), "--trace TRACE"}
	}
	if plans := a.findInputs([]string{path}, planInputs); plans.many {
		if err := plans.none(); err != nil {
			return err
		}
		return a.runReportMany(plans, a.findInputs(f.traces, recordingInputs), f, oneDevice)
	}
	for i, t := range f.traces {
		if err := oneStdin(path, t, "PLAN.bin", "--trace"); err != nil {
			return err
		}
		var err error
		if f.traces[i], err = a.oneRecording(t); err != nil {
			return err
		}
	}
	output, err := reportOutput(path, f)
	if err != nil {
		return err
	}
	if err := a.demandInputs(append([]string{path}, f.traces...)...); err != nil {
		return err
	}
	if err := a.outputs.demand(output, f.svg, f.png); err != nil {
		return err
	}
	result, err := a.writeReport(path, output, f, oneDevice)
	switch {
	case err != nil:
		return err
	case f.json:
		return report.WriteJSON(a.stdout, result)
	case output == "-" || f.svg == "-" || f.png == "-":
		return nil
	}
	return result.Write(a.stdout)
}

// wholePage reads the plan and the recording, and finds what there is to show of them.
func (a *app) wholePage(path string, f reportFlags, oneDevice bool) (*page.Page, error) {
	p, err := a.readPlan(path)
	if err != nil {
		return nil, err
	}
	t, err := a.readJoined(f.traces)
	if err != nil {
		return nil, err
	}
	if err := provenPlan(inputName(path), p, t); err != nil {
		return nil, err
	}
	if len(f.traces) > 1 {
		// Only the first part of a joined recording has its segments.
		for i := range t.Devices {
			t.Devices[i].AddressesInvented = true
		}
	}
	devices := p.Devices
	if oneDevice {
		d, err := planDeviceByOrdinal(p, f.device, inputName(path))
		if err != nil {
			return nil, err
		}
		devices = []planfile.Device{*d}
	}
	whole := &page.Page{Trace: t.Name, Plan: inputName(path), Producer: producer}
	for i := range devices {
		d, err := a.drawn(inputName(path), &devices[i], t)
		if err != nil {
			return nil, err
		}
		whole.Devices = append(whole.Devices, d)
	}
	return whole, nil
}

// noteReport names the command that draws a plan, if both files are there to be read again.
func (a *app) noteReport(plan, recording string) {
	if plan != "-" && recording != "-" {
		a.note("stplan report %s --trace %s draws it", shellQuote(plan), shellQuote(inputName(recording)))
	}
}

// reportOutput is the page to write, "" for none.
func reportOutput(path string, f reportFlags) (string, error) {
	var streams []string // flags that write to standard output
	for _, flag := range [][2]string{{"-o", f.output}, {"--svg", f.svg}, {"--png", f.png}} {
		if flag[1] == "-" {
			streams = append(streams, flag[0])
		}
	}
	switch {
	case len(streams) > 1:
		return "", fmt.Errorf("%s: only one can be standard output", strings.Join(streams, " and "))
	case len(streams) > 0 && f.json:
		return "", twoWriters(streams[0])
	case f.output != "", f.svg != "", f.png != "":
		return f.output, nil
	case path == "-":
		return "", &hinted{errors.New("a plan from standard input needs a name for its report"), "-o FILE, or -o - for standard output"}
	}
	return outputName(strings.TrimSuffix(path, ".bin"), ".html"), nil
}

// drawn is what the report shows of a device.
func (a *app) drawn(planName string, pd *planfile.Device, t *trace.Trace) (*page.Device, error) {
	recorded, allocators, err := diffAllocators(t, diffFlags{})
	if err != nil {
		return nil, err
	}
	compared, err := a.compareDevice(planName, pd, t, recorded, allocators, nil)
	if err != nil {
		return nil, err
	}
	d := traceDevice(t, int(pd.Ordinal))
	r, at, err := readPeak(t, d, nil, peak.Auto)
	if err != nil {
		return nil, err
	}
	curves, err := a.curves(r, recorded, allocators, &compared)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	out, err := page.Build(page.Input{
		Recording: r, At: at, Plan: pd, Curves: curves,
		Figures: page.Figures{Diff: compared, Peak: peakedDevice(r, at, defaultTop)},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", planName, err)
	}
	return out, nil
}

// curves are memory over time: what the program held, and what each allocator reserved for
// it.
func (a *app) curves(r *peak.Recording, recorded baseline.Config, allocators []baseline.Allocator, c *report.Compared) ([]page.Curve, error) {
	out := []page.Curve{page.Allocated(r.Timeline.Load(lifespan.EndRequested))}
	if !r.Device.AddressesInvented {
		out = append(out, page.Recorded(r.Device, "recorded ("+recorded.Kind()+")"))
	}
	program, err := baseline.ReadProgram(r.Device, recorded)
	if err != nil {
		return nil, fmt.Errorf("device %d: %w", r.Device.Ordinal, err)
	}
	program = program.Granted()
	for _, al := range allocators {
		bar := a.progress("drawing " + al.Title)
		curve := page.Curve{Key: al.Key, Title: al.Title + ", simulated"}
		_, err := baseline.Follow(program, al, bar.update, curve.Set)
		bar.done()
		if err != nil {
			return nil, fmt.Errorf("device %d: %s: %w", r.Device.Ordinal, al.Title, err)
		}
		out = append(out, curve)
	}
	if simdevice.Built {
		curve := page.Curve{Key: "pool", Title: "stplan's pool, without a plan"}
		if err := simdevice.FollowPool(replay.NewProgram(r.Timeline), curve.Set); err != nil {
			return nil, unserved(fmt.Errorf("device %d: %w", r.Device.Ordinal, err))
		}
		out = append(out, curve)
	}
	plan := page.Curve{Key: "plan", Title: "plan (" + c.Plan.Mode + ")"}
	plan.Set(0, trace.Bytes(c.Plan.PeakReserved))
	return append(out, plan), nil
}

// writeReport finds what there is to show of a plan, writes the files and says which.
func (a *app) writeReport(path, output string, f reportFlags, oneDevice bool) (*report.Reported, error) {
	p, err := a.wholePage(path, f, oneDevice)
	if err != nil {
		return nil, err
	}
	result := &report.Reported{Trace: p.Trace, Plan: p.Plan, Files: []report.ReportedFile{}}
	for _, d := range p.Devices {
		result.Devices = append(result.Devices, reportedDevice(d))
		for _, n := range d.Notes {
			a.note("device %d: %s", d.Ordinal, n)
		}
	}
	if (f.svg != "" || f.png != "") && len(p.Devices) > 1 {
		return nil, &hinted{fmt.Errorf("a still picture is of one device, and the plan has %d", len(p.Devices)), "choose with --device"}
	}
	for _, file := range []struct {
		path    string
		content func(io.Writer) error
	}{{output, p.WriteHTML}, {f.svg, p.Devices[0].WriteSVG}, {f.png, p.Devices[0].WritePNG}} {
		if file.path == "" {
			continue
		}
		var count countingWriter
		if err := a.outputs.write(file.path, func(w io.Writer) error {
			count = countingWriter{w: w}
			return file.content(&count)
		}); err != nil {
			return nil, err
		}
		if file.path != "-" {
			result.Files = append(result.Files, report.ReportedFile{Path: file.path, Bytes: count.n})
		}
	}
	return result, nil
}

func reportedDevice(d *page.Device) report.ReportedDevice {
	out := report.ReportedDevice{
		Device: d.Ordinal, Events: d.Events, Buffers: d.Counts.Buffers, Shown: d.Counts.Shown, OffPlan: d.Counts.OffPlan,
		PeakEvent: d.Peak.Event, BoundKind: d.Bound.Kind, BoundEvent: d.Bound.Event, Curves: []report.ReportedCurve{},
		Failure: d.Figures.Diff.Failure,
	}
	for _, c := range d.Curves {
		out.Curves = append(out.Curves, report.ReportedCurve{Key: c.Key, Title: c.Title, Peak: c.Peak})
	}
	return out
}
