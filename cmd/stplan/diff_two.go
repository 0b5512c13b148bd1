package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/callstack"
	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// runDiffTwo compares two recordings, or two plans, with each other.
func (a *app) runDiffTwo(ctx context.Context, before, after string, plans bool, f diffFlags) error {
	switch {
	case f.limits.isUnder:
		return errors.New("--fail-under is about a plan and its recording; --fail-over is about two")
	case f.advise || f.memory.device != "":
		return &hinted{errors.New("--advise and --device-memory are about one recording"), "stplan fit TRACE --device-memory 80GiB"}
	case plans && (len(f.configs) > 0 || f.recorded != ""):
		return errors.New("--config and --recorded-config need recordings, and there are only plans")
	}
	if err := oneStdin(before, after, "the first", "the second"); err != nil {
		return err
	}
	if err := a.demandInputs(before, after); err != nil {
		return err
	}
	if err := a.outputs.demand(f.limits.junit); err != nil {
		return err
	}
	changed := &report.Changed{Before: inputName(before), After: inputName(after), Devices: []report.ChangedDevice{}}
	var err error
	if plans {
		err = a.diffPlans(changed, before, after, f)
	} else {
		err = a.diffTraces(ctx, changed, before, after, f)
	}
	if err != nil {
		return err
	}
	if err := a.printChanged(changed, f.json); err != nil {
		return err
	}
	return a.enforce(&f.limits, changeVerdicts(&f.limits, changed))
}

func (a *app) printChanged(c *report.Changed, asJSON bool) error {
	if asJSON {
		return report.WriteJSON(a.stdout, c)
	}
	for side, name := range []string{c.Before, c.After} {
		var failures []report.DeviceFailure
		for i := range c.Devices {
			failures = append(failures, report.DeviceFailure{Device: c.Devices[i].Device, Failure: c.Devices[i].Failures[side]})
		}
		if err := report.WriteFailures(a.stdout, name, failures); err != nil {
			return err
		}
	}
	return c.Write(a.stdout, defaultTop)
}

// changeVerdicts hold every figure of the later one to that of the earlier one.
func changeVerdicts(f *limitFlags, c *report.Changed) []report.Verdict {
	if f.allowed == nil {
		return nil
	}
	var out []report.Verdict
	for _, d := range c.Devices {
		for _, figure := range d.Figures {
			v := report.Verdict{Subject: fmt.Sprintf("%s: device %d", c.After, d.DeviceAfter), Limit: f.allowed.limit(figure.Name)}
			switch {
			case figure.Before == nil:
				continue // nothing to be held to
			case figure.After == nil:
				v.Problem = figure.Name + ": runs out of memory, and did not before"
			default:
				v.Problem = f.allowed.exceeded(figure.Name+": "+report.Bytes(*figure.After), *figure.After, *figure.Before)
			}
			out = append(out, v)
		}
	}
	return out
}

// paired lists what both have, in order: the devices of two processes of a job may have
// other numbers. each is called with the positions of both.
func paired(before, after []int, names [2]string, one bool, ordinal int, each func(i, k int) error) error {
	if len(before) != len(after) {
		return fmt.Errorf("%s: expected %d devices, as in %s, found %d", names[1], len(before), names[0], len(after))
	}
	found := false
	for i := range before {
		if one && before[i] != ordinal {
			continue
		}
		found = true
		if err := each(i, i); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s: no device %d; it has %v", names[0], ordinal, before)
	}
	return nil
}

func (a *app) diffTraces(ctx context.Context, c *report.Changed, before, after string, f diffFlags) error {
	traces, err := a.readTraces([]string{before, after})
	if err != nil {
		return err
	}
	var devices [2][]*trace.Device
	var ordinals [2][]int
	for side, t := range traces {
		if devices[side], err = allocatingDevices(t, 0, false); err != nil {
			return err
		}
		for _, d := range devices[side] {
			ordinals[side] = append(ordinals[side], d.Ordinal)
		}
	}
	return paired(ordinals[0], ordinals[1], [2]string{c.Before, c.After}, f.oneDevice, f.device, func(i, k int) error {
		var sides [2]recordedSide
		for s, d := range []*trace.Device{devices[0][i], devices[1][k]} {
			if sides[s], err = a.recordedSide(ctx, traces[s], d, f); err != nil {
				return err
			}
		}
		c.Devices = append(c.Devices, changedDevice(&sides[0], &sides[1]))
		return nil
	})
}

// recordedSide is a device of a recording, as far as it is compared with another one.
type recordedSide struct {
	device     *trace.Device
	figures    []report.ChangedFigure // Before is the figure
	lines      map[peak.Line]int64
	categories map[string]int64
	phases     map[string]int64
	stacks     bool
}

func (a *app) recordedSide(ctx context.Context, t *trace.Trace, d *trace.Device, f diffFlags) (recordedSide, error) {
	s := recordedSide{device: d, lines: map[peak.Line]int64{}, categories: map[string]int64{}, phases: map[string]int64{}}
	r, err := peak.Read(t, d, nil)
	if err != nil {
		return s, fmt.Errorf("%s: %w", t.Name, err)
	}
	p, err := r.At(r.Timeline.PeakAllocated.At)
	if err != nil {
		return s, fmt.Errorf("%s: device %d: %w", t.Name, d.Ordinal, err)
	}
	for _, g := range r.ByLine(p) {
		s.lines[peak.Line{Label: g.Key.Label, From: g.Key.From}] += int64(g.Bytes)
	}
	for _, g := range p.ByCategory() {
		s.categories[g.Key.String()] += int64(g.Bytes)
	}
	for _, g := range p.ByPhase() {
		s.phases[phaseName(g.Key)] += int64(g.Bytes)
	}
	s.stacks = p.HasStacks
	s.figures, err = a.recordedFigures(ctx, t, d, f)
	return s, err
}

// phaseName is a phase without the number of its iteration, so that recordings of other
// lengths compare.
func phaseName(ph peak.Phase) string {
	switch {
	case ph.Iteration == peak.Before:
		return "before recording began"
	case ph.Iteration == 0:
		return "start-up"
	case ph.Part == callstack.PartUnknown:
		return "iterations"
	}
	return ph.Part.String()
}

// recordedFigures are what a recording shows, and what allocators take for its program.
func (a *app) recordedFigures(ctx context.Context, t *trace.Trace, d *trace.Device, f diffFlags) ([]report.ChangedFigure, error) {
	recorded, err := recordedConfig(t, f.recorded)
	if err != nil {
		return nil, err
	}
	configured, err := configuredAllocators(recorded, f.configs)
	if err != nil {
		return nil, err
	}
	job, err := fit.NewJob(t, d, recorded)
	if err != nil {
		return nil, err
	}
	var out []report.ChangedFigure
	add := func(name string, n trace.Bytes) {
		value := int64(n)
		out = append(out, report.ChangedFigure{Name: name, Before: &value})
	}
	add("peak allocated", job.Allocated())
	add("peak active", job.Timeline.PeakActive.Bytes)
	if !d.AddressesInvented {
		add("reserved as recorded", baseline.FromRecording(d).PeakReserved)
	}
	var serve fit.Server
	if simdevice.Built {
		serve = simdevice.ServeWithin
	}
	all := fit.Allocators(recorded, serve, nil)
	for _, c := range configured {
		all = append(all, fit.Simulated(c))
	}
	for _, al := range all {
		if al.Slow {
			continue // a plan is compared as a plan
		}
		answer, err := a.try(ctx, al, job, fit.Budget{Device: fit.Unlimited})
		if err != nil {
			return nil, err
		}
		add(al.Title, answer.Reserved)
	}
	return out, nil
}

func changedDevice(x, y *recordedSide) report.ChangedDevice {
	out := report.ChangedDevice{
		Device: x.device.Ordinal, DeviceAfter: y.device.Ordinal, Counts: []report.ChangedFigure{}, HasStacks: x.stacks && y.stacks,
		Failures: [2]*report.Failure{compile.FailureOf(x.device), compile.FailureOf(y.device)},
	}
	for i := range x.figures {
		figure := x.figures[i]
		if k := slices.IndexFunc(y.figures, func(o report.ChangedFigure) bool { return o.Name == figure.Name }); k >= 0 {
			figure.After = y.figures[k].Before
			out.Figures = append(out.Figures, figure)
		}
	}
	out.Lines = changes(moved(x.lines, y.lines), y.lines, func(l peak.Line) report.ChangedFigure { return report.ChangedFigure{Name: l.Label, From: l.From} })
	named := func(name string) report.ChangedFigure { return report.ChangedFigure{Name: name} }
	out.Categories = changes(x.categories, y.categories, named)
	out.Phases = changes(x.phases, y.phases, named)
	return out
}

// changes compares groups of bytes by their keys.
func changes[K comparable](before, after map[K]int64, named func(K) report.ChangedFigure) []report.ChangedFigure {
	out := []report.ChangedFigure{}
	for key, n := range before {
		figure := named(key)
		figure.Before = &n
		if m, ok := after[key]; ok {
			figure.After = &m
		}
		out = append(out, figure)
	}
	for key, n := range after {
		if _, ok := before[key]; !ok {
			figure := named(key)
			figure.After = &n
			out = append(out, figure)
		}
	}
	return report.SortChanges(out)
}

func (a *app) diffPlans(c *report.Changed, before, after string, f diffFlags) error {
	var plans [2]*planfile.Plan
	var ordinals [2][]int
	for side, path := range []string{before, after} {
		p, err := a.readPlan(path)
		if err != nil {
			return err
		}
		if v := verify.Plan(p, nil); len(v) > 0 {
			return &negative{fmt.Sprintf("%s: does not verify: %s", inputName(path), v[0].Message)}
		}
		plans[side] = p
		for i := range p.Devices {
			ordinals[side] = append(ordinals[side], int(p.Devices[i].Ordinal))
		}
	}
	return paired(ordinals[0], ordinals[1], [2]string{c.Before, c.After}, f.oneDevice, f.device, func(i, k int) error {
		c.Devices = append(c.Devices, changedPlan(&plans[0].Devices[i], &plans[1].Devices[k]))
		return nil
	})
}

func changedPlan(x, y *planfile.Device) report.ChangedDevice {
	waits, after := report.WaitsOf(x), report.WaitsOf(y)
	return report.ChangedDevice{
		Device: int(x.Ordinal), DeviceAfter: int(y.Ordinal),
		Figures: []report.ChangedFigure{
			report.Figure("plan", x.ArenaBytes, y.ArenaBytes),
			report.Figure("lower bound", x.Certificate.LowerBound, y.Certificate.LowerBound),
			report.Figure("peak allocated", x.PeakAllocated, y.PeakAllocated),
			{Name: "reserved as recorded", Before: known(x.RecordedPeakReserved), After: known(y.RecordedPeakReserved)},
		},
		Counts: []report.ChangedFigure{
			report.Figure("buffers", x.Allocations(), y.Allocations()),
			report.Figure("phases", max(1, len(x.Phases)), max(1, len(y.Phases))),
			report.Figure("waits", waits.Count, after.Count),
			report.Figure("waits, cross-stream", waits.CrossStream, after.CrossStream),
		},
		Lines: []report.ChangedFigure{}, Categories: []report.ChangedFigure{},
		Phases: changes(phaseBytes(x), phaseBytes(y), func(name string) report.ChangedFigure { return report.ChangedFigure{Name: name} }),
	}
}

// known is a number of bytes of a plan, nil if its recording did not say.
func known(n uint64) *int64 {
	if n == 0 {
		return nil
	}
	bytes := int64(n)
	return &bytes
}

// phaseBytes are what the phases of a plan take, by name.
func phaseBytes(d *planfile.Device) map[string]int64 {
	out := map[string]int64{}
	bodies := 0
	for i := range d.Phases {
		name := d.Phases[i].Kind.String()
		if i > 0 {
			bodies++
			name = fmt.Sprintf("%s %d", name, bodies)
		}
		out[name] = int64(d.Phases[i].Makespan)
	}
	return out
}
