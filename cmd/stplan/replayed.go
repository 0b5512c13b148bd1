package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/cuda"
)

// replayed is what `replay --json` prints. Bytes are of requests rounded up to
// 512; shares are of the recording's allocations.
type replayed struct {
	Trace              string  `json:"trace"`
	Plan               *string `json:"plan"`
	Device             int     `json:"device"`
	PeakAllocated      uint64  `json:"peak_allocated_bytes"`
	PeakReserved       uint64  `json:"peak_reserved_bytes"`
	Efficiency         float64 `json:"efficiency"`
	Allocations        int     `json:"allocations"`
	PlannedAllocations int     `json:"planned_allocations"`
	PlannedFraction    float64 `json:"planned_fraction"`
	PlannedBytes       float64 `json:"planned_bytes_fraction"`
	FromGaps           int     `json:"gap_allocations"`
	FromGrowth         int     `json:"grow_allocations"`
	DriftEvents        uint64  `json:"drift_events"`
	Resyncs            uint64  `json:"resyncs"`
	Clashes            uint64  `json:"clashes"`
	Waits              uint64  `json:"waits"`
	Moved              uint64  `json:"moved_bytes"`
	Overlaps           int     `json:"overlaps"`

	Repeated *repeated `json:"repeated"` // null without --repeat
}

func (r *replayed) fill(p *replay.Program, result *replay.Result, c cuda.Counters) {
	r.PeakAllocated, r.PeakReserved = c.PeakAllocated, c.PeakReserved
	r.Efficiency = report.Account{PeakAllocated: int64(c.PeakAllocated), PeakReserved: int64(c.PeakReserved)}.Efficiency()
	r.DriftEvents, r.Resyncs, r.Clashes = c.DriftEvents, c.Resyncs, c.Clashes
	r.Waits, r.Moved = c.Waits, c.MovedBytes
	r.Overlaps = result.Overlaps
	var all, planned trace.Bytes
	for _, at := range result.Placements {
		q := &p.Requests[at.Request]
		if !q.Original {
			continue
		}
		r.Allocations++
		all += replay.Aligned(q.Requested)
		switch cuda.Source(at.Source) {
		case cuda.FromPlan:
			r.PlannedAllocations++
			planned += replay.Aligned(q.Requested)
		case cuda.FromGap:
			r.FromGaps++
		case cuda.FromGrow:
			r.FromGrowth++
		}
	}
	r.PlannedFraction = float64(r.PlannedAllocations) / float64(max(1, r.Allocations))
	r.PlannedBytes = float64(planned) / float64(max(1, all))
}

// printReplayed prints the result: on standard output, or, when the addresses went
// there, on standard error.
func (a *app) printReplayed(r *replayed, f replayFlags) error {
	switch {
	case f.json:
		return report.WriteJSON(a.stdout, r)
	case f.addresses != "-":
		return r.print(a.stdout)
	case a.quiet:
		return nil
	}
	return r.print(a.stderr)
}

func (r *replayed) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	how := "without a plan"
	if r.Plan != nil {
		how = "with " + *r.Plan
	}
	fmt.Fprintf(out, "%s: device %d, %s\n", r.Trace, r.Device, how)
	row := func(label, value string) { fmt.Fprintf(out, "  %-16s%s\n", label, value) }
	row("peak allocated", report.Count(r.PeakAllocated)+" B  "+report.Bytes(r.PeakAllocated))
	row("peak reserved", report.Count(r.PeakReserved)+" B  "+report.Bytes(r.PeakReserved))
	row("efficiency", report.Percent(r.Efficiency))
	row("allocations", fmt.Sprintf("%s: %s on plan (%s, of the bytes %s), %s in gaps, %s by growing", report.Count(r.Allocations),
		report.Count(r.PlannedAllocations), report.Percent(r.PlannedFraction), report.Percent(r.PlannedBytes), report.Count(r.FromGaps), report.Count(r.FromGrowth)))
	row("drift", fmt.Sprintf("left the plan's sequence %s times, found again elsewhere %s times, %s places taken", report.Count(r.DriftEvents), report.Count(r.Resyncs), report.Count(r.Clashes)))
	row("waits", report.Count(r.Waits))
	row("moved", report.Count(r.Moved)+" B of idle memory, to where it was needed")
	row("overlaps", report.Count(r.Overlaps))
	if m := r.Repeated; m != nil {
		row("repeated", fmt.Sprintf("%d iterations: native reserves %s, expandable segments %s", m.Iterations, report.Bytes(m.Native), report.Bytes(m.Expandable)))
	}
	return out.Flush()
}

// writeAddresses writes where each allocation event was served.
func writeAddresses(w io.Writer, p *replay.Program, result *replay.Result) error {
	names := map[cuda.Source]string{cuda.FromPlan: "plan", cuda.FromGap: "gap", cuda.FromGrow: "grow"}
	out := bufio.NewWriterSize(w, 1<<16)
	out.WriteString("event,size,address,source\n")
	for _, at := range result.Placements {
		if q := &p.Requests[at.Request]; q.Event >= 0 {
			fmt.Fprintf(out, "%d,%d,%d,%s\n", q.Event, q.Requested, at.Address, names[cuda.Source(at.Source)])
		}
	}
	return out.Flush()
}
