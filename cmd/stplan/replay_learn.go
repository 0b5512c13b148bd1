package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/cuda"
)

// learnedRoom is how many bytes of history a device may keep, as in runtime/torch.
const learnedRoom = 16 << 20

// learningDevice learns plans of the run that it serves, and puts them in place in that same
// run, as "stplan run" does. It makes them while the program waits, so each is there at the
// end of the iteration that it was made after.
type learningDevice struct {
	*simdevice.Device
	ordinal int
	folder  string // for histories
	since   *cuda.Counters
	out     report.LearnedInRun
}

// learn has a device learn while it is replayed. close removes what it has written.
func learn(d *simdevice.Device, ordinal int) (l *learningDevice, close func(), err error) {
	folder, err := os.MkdirTemp("", "stplan-learn-")
	if err != nil {
		return nil, nil, err
	}
	l = &learningDevice{Device: d, ordinal: ordinal, folder: folder, out: report.LearnedInRun{Plans: []report.PlanInRun{}}}
	return l, func() { os.RemoveAll(folder) }, d.KeepHistory(learnedRoom)
}

// Malloc notes the peaks from the time on at which the last plan was put in place.
func (l *learningDevice) Malloc(size, stream uint64) (uint64, int, error) {
	address, source, err := l.Device.Malloc(size, stream)
	c := l.Counters()
	if c.Installs > uint64(l.out.Installs) {
		l.out.Installs = int(c.Installs)
		l.out.PeakAllocated, l.out.PeakReserved = 0, 0
		l.since = &c
		l.out.InPlaceAfter = l.out.Iterations
	}
	if l.since != nil {
		l.out.PeakAllocated = max(l.out.PeakAllocated, c.AllocatedBytes)
		l.out.PeakReserved = max(l.out.PeakReserved, c.ReservedBytes)
	}
	return address, source, err
}

// EndIteration makes a plan if one is due.
func (l *learningDevice) EndIteration() error {
	l.out.Iterations++
	l.Step(0)
	if !l.LearnDue(learnSteps) {
		return nil
	}
	made := report.PlanInRun{Iterations: l.out.Iterations}
	p, err := l.compile()
	if err == nil {
		made.Refused, err = l.put(p)
	} else {
		made.Refused, err = err.Error(), nil
	}
	l.out.Plans = append(l.out.Plans, made)
	return err
}

// compile makes the plan of the history.
func (l *learningDevice) compile() (*planfile.Plan, error) {
	path := filepath.Join(l.folder, "learned.history")
	if err := l.WriteHistory(path, l.ordinal); err != nil {
		return nil, err
	}
	l.LearnMade()
	t, err := trace.ReadFile(path, trace.Options{})
	if err != nil {
		return nil, err
	}
	p, _, err := compile.Compile(context.Background(), t, compile.Options{Producer: producer, Serve: simdevice.Serve})
	return p, err
}

// put gives the runtime a plan. refused says why that does not take it, or is "".
func (l *learningDevice) put(p *planfile.Plan) (refused string, err error) {
	data, err := planfile.Encode(p)
	if err != nil {
		return "", &bug{err}
	}
	err = l.Install(data, l.ordinal)
	if errors.Is(err, cuda.ErrNotInRun) {
		of := &p.Devices[0]
		if of.Advice != planfile.AdviceNone {
			return of.Advice.String(), nil
		}
		return fmt.Sprintf("a plan in mode %s cannot begin in a run", of.Mode), nil
	}
	return "", err
}

// learned is what was learned, with the figures since the last plan was put in place.
func (l *learningDevice) learned() *report.LearnedInRun {
	out := l.out
	if l.since != nil {
		c := l.Counters()
		out.Moved = c.MovedBytes - l.since.MovedBytes
		out.PlannedBytes = float64(c.PlannedBytes-l.since.PlannedBytes) / float64(max(1, c.AllocationBytes-l.since.AllocationBytes))
		out.Efficiency = report.Account{PeakAllocated: int64(out.PeakAllocated), PeakReserved: int64(out.PeakReserved)}.Efficiency()
	}
	return &out
}

// iterationEnds are the times at which the iterations of a recording end.
func iterationEnds(t *trace.Trace, d *trace.Device, tl *lifespan.Timeline) ([]trace.Time, error) {
	it, err := lifespan.FindIterations(&t.Stacks, d, tl, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	if it.Count == 0 {
		return nil, fmt.Errorf("%s: device %d: no iterations, and --learn makes plans of them", t.Name, d.Ordinal)
	}
	return it.Starts[1:], nil
}

var _ replay.Iterated = (*learningDevice)(nil)
