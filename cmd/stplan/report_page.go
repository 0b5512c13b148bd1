package main

import (
	"fmt"
	"io"

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
