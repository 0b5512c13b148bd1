package compile

import (
	"fmt"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// FailureOf is the last request that ran out of memory on a device, nil if none did.
func FailureOf(d *trace.Device) *report.Failure {
	failures := d.Failures()
	at := failures.Last()
	if at < 0 {
		return nil
	}
	e := &d.Events[at]
	free, had := d.Room(e)
	return &report.Failure{Event: int64(at), Requested: int64(e.Size), Stream: e.Stream,
		DriverFree: int64(free), Had: int64(had), Fatal: failures.Fatal, Count: len(failures.At)}
}

// WouldFit says what allocators take for a recording that ends in an out-of-memory, with
// the request that failed. recorded is what the recording ran under, and served what a
// run reserves under the plan. It is nil for any other recording, and for a history.
func WouldFit(d *trace.Device, recorded baseline.Config, served int64) (*report.WouldFit, error) {
	failure := FailureOf(d)
	if failure == nil || !failure.Fatal || d.AddressesInvented {
		return nil, nil // what the process could get is not known without addresses
	}
	program, err := baseline.ReadProgram(d, recorded)
	if err != nil {
		return nil, err
	}
	program = program.Granted()
	fit := &report.WouldFit{Available: available(d, failure), Held: int64(baseline.FromRecording(d).PeakReserved)}
	if fit.Native, err = fits(program, baseline.Native(recorded), fit.Available); err != nil {
		return nil, err
	}
	if fit.Expandable, err = fits(program, baseline.Expandable(recorded), fit.Available); err != nil {
		return nil, err
	}
	fit.Plan.PeakReserved = served
	if fit.Available != nil {
		enough := served <= *fit.Available
		fit.Plan.Fits = &enough
	}
	for _, f := range []*report.Fit{&fit.Native, &fit.Expandable, &fit.Plan} {
		if fit.Available == nil && f.PeakReserved <= fit.Held {
			enough := true
			f.Fits = &enough
		}
	}
	failed := false // the recorded allocator did not get by, whatever a simulation says
	if recorded.Expandable {
		fit.Expandable.Fits = &failed
	} else {
		fit.Native.Fits = &failed
	}
	return fit, nil
}

// available is what the process had and could get when a request failed. If the driver
// had enough for it, a limit that the recording does not hold kept the process from it.
func available(d *trace.Device, f *report.Failure) *int64 {
	if trace.Bytes(f.DriverFree) >= trace.SegmentFor(trace.Bytes(f.Requested)) {
		return nil
	}
	sum := int64(baseline.ReservedAt(d, trace.Time(f.Event))) + f.DriverFree
	return &sum
}

// fits runs a program without a limit for what it reserves, and with one for whether it
// gets by.
func fits(program *baseline.Program, c baseline.Config, available *int64) (report.Fit, error) {
	c.MemoryFraction = 0
	a := baseline.Caching("", c.Kind(), c)
	if available == nil {
		free, err := baseline.Simulate(program, a.Within(0, 0), nil)
		if err != nil {
			return report.Fit{}, fmt.Errorf("%s: %w", a.Title, err)
		}
		return report.Fit{PeakReserved: int64(free.PeakReserved)}, nil
	}
	w, err := baseline.SimulateWithin(program, a, trace.Bytes(*available), 0, nil)
	if err != nil {
		return report.Fit{}, fmt.Errorf("%s: %w", a.Title, err)
	}
	enough := w.Fits()
	fit := report.Fit{PeakReserved: int64(w.PeakReserved), Fits: &enough}
	if within := int64(w.Limited.PeakReserved); enough {
		fit.Within = &within
	}
	return fit, nil
}

// wouldFit is the answer for the device that is compiled. planned is the plan's size with
// what is off plan, and judged what serving it took, if it was tried.
func (c *compiler) wouldFit(planned int64, judged *report.Judged) (*report.WouldFit, error) {
	if failed := c.timeline.Failed(); failed == nil {
		return nil, nil
	}
	recorded, err := baseline.RecordedConfig(c.settings)
	if err != nil {
		c.note("what would have fitted is not known: recorded settings: %v", err)
		return nil, nil
	}
	served := max(planned, int64(c.timeline.PeakAllocated.Bytes))
	switch {
	case judged != nil && judged.Pays:
		served = judged.Planned
	case judged != nil:
		served = judged.Pool
	}
	fit, err := WouldFit(c.device, recorded, served)
	if err != nil {
		return nil, fmt.Errorf("%s: device %d: %w", c.trace, c.device.Ordinal, err)
	}
	return fit, nil
}
