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
// the plan that is compared.
func (a *app) compareWithin(ctx context.Context, pd *planfile.Device, t *trace.Trace, recorded baseline.Config, simulated []baseline.Allocator, b fit.Budget) ([]report.FittedRow, error) {
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
	return a.tryAll(ctx, all, job, b)
}
