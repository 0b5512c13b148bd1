package report

import (
	"bufio"
	"fmt"
	"io"
)

// Replayed is what `replay --json` prints. Bytes are of requests rounded up to
// 512; shares are of the recording's allocations.
type Replayed struct {
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
	PlanGranule        uint64  `json:"plan_granule_bytes"`
	Overlaps           int     `json:"overlaps"`

	// Failure is the last request that ran out of memory in the recording. If the
	// recording ends in it, it is served like the others.
	Failure *Failure `json:"out_of_memory"`

	Repeated *Repeated     `json:"repeated"` // null without --repeat
	Learned  *LearnedInRun `json:"learned"`  // null without --learn
}

// LearnedInRun is what came of plans that were made of the run that they then served. Peaks,
// bytes moved and the share on plan are of the time since the last of them was put in place,
// and 0 if none was.
type LearnedInRun struct {
	Iterations    int         `json:"iterations"` // of the program that have ended
	Plans         []PlanInRun `json:"plans"`
	Installs      int         `json:"installs"`       // plans that were put in place
	InPlaceAfter  int         `json:"in_place_after"` // iterations before the last one was put in place
	PeakAllocated uint64      `json:"peak_allocated_bytes"`
	PeakReserved  uint64      `json:"peak_reserved_bytes"`
	Efficiency    float64     `json:"efficiency"`
	PlannedBytes  float64     `json:"planned_bytes_fraction"`
	Moved         uint64      `json:"moved_bytes"`
}

// PlanInRun is a plan that was made of the first iterations of a run.
type PlanInRun struct {
	Iterations int    `json:"iterations"`
	Refused    string `json:"refused"` // why it cannot serve the run, "" if it may
}

// Repeated is a recording that was made longer, and what PyTorch's allocators
// reserve for it. diff cannot say that: it reads recordings only, and this one is
// in no file.
type Repeated struct {
	Iterations int    `json:"iterations"` // added to the recording
	Seed       uint64 `json:"seed"`
	Native     int64  `json:"native_reserved_bytes"`
	Expandable int64  `json:"expandable_reserved_bytes"`
}

// Write prints the result for people.
func (r *Replayed) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	if err := WriteFailures(out, r.Trace, []DeviceFailure{{r.Device, r.Failure}}); err != nil {
		return err
	}
	how := "without a plan"
	if r.Plan != nil {
		how = "with " + Printable(*r.Plan)
	}
	fmt.Fprintf(out, "%s: device %d, %s\n", Printable(r.Trace), r.Device, how)
	row := func(label, value string) { _ = writeWrapped(out, fmt.Sprintf("  %-16s", label), value) } // out keeps its error
	row("peak allocated", Count(r.PeakAllocated)+" B, "+Bytes(r.PeakAllocated))
	row("peak reserved", Count(r.PeakReserved)+" B, "+Bytes(r.PeakReserved))
	row("efficiency", Percent(r.Efficiency))
	row("allocations", fmt.Sprintf("%s: %s on plan (%s, of the bytes %s), %s in gaps, %s by growing", Count(r.Allocations),
		Count(r.PlannedAllocations), Percent(r.PlannedFraction), Percent(r.PlannedBytes), Count(r.FromGaps), Count(r.FromGrowth)))
	row("drift", fmt.Sprintf("left the plan's sequence %s times, found again elsewhere %s times, %s places taken", Count(r.DriftEvents), Count(r.Resyncs), Count(r.Clashes)))
	row("waits", Count(r.Waits))
	row("moved", Count(r.Moved)+" B of idle memory, to where it was needed")
	row("overlaps", Count(r.Overlaps))
	if m := r.Repeated; m != nil {
		row("repeated", fmt.Sprintf("%d iterations: native reserves %s, expandable segments %s", m.Iterations, Bytes(m.Native), Bytes(m.Expandable)))
	}
	if l := r.Learned; l != nil {
		l.write(row)
	}
	return out.Flush()
}

func (l *LearnedInRun) write(row func(label, value string)) {
	row("iterations", Count(l.Iterations))
	for _, p := range l.Plans {
		if p.Refused != "" {
			row("plan", fmt.Sprintf("made of %d iterations, not served: %s", p.Iterations, Printable(p.Refused)))
		} else {
			row("plan", fmt.Sprintf("made of %d iterations", p.Iterations))
		}
	}
	if l.Installs == 0 {
		row("in place", "none")
		return
	}
	row("in place", fmt.Sprintf("%d, the last one after %d iterations; since then %s reserved for %s (%s), %s of the bytes on plan, %s B moved",
		l.Installs, l.InPlaceAfter, Bytes(l.PeakReserved), Bytes(l.PeakAllocated), Percent(l.Efficiency), Percent(l.PlannedBytes), Count(l.Moved)))
}
