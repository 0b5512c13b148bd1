package report

import (
	"fmt"
	"io"
)

// Compared is what `diff` says of one device: the recording, the simulated
// allocators and the plan under one rule of account. It is what `diff --json`
// prints.
type Compared struct {
	Trace     string      `json:"trace"`
	Device    int         `json:"device"`
	Recorded  ComparedRow `json:"recorded"`
	Simulated Simulated   `json:"simulated"`
	Plan      PlanRow     `json:"plan"`
	SelfCheck SelfCheck   `json:"self_check"`
	// Others are the plan's other devices, where it has several and none was
	// chosen.
	Others []Compared `json:"other_devices,omitempty"`
}

// Simulated holds PyTorch's allocators on the recording's program: both under
// the recorded settings, and Configured under those of --config.
type Simulated struct {
	Native     ComparedRow  `json:"native"`
	Expandable ComparedRow  `json:"expandable"`
	Configured *ComparedRow `json:"configured"`
}

// ComparedRow is one allocator. Sizes are bytes; PlanReduction is the share of
// its waste that the plan avoids, null where it wastes nothing. PeakActive is
// of the recording only; Retries is how often a simulated allocator gave back
// all cached memory to serve a request.
type ComparedRow struct {
	Settings           string       `json:"settings"`
	PeakReserved       int64        `json:"peak_reserved_bytes"`
	PeakAllocated      int64        `json:"peak_allocated_bytes"`
	PeakActive         int64        `json:"peak_active_bytes"`
	Efficiency         float64      `json:"efficiency"`
	FragmentationRatio float64      `json:"fragmentation_ratio"`
	Waste              int64        `json:"waste_bytes"`
	PlanReduction      *float64     `json:"plan_reduction"`
	Retries            int          `json:"retries"`
	OutOfMemory        *OutOfMemory `json:"out_of_memory"`
}

// OutOfMemory is where a simulated allocator could not serve the program; its
// peaks are those up to there.
type OutOfMemory struct {
	Event     int64 `json:"event"`
	Requested int64 `json:"requested_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
}

// PlanRow is the plan under the same account.
type PlanRow struct {
	File               string   `json:"file"`
	Mode               string   `json:"mode"`
	PlanBytes          int64    `json:"plan_bytes"`
	OffPlan            int64    `json:"off_plan_bytes"`      // what has no place in the plan, at its peak
	PeakReserved       int64    `json:"peak_reserved_bytes"` // both, and never less than the peak allocated
	LowerBound         int64    `json:"lower_bound_bytes"`
	Gap                float64  `json:"gap"`
	PeakAllocated      int64    `json:"peak_allocated_bytes"`
	Efficiency         float64  `json:"efficiency"`
	FragmentationRatio float64  `json:"fragmentation_ratio"`
	Waste              int64    `json:"waste_bytes"`
	Waits              int      `json:"waits"`
	ReductionNative    *float64 `json:"reduction_against_native"`
	ReductionExpand    *float64 `json:"reduction_against_expandable"`
}

// SelfCheck counts the segment events and allocations that the simulator, under
// the recorded settings, reproduced in kind, order, size and address.
type SelfCheck struct {
	Matched int `json:"matched"`
	Total   int `json:"total"`
	// Mismatch is the first difference from the recording, empty where the check
	// is exact; Hints are what the recording does not say about its settings.
	Mismatch string   `json:"first_mismatch,omitempty"`
	Hints    []string `json:"hints,omitempty"`
}

// Exact says that the simulator reproduced the whole recording.
func (s SelfCheck) Exact() bool { return s.Matched == s.Total }

// NewRow accounts for one allocator that reserved peakReserved bytes at its
// peak, against a plan.
func NewRow(settings string, peakReserved int64, of Account, peakActive int64, plan Account) ComparedRow {
	a := Account{PeakReserved: peakReserved, PeakAllocated: of.PeakAllocated}
	row := ComparedRow{
		Settings: settings, PeakReserved: a.PeakReserved, PeakAllocated: a.PeakAllocated, PeakActive: peakActive,
		Efficiency: a.Efficiency(), FragmentationRatio: a.FragmentationRatio(), Waste: a.Waste(),
	}
	if share, ok := plan.Reduction(a); ok {
		row.PlanReduction = &share
	}
	return row
}

// Write prints the comparison for people.
func (c *Compared) Write(w io.Writer) error {
	check := fmt.Sprintf("self-check %s / %s", Count(c.SelfCheck.Matched), Count(c.SelfCheck.Total))
	if !c.SelfCheck.Exact() {
		check += ": NOT exact, simulated figures are estimates"
	}
	fmt.Fprintf(w, "device %d: peak allocated %s; %s\n\n", c.Device, Bytes(c.Recorded.PeakAllocated), check)
	var t Table
	t.Row("", "peak reserved", "bytes", "efficiency", "fragmentation", "waste", "waste the plan avoids")
	add := func(label string, r ComparedRow) {
		if r.OutOfMemory != nil {
			t.Row(label, "out of memory", fmt.Sprintf("at event %s", Count(r.OutOfMemory.Event)), "", "", "", "")
			return
		}
		avoided := "-"
		if r.PlanReduction != nil {
			avoided = Percent(*r.PlanReduction)
		}
		t.Row(label, Bytes(r.PeakReserved), Count(r.PeakReserved), Percent(r.Efficiency), Percent(r.FragmentationRatio), Bytes(r.Waste), avoided)
	}
	add("recorded ("+c.Recorded.Settings+")", c.Recorded)
	add("native, simulated", c.Simulated.Native)
	add("expandable segments, simulated", c.Simulated.Expandable)
	if c.Simulated.Configured != nil {
		add(c.Simulated.Configured.Settings+", simulated", *c.Simulated.Configured)
	}
	p := &c.Plan
	t.Row("plan ("+p.Mode+")", Bytes(p.PeakReserved), Count(p.PeakReserved), Percent(p.Efficiency), Percent(p.FragmentationRatio), Bytes(p.Waste), "")
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nplan: gap to the lower bound %s; %s stream-ordered waits\n", Gap(p.PlanBytes, p.LowerBound), Count(p.Waits))
	return err
}
