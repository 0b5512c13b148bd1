package main

import (
	"context"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
)

// compareWithin says of one device which allocators get by with a device's memory, with
// the plan that is compared. peers are the names of --allocators.
func (a *app) compareWithin(ctx context.Context, pd *planfile.Device, t *trace.Trace, recorded baseline.Config, simulated []baseline.Allocator, peers []string, b fit.Budget) ([]report.FittedRow, error) {
	job, err := fit.NewJob(t, traceDevice(t, int(pd.Ordinal)), recorded)
	if err != nil {
		return nil, err
	}
	var serve fit.Server
	if simdevice.Built {
		serve = simdevice.ServeWithin
	}
	all := fit.Allocators(recorded, serve, func(context.Context, *fit.Job) (*planfile.Plan, error) {
		return &planfile.Plan{Producer: producer, Devices: []planfile.Device{*pd}}, nil
	})
	for _, s := range simulated {
		if s.Key == report.KeyConfigured {
			all = append(all, fit.Simulated(s))
		}
	}
	return a.tryAll(ctx, append(all, peerFitAllocators(peers, recorded)...), job, b)
}

// advise looks for the settings of PyTorch's allocator that serve a device's program best.
func (a *app) advise(ordinal int, t *trace.Trace, recorded baseline.Config, b *fit.Budget) (*report.Advice, error) {
	job, err := fit.NewJob(t, traceDevice(t, ordinal), recorded)
	if err != nil {
		return nil, err
	}
	bar := a.progress("trying settings")
	defer bar.done()
	got, err := fit.Advise(job, b, func(done int) { bar.update(int64(done), fit.MostAdvised) })
	if err != nil {
		return nil, err
	}
	out := &report.Advice{Conf: got.Conf, PeakReserved: int64(got.Trial.Reserved), Saved: int64(got.Recorded.Reserved - got.Trial.Reserved), Tried: got.Tried}
	if b != nil {
		out.Fits = &got.Trial.Fits
	}
	return out, nil
}
