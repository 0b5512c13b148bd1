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

// account fills in what a replay gave.
func account(r *report.Replayed, p *replay.Program, result *replay.Result, c cuda.Counters) {
	r.PeakAllocated, r.PeakReserved = c.PeakAllocated, c.PeakReserved
	r.Efficiency = report.Account{PeakAllocated: int64(c.PeakAllocated), PeakReserved: int64(c.PeakReserved)}.Efficiency()
	r.DriftEvents, r.Resyncs, r.Clashes = c.DriftEvents, c.Resyncs, c.Clashes
	r.Waits, r.Moved, r.PlanGranule = c.Waits, c.MovedBytes, c.PlanGranuleBytes
	r.Overlaps = result.Overlaps
	var all, planned trace.Bytes
	for _, at := range result.Placements {
		q := &p.Requests[at.Request]
		if !q.Original {
			continue
		}
		r.Allocations++
		all += trace.RoundUp(q.Requested)
		switch cuda.Source(at.Source) {
		case cuda.FromPlan:
			r.PlannedAllocations++
			planned += trace.RoundUp(q.Requested)
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
func (a *app) printReplayed(r *report.Replayed, asJSON, addressesThere bool) error {
	switch {
	case asJSON:
		return report.WriteJSON(a.stdout, r)
	case !addressesThere:
		return r.Write(a.stdout)
	case a.quiet:
		return nil
	}
	return r.Write(a.stderr)
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
