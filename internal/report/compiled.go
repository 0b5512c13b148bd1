package report

import (
	"fmt"
	"io"
)

// Compiled is the summary of one compilation, and what `compile --json`
// prints.
type Compiled struct {
	Trace   string           `json:"trace"`
	Plan    string           `json:"plan"`
	Notes   []string         `json:"notes,omitempty"`
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
	Waits                int     `json:"waits"`
	Heuristic            string  `json:"heuristic"`
	TimeLimitHit         bool    `json:"time_limit_hit"`
	Seconds              float64 `json:"seconds"`
}

// Write prints the summary for people.
func (c *Compiled) Write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s -> %s\n", c.Trace, c.Plan); err != nil {
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
	fmt.Fprintf(w, "\ndevice %d: %s buffers, %s\n", d.Device, Count(d.Buffers), d.iterations())
	var t Table
	size := func(label string, n int64, note string) { t.Row("  "+label, Count(n)+" B", Bytes(n), note) }
	size("recorded peak reserved", d.RecordedPeakReserved, "")
	size("peak allocated", d.PeakAllocated, "")
	size("plan", d.PlanBytes, "")
	size("lower bound", d.LowerBound, "")
	size("saved", d.RecordedPeakReserved-d.PlanBytes, Percent(d.saving()))
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "  gap to the lower bound: %s\n  stream-ordered waits: %s\n", Gap(d.PlanBytes, d.LowerBound), Count(d.Waits))
	return err
}

func (d *CompiledDevice) iterations() string {
	if d.Iterations == 0 {
		return "no repeating iterations found"
	}
	return fmt.Sprintf("%s iterations (%s), steady from event %s", Count(d.Iterations), d.IterationSource, Count(d.SteadyStart))
}

// saving is the share of the recorded reserved bytes that the plan does not
// need; negative where it needs more.
func (d *CompiledDevice) saving() float64 {
	if d.RecordedPeakReserved == 0 {
		return 0
	}
	return 1 - float64(d.PlanBytes)/float64(d.RecordedPeakReserved)
}
