package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/runtime/cuda"
)

// tellServed prints the summary, with notes on what the reader should know, and
// writes it to the file summary unless that is "". The error carries the job's exit
// code if that is not 0. learns is nil if the plans were named.
func (a *app) tellServed(reports string, plans *jobPlans, learns *learner, summary string, code int) error {
	all, err := readReports[runReport](reports)
	if err != nil {
		return err
	}
	learns.judge(reports, all)
	slices.SortStableFunc(all, func(x, y runReport) int { return byRankThenName(x.Name, y.Name) })
	served := report.Served{ExitCode: code, Processes: []report.ServedProcess{}}
	var said remarks
	for _, r := range all {
		learns.tell(&r, plans, &said)
		p, err := r.process(reports, plans, &said)
		if err != nil {
			return err
		}
		p.Learned = learns.learned(r.Name)
		served.Processes = append(served.Processes, p)
	}
	said.print(a)
	if len(all) == 0 {
		a.note("no process of the job used CUDA through PyTorch, so none was served; docs/running.md says what keeps stplan out")
	}
	isServed := func(p report.ServedProcess) bool { return p.Backend != nil }
	if slices.ContainsFunc(served.Processes, isServed) && !served.Allocated() {
		a.note("no process allocated GPU memory through stplan")
	}
	if !a.quiet {
		err = served.Write(a.stderr)
	}
	if summary != "" {
		err = errors.Join(err, a.outputs.write(summary, func(w io.Writer) error { return report.WriteJSON(w, served) }))
	}
	if code == 0 {
		return err
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "stplan: %s\n", message(err))
	}
	return &jobExit{code}
}

// process is the report with the counters that the process left behind.
func (r *runReport) process(dir string, plans *jobPlans, said *remarks) (report.ServedProcess, error) {
	p := report.ServedProcess{Name: r.Name, PID: r.PID, Plan: r.Plan, Similar: r.Similar, Devices: []report.ServedDevice{}}
	switch r.State {
	case stateServing:
		p.Backend = &r.Backend
		if r.Backend == backendPluggable {
			said.note(r.Name, "served through PyTorch's C interface, as the shim could not be built; docs/runtime.md says what that leaves out")
		}
	case stateNotServed:
		p.Error = &r.Error
		said.problem(r.Name, "not served, PyTorch's own allocator ran: "+r.Error)
		return p, nil
	case stateInstalling:
		ended := "ended while its allocator was put in place: killed, or crashed in native code"
		p.Error = &ended
		said.problem(r.Name, ended)
		return p, nil
	default:
		return p, fmt.Errorf("process %d (%s) reported %q, which is not a state", r.PID, r.Name, r.State)
	}
	if r.Without != "" {
		said.note(r.Name, "served from the pool alone: "+r.Without)
	}
	files, err := filepath.Glob(filepath.Join(dir, r.Name+".device*"))
	if err != nil {
		return p, err
	}
	for _, file := range files {
		d, err := readServedDevice(file)
		if err != nil {
			// The disk was full, or the process killed as it began to write.
			said.problem(r.Name, "no figures of one of its devices: "+err.Error())
			continue
		}
		if r.Plan != nil && d.PlanState != planStates[cuda.NoPlan] {
			if facts, ok := plans.of(*r.Plan, d.Device); ok {
				d.PlanBytes, d.RecordedPeakReserved = &facts.arenaBytes, &facts.recordedReserved
			}
		}
		said.ofDevice(r.Name, d)
		p.Devices = append(p.Devices, d)
	}
	slices.SortFunc(p.Devices, func(x, y report.ServedDevice) int { return cmp.Compare(x.Device, y.Device) })
	return p, nil
}

// readServedDevice reads one device's counters; its name ends with the ordinal.
func readServedDevice(file string) (report.ServedDevice, error) {
	ordinal, err := strconv.Atoi(filepath.Ext(file)[len(".device"):])
	if err != nil {
		return report.ServedDevice{}, fmt.Errorf("%s: expected a name that ends with a device's number", filepath.Base(file))
	}
	c, err := readCounters(file)
	if err != nil {
		return report.ServedDevice{}, err
	}
	d := report.ServedDevice{
		Device: ordinal, PlanState: planState(c.State),
		Allocations: int64(c.Allocations), AllocationBytes: int64(c.AllocationBytes),
		PlannedAllocations: int64(c.PlannedAllocations), PlannedBytes: int64(c.PlannedBytes),
		PeakAllocated: int64(c.PeakAllocated), PeakReserved: int64(c.PeakReserved),
		DriftEvents: int64(c.DriftEvents), Resyncs: int64(c.Resyncs), Clashes: int64(c.Clashes),
		Waits: int64(c.Waits), Growths: int64(c.Growths),
		FailedAllocations: int64(c.Failed), RefusedFrees: int64(c.RefusedFrees),
		MovedBytes: int64(c.MovedBytes), Installs: int64(c.Installs),
	}
	d.Derive()
	return d, nil
}
