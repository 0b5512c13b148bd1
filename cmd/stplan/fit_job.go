package main

import (
	"context"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

type fitFlags struct {
	memory   memoryFlags
	sizes    []float64
	at       []float64
	configs  []string
	peers    []string
	recorded string
	device   int
	top      int
	json     bool
}

// fitTrace tries the devices of a recording.
func (a *app) fitTrace(ctx context.Context, t *trace.Trace, f fitFlags, oneDevice bool, b fit.Budget) ([]*fit.Job, []report.FittedJob, error) {
	devices, err := allocatingDevices(t, f.device, oneDevice)
	if err != nil {
		return nil, nil, err
	}
	recorded, err := recordedConfig(t, f.recorded)
	if err != nil {
		return nil, nil, err
	}
	configured, err := configuredAllocators(recorded, f.configs)
	if err != nil {
		return nil, nil, err
	}
	all := fitAllocators(recorded)
	for _, c := range configured {
		all = append(all, fit.Simulated(c))
	}
	all = append(all, peerFitAllocators(f.peers, recorded)...)
	var jobs []*fit.Job
	var rows []report.FittedJob
	for _, d := range devices {
		job, err := fit.NewJob(t, d, recorded)
		if err != nil {
			return nil, nil, err
		}
		row, err := a.fitJob(ctx, job, all, b)
		if err != nil {
			return nil, nil, err
		}
		jobs, rows = append(jobs, job), append(rows, *row)
	}
	return jobs, rows, nil
}

// fitJob tries one device of a recording, or, if the budget has no device's memory, looks for
// how little would do.
func (a *app) fitJob(ctx context.Context, job *fit.Job, all []fit.Allocator, b fit.Budget) (*report.FittedJob, error) {
	d := job.Device
	row := &report.FittedJob{Trace: job.Trace.Name, Device: d.Ordinal, PeakAllocated: int64(job.Allocated()), Failure: compile.FailureOf(d)}
	var err error
	if row.SelfCheck, err = a.selfCheckJob(d, job.Recorded); err != nil {
		return nil, err
	}
	if b.Device == 0 {
		row.Least, err = a.leastAll(ctx, all, job, b)
	} else {
		row.Allocators, err = a.tryAll(ctx, all, job, b)
	}
	return row, err
}

// fitAllocators are those that every job is tried on.
func fitAllocators(recorded baseline.Config) []fit.Allocator {
	opt := compile.Options{Producer: producer}
	if !simdevice.Built {
		return fit.Allocators(recorded, nil, nil)
	}
	opt.Serve = simdevice.Serve
	return fit.Allocators(recorded, simdevice.ServeWithin, fit.Compiled(opt))
}

// selfCheckJob checks the simulation by a device's recording.
func (a *app) selfCheckJob(d *trace.Device, recorded baseline.Config) (report.SelfCheck, error) {
	program, err := baseline.ReadProgram(d, recorded)
	if err != nil {
		return report.SelfCheck{}, err
	}
	return a.selfCheck(d, program, recorded)
}
