package report

import (
	"fmt"
	"io"
	"strings"
)

// Compiled is the summary of one recording's plan.
type Compiled struct {
	Trace string   `json:"trace"`
	Plan  string   `json:"plan"`
	Notes []string `json:"notes,omitempty"`
	// Program names what the recording does, in hexadecimal: recordings of one program have
	// one plan. Empty if the recording was compiled by itself.
	Program string `json:"program,omitempty"`
	// SharedFrom is the first recording of the same program, if that is another one.
	SharedFrom string `json:"shared_from,omitempty"`
	// Kept says that another plan serves the recording clearly better than the one that was made of it, so that nothing
	// was written (compile --against).
	Kept    bool             `json:"kept,omitempty"`
	Devices []CompiledDevice `json:"devices"`
}

// CompiledDevice is one device's plan. Sizes are bytes, times are event
// indices of the device's list, Gap is (plan − lower bound) / lower bound.
type CompiledDevice struct {
	Device               int     `json:"device"`
	Mode                 string  `json:"mode"`
	Buffers              int     `json:"buffers"`
	PeakAllocated        int64   `json:"peak_allocated_bytes"`
	PeakActive           int64   `json:"peak_active_bytes"`
	RecordedPeakReserved int64   `json:"recorded_peak_reserved_bytes"`
	LowerBound           int64   `json:"lower_bound_bytes"`
	LowerBoundAt         int64   `json:"lower_bound_event"`
	PlanBytes            int64   `json:"plan_bytes"`
	Gap                  float64 `json:"gap"`
	Iterations           int     `json:"iterations"`
	IterationSource      string  `json:"iteration_source"`
	SteadyStart          int64   `json:"steady_start_event"`
	// Exchanges is how many the recording tells of. If there are any, the peak active is that of
	// what is allocated or cannot be waited for yet, and the plan is made for it.
	Exchanges int `json:"exchanges"`
	Waits
	// What the options forbid, and what that costs: the plan's bytes above the
	// lower bound that holds without them; null if nothing is forbidden.
	NoReusePending bool    `json:"no_reuse_pending"`
	NoCrossStream  bool    `json:"no_cross_stream"`
	Cost           *int64  `json:"cost_bytes"`
	Heuristic      string  `json:"heuristic"`
	TimeLimitHit   bool    `json:"time_limit_hit"`
	Seconds        float64 `json:"seconds"`

	// Failure is the last request that ran out of memory, and WouldFit what would have
	// served it, if the recording ends in it.
	Failure  *Failure  `json:"out_of_memory"`
	WouldFit *WouldFit `json:"would_fit,omitempty"`

	Judged  *Judged      `json:"judged,omitempty"`       // if the build has the C runtime
	OfRun   bool         `json:"of_run,omitempty"`       // no plan of the iterations is worthwhile, so it is of the recorded process
	Against *Against     `json:"against,omitempty"`      // nil without compile --against
	Steady  *SteadyState `json:"steady_state,omitempty"` // mode periodic
	Scaled  *Scaled      `json:"scaled,omitempty"`       // with --max-scale
}

// Judged is what the runtime reserved when it served the recording, in bytes:
// with the plan, and from one pool without. Unseen says that the plan was made
// without the last iteration, which it then met for the first time.
type Judged struct {
	Planned int64 `json:"planned_reserved_bytes"`
	Pool    int64 `json:"pool_reserved_bytes"`

	// Bytes given back and taken again to reserve no more than that.
	PlannedMoved int64 `json:"planned_moved_bytes"`
	PoolMoved    int64 `json:"pool_moved_bytes"`

	Unseen bool `json:"unseen_iteration"`
	Pays   bool `json:"pays"`
}

// Against is what serving the recording by the plan of compile --against takes. Moved are bytes given back and taken again.
type Against struct {
	Reserved int64 `json:"reserved_bytes"`
	Moved    int64 `json:"moved_bytes"`
}

func (s *Against) line() string {
	return fmt.Sprintf("by the plan it is compared with: %s reserved, %s moved", Bytes(s.Reserved), Bytes(s.Moved))
}

// line says why a plan does not pay.
func (s *Judged) line() string {
	what := "this plan"
	if s.Unseen {
		what = "a plan of all iterations but the last"
	}
	return fmt.Sprintf("the plan does not pay, and is served without: %s reserves %s and moves %s to serve the recording, the pool alone %s and %s",
		what, Bytes(s.Planned), Bytes(s.PlannedMoved), Bytes(s.Pool), Bytes(s.PoolMoved))
}

// Write prints the summary for people.
func (c *Compiled) Write(w io.Writer) error {
	var failures []DeviceFailure
	for i := range c.Devices {
		failures = append(failures, DeviceFailure{c.Devices[i].Device, c.Devices[i].Failure})
	}
	if err := WriteFailures(w, c.Trace, failures); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s -> %s\n", Printable(c.Trace), Printable(c.Plan)); err != nil {
		return err
	}
	for i := range c.Devices {
		if err := c.Devices[i].write(w); err != nil {
			return err
		}
	}
	return nil
}

func (d *CompiledDevice) write(w io.Writer) error {
	fmt.Fprintln(w)
	if err := writeWrapped(w, fmt.Sprintf("device %d: ", d.Device), Count(d.Buffers)+" buffers, "+d.iterations()); err != nil {
		return err
	}
	var t Table
	size := func(label string, n int64, note string) { t.Row("  "+label, Count(n)+" B", Bytes(n), note) }
	if d.RecordedPeakReserved > 0 {
		size("recorded peak reserved", d.RecordedPeakReserved, "")
	}
	size("peak allocated", d.PeakAllocated, d.counted())
	if d.Exchanges > 0 {
		size("held by exchanges", d.PeakActive-d.PeakAllocated, "at the peak of both")
	}
	size("plan", d.PlanBytes, "")
	size("lower bound", d.LowerBound, "")
	if d.RecordedPeakReserved > 0 && d.WouldFit == nil {
		size("saved", d.RecordedPeakReserved-d.PlanBytes, Percent(d.saving()))
	}
	if d.Cost != nil {
		size("cost of "+d.forbidden(), *d.Cost, Percent(GapShare(d.PlanBytes, d.PlanBytes-*d.Cost)))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if d.Steady != nil {
		if err := d.Steady.write(w); err != nil {
			return err
		}
	}
	if d.WouldFit != nil {
		if err := d.WouldFit.write(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if d.Scaled != nil {
		if err := d.Scaled.write(w, d); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "  gap to the lower bound: %s\n", Gap(d.PlanBytes, d.LowerBound))
	}
	err := writeWrapped(w, "  stream-ordered waits: ", d.Waits.Line())
	if cross := d.Waits.CrossLine(); err == nil && cross != "" {
		err = writeWrapped(w, "  cross-stream reuses: ", cross)
	}
	if err == nil && d.Judged != nil && !d.Judged.Pays {
		err = writeWrapped(w, "  ", d.Judged.line())
	}
	if err == nil && d.Against != nil {
		err = writeWrapped(w, "  ", d.Against.line())
	}
	return err
}

// counted says that the peak allocated counts the request that failed.
func (d *CompiledDevice) counted() string {
	if d.WouldFit == nil {
		return ""
	}
	return "with that request"
}

func (d *CompiledDevice) iterations() string {
	if d.Iterations == 0 {
		return "no repeating iterations found"
	}
	return fmt.Sprintf("%s iterations (%s), steady from event %s, mode %s", Count(d.Iterations), d.IterationSource, Count(d.SteadyStart), d.Mode)
}

// forbidden names the options that forbid waits.
func (d *CompiledDevice) forbidden() string {
	var names []string
	if d.NoReusePending {
		names = append(names, "--no-reuse-pending")
	}
	if d.NoCrossStream {
		names = append(names, "--no-cross-stream")
	}
	return strings.Join(names, " ")
}

// saving is the share of the recorded reserved bytes, which are not 0, that the
// plan does not need; negative if it needs more.
func (d *CompiledDevice) saving() float64 {
	return 1 - float64(d.PlanBytes)/float64(d.RecordedPeakReserved)
}
