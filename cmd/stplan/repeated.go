package main

import (
	"fmt"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// repeat makes up the recording of a device that goes on for n iterations, and
// serves it natively and by expandable segments.
func (a *app) repeat(t *trace.Trace, d *trace.Device, n int, seed uint64) (*trace.Device, *report.Repeated, error) {
	fail := func(err error) (*trace.Device, *report.Repeated, error) {
		return nil, nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	tl, err := lifespan.Build(d)
	if err != nil {
		return fail(err)
	}
	it, err := lifespan.FindIterations(d, tl, nil)
	if err != nil {
		return fail(err)
	}
	long, err := lifespan.Lengthen(tl, it, n, seed)
	if err != nil {
		return fail(err)
	}
	recorded, err := baseline.RecordedConfig(t.Settings)
	if err != nil {
		return fail(err)
	}
	out := &report.Repeated{Iterations: n, Seed: seed}
	for _, s := range []struct {
		label    string
		config   baseline.Config
		reserved *int64
	}{{"native", baseline.Native(recorded), &out.Native}, {"expandable segments", baseline.Expandable(recorded), &out.Expandable}} {
		bar := a.progress("simulating " + s.label)
		got, err := baseline.Simulate(long, s.config, bar.update)
		bar.done()
		if err != nil {
			return fail(fmt.Errorf("device %d: %s: %w", d.Ordinal, s.label, err))
		}
		*s.reserved = int64(got.PeakReserved)
	}
	return long, out, nil
}
