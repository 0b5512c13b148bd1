package main

import (
	"fmt"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// repeat makes the recording of a device n iterations longer (lifespan.Lengthen)
// and simulates the native allocator and expandable segments on it. ends are the times at
// which its iterations end.
func (a *app) repeat(t *trace.Trace, d *trace.Device, n int, seed uint64) (long *trace.Device, ends []trace.Time, out *report.Repeated, err error) {
	fail := func(err error) (*trace.Device, []trace.Time, *report.Repeated, error) {
		return nil, nil, nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	tl, err := lifespan.Build(d)
	if err != nil {
		return fail(err)
	}
	it, err := lifespan.FindIterations(&t.Stacks, d, tl, nil)
	if err != nil {
		return fail(err)
	}
	long, ends, err = lifespan.Lengthen(tl, it, n, seed)
	if err != nil {
		return fail(err)
	}
	recorded, err := baseline.RecordedConfig(t.Settings)
	if err != nil {
		return fail(err)
	}
	program, err := baseline.ReadProgram(long, recorded)
	if err != nil {
		return fail(fmt.Errorf("device %d: %w", d.Ordinal, err))
	}
	out = &report.Repeated{Iterations: n, Seed: seed}
	reserved := map[string]*int64{baseline.KeyNative: &out.Native, baseline.KeyExpandable: &out.Expandable}
	for _, al := range baseline.Allocators(recorded) {
		into, shown := reserved[al.Key]
		if !shown {
			continue
		}
		bar := a.progress("simulating " + al.Title)
		got, err := baseline.Simulate(program, al, bar.update)
		bar.done()
		if err != nil {
			return fail(fmt.Errorf("device %d: %s: %w", d.Ordinal, al.Title, err))
		}
		*into = int64(got.PeakReserved)
	}
	return long, ends, out, nil
}
