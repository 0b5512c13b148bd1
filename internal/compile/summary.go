package compile

import (
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// summary is the device's row of what compile says.
func (c *compiler) summary(dev *planfile.Device, pl packing.Placement) report.CompiledDevice {
	row := report.CompiledDevice{
		Device:               int(dev.Ordinal),
		Mode:                 dev.Mode.String(),
		Buffers:              dev.Allocations(),
		PeakAllocated:        int64(dev.PeakAllocated),
		PeakActive:           int64(dev.PeakActive),
		RecordedPeakReserved: int64(dev.RecordedPeakReserved),
		LowerBound:           int64(dev.Certificate.LowerBound),
		LowerBoundAt:         int64(dev.Certificate.At),
		PlanBytes:            int64(dev.ArenaBytes),
		Gap:                  report.GapShare(int64(dev.ArenaBytes), int64(dev.Certificate.LowerBound)),
		Iterations:           c.iterations.Count,
		IterationSource:      c.iterations.Source,
		SteadyStart:          int64(dev.SteadyStart),
		Exchanges:            len(c.timeline.Exchanges),
		Waits:                report.WaitsOf(dev),
		NoReusePending:       c.NoReusePending,
		NoCrossStream:        c.NoCrossStream,
		Heuristic:            pl.Heuristic,
	}
	if row.NoReusePending || row.NoCrossStream {
		cost := row.PlanBytes - int64(c.freeBound())
		row.Cost = &cost
	}
	if c.scaled != nil {
		c.scaled.Bound = int64(pl.MaxLoad.Load)
		row.Scaled = c.scaled
	}
	if c.periodic != nil {
		row.Steady = c.steadySummary(dev)
	}
	return row
}

// freeBound is the lower bound if no wait is forbidden: the load to the requested
// ends, all streams together.
func (c *compiler) freeBound() trace.Bytes {
	if c.periodic != nil {
		if free, _ := lifespan.FindPeriodic(c.timeline, c.iterations, lifespan.EndRequested); free != nil {
			if shared := free.Shared(c.timeline, c.iterations, lifespan.EndRequested); c.shared && shared != nil {
				free = shared
			}
			return envelope(c.timeline, free, lifespan.EndRequested)
		}
	}
	return c.timeline.PeakAllocated.Bytes
}

// steadySummary is what only a periodic plan has.
func (c *compiler) steadySummary(dev *planfile.Device) *report.SteadyState {
	per := c.periodic
	recorded := per.PeakRecorded(c.timeline, c.end())
	cells, cellBytes := dev.Cells()
	s := &report.SteadyState{
		CutEvent: int64(per.Cut), EndEvent: int64(per.End), Passes: len(per.Passes),
		Cells: cells, CellBytes: int64(cellBytes), StrayBytes: int64(per.StrayBytes), RecordedPeak: int64(recorded.Bytes),
		Believed: c.believed,
	}
	s.Shared, s.Places = dev.CountShared()
	if recorded.Bytes > 0 {
		s.EnvelopeCost = float64(dev.Certificate.LowerBound)/float64(recorded.Bytes) - 1
	}
	for x := range dev.Phases {
		p := &dev.Phases[x]
		count := dev.CountPhase(x)
		s.Phases = append(s.Phases, report.Phase{
			Kind: p.Kind.String(), Passes: int(p.Occurrences), Length: int64(p.Length),
			Slots: count.Allocations, Optional: count.Optional, Strays: count.Strays,
			Makespan: int64(p.Makespan), LowerBound: int64(p.LowerBound), Gap: report.GapShare(int64(p.Makespan), int64(p.LowerBound)),
		})
	}
	return s
}
