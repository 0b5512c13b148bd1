package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// Compared is what diff says of one device: the recording, the simulated
// allocators and the plan, all accounted for by the formulas of Account. It is
// what diff --json prints.
type Compared struct {
	Trace     string      `json:"trace"`
	Device    int         `json:"device"`
	Recorded  ComparedRow `json:"recorded"`
	Simulated Simulated   `json:"simulated"`
	Plan      PlanRow     `json:"plan"`
	SelfCheck SelfCheck   `json:"self_check"`
	// Failure is the last request that ran out of memory in the recording, and WouldFit
	// what would have served it, if the recording ends in it.
	Failure  *Failure  `json:"out_of_memory"`
	WouldFit *WouldFit `json:"would_fit,omitempty"`
	// Memory is what --device-memory says, and Fits what each allocator takes of it.
	Memory *DeviceMemory `json:"memory,omitempty"`
	Fits   []FittedRow   `json:"fits,omitempty"`
	// Advice is what --advise found.
	Advice *Advice `json:"advice,omitempty"`
	// Others are the plan's other devices, if it has several and none was
	// chosen.
	Others []Compared `json:"other_devices,omitempty"`
	// Paint marks verdicts; nil leaves them plain.
	Paint Painter `json:"-"`
}

// Keys of rows that are no allocator of package baseline.
const (
	KeyConfigured = "configured" // simulates settings of --config
	KeyPool       = "pool"       // the runtime without a plan
	KeyServed     = "served"     // the runtime with the plan, if its advice is to serve it
)

// Simulated are the rows of the simulated allocators, in the order of the table.
type Simulated []ComparedRow

// Row returns the first row with the given key, nil if there is none.
func (s Simulated) Row(key string) *ComparedRow {
	for i := range s {
		if s[i].Key == key {
			return &s[i]
		}
	}
	return nil
}

// MarshalJSON writes one object: each row under its key, in order, and after
// them the rows of --config. Of those, "configured" is the first, null if there
// is none; if there are several, "configurations" lists them all.
func (s Simulated) MarshalJSON() ([]byte, error) {
	type field struct {
		key   string
		value any
	}
	var fields []field
	var configured []ComparedRow
	for _, r := range s {
		if r.Key == KeyConfigured {
			configured = append(configured, r)
		} else {
			fields = append(fields, field{r.Key, r})
		}
	}
	fields = append(fields, field{KeyConfigured, s.Row(KeyConfigured)})
	if len(configured) > 1 {
		fields = append(fields, field{"configurations", configured})
	}

	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // as WriteJSON does: settings may contain '>'
	for i, f := range fields {
		out.WriteByte("{,"[min(i, 1)])
		if err := enc.Encode(f.key); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := enc.Encode(f.value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// ComparedRow is one allocator. Sizes are bytes.
type ComparedRow struct {
	Key           string `json:"-"`
	Title         string `json:"settings"`
	PeakReserved  int64  `json:"peak_reserved_bytes"`
	PeakAllocated int64  `json:"peak_allocated_bytes"` // the recording's
	PeakActive    int64  `json:"peak_active_bytes"`    // the recording's
	// These four are null if the allocator ran out of memory: it reserved less
	// than the program needs, so that they say nothing. So they are if the recording
	// does not have what was reserved, which is then 0. PlanReduction, the share
	// of the waste that the plan avoids, is also null if nothing is wasted.
	Efficiency         *float64 `json:"efficiency"`
	FragmentationRatio *float64 `json:"fragmentation_ratio"`
	Waste              *int64   `json:"waste_bytes"`
	PlanReduction      *float64 `json:"plan_reduction"`
	// Retries is how often a simulated allocator gave back all cached memory to
	// serve a request.
	Retries int `json:"retries"`
	// PeakEvent is the first event at which PeakReserved was reserved, -1 for before the
	// recording; null if it is not known.
	PeakEvent   *int64       `json:"peak_event"`
	OutOfMemory *OutOfMemory `json:"out_of_memory"`
	// Low and High bound the peak reserved of an allocator that can only be estimated.
	Low  *int64 `json:"peak_reserved_low_bytes,omitempty"`
	High *int64 `json:"peak_reserved_high_bytes,omitempty"`
	// Moved is the idle memory that the runtime gave back and took again elsewhere.
	Moved *int64 `json:"moved_bytes,omitempty"`
	// Unfit says why an allocator cannot serve the program at all. It has reserved nothing
	// then, and has none of the figures.
	Unfit string `json:"cannot_serve,omitempty"`
}

// OutOfMemory is the request at which a simulated allocator stopped. Its peak
// reserved is the peak up to there.
type OutOfMemory struct {
	Event     int64 `json:"event"` // -1 for a buffer from before the recording
	Requested int64 `json:"requested_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
}

// PlanRow is the plan by the same formulas. Sizes are bytes.
type PlanRow struct {
	File               string   `json:"file"`
	Mode               string   `json:"mode"`
	PlanBytes          int64    `json:"plan_bytes"`
	OffPlan            int64    `json:"off_plan_bytes"`      // peak of what has no place in the plan
	PeakReserved       int64    `json:"peak_reserved_bytes"` // PlanBytes + OffPlan, at least PeakAllocated
	LowerBound         int64    `json:"lower_bound_bytes"`
	Gap                float64  `json:"gap"`
	PeakAllocated      int64    `json:"peak_allocated_bytes"`
	Efficiency         float64  `json:"efficiency"`
	FragmentationRatio float64  `json:"fragmentation_ratio"`
	Waste              int64    `json:"waste_bytes"`
	Waits              int      `json:"waits"`
	CrossWaits         int      `json:"waits_cross_stream"`
	ReductionNative    *float64 `json:"reduction_against_native"`
	ReductionExpand    *float64 `json:"reduction_against_expandable"`
	// Instead is what serves a run if the plan advises against itself. The
	// reductions are of that then.
	Instead *ServedInstead `json:"served_instead,omitempty"`
}

// Served is what a run reserves: by the plan, or by what serves in its place.
func (p *PlanRow) Served() int64 {
	if p.Instead != nil {
		return p.Instead.PeakReserved
	}
	return p.PeakReserved
}

// ServedInstead is what serves a run in place of a plan that does not pay. Sizes
// are bytes.
type ServedInstead struct {
	By                 string  `json:"by"` // "pool"
	PeakReserved       int64   `json:"peak_reserved_bytes"`
	Efficiency         float64 `json:"efficiency"`
	FragmentationRatio float64 `json:"fragmentation_ratio"`
	Waste              int64   `json:"waste_bytes"`
}

// NewServedInstead accounts for what serves in place of a plan.
func NewServedInstead(by string, a Account) *ServedInstead {
	return &ServedInstead{
		By: by, PeakReserved: a.PeakReserved,
		Efficiency: a.Efficiency(), FragmentationRatio: a.FragmentationRatio(), Waste: a.Waste(),
	}
}

// SelfCheck counts the segment events and allocations that the simulator, under
// the recorded settings, reproduced in kind, order, size and address. Total is 0 if the
// recording has neither segments nor addresses.
type SelfCheck struct {
	Matched int `json:"matched"`
	Total   int `json:"total"`
	// Mismatch is the first difference from the recording, empty if there is
	// none. Hints are what the recording does not say about its settings.
	Mismatch string   `json:"first_mismatch,omitempty"`
	Hints    []string `json:"hints,omitempty"`
}

// Exact says that the simulator reproduced the whole recording.
func (s SelfCheck) Exact() bool { return s.Matched == s.Total && !s.Nothing() }

// Nothing says that the recording has nothing to check the simulator by.
func (s SelfCheck) Nothing() bool { return s.Total == 0 }

// NewRow accounts for an allocator that reserved peakReserved bytes at its peak.
// of is the recording's account, peakActive the recording's too.
func NewRow(key, title string, peakReserved int64, of Account, peakActive int64, plan Account) ComparedRow {
	a := Account{PeakReserved: peakReserved, PeakAllocated: of.PeakAllocated}
	efficiency, fragmentation, waste := a.Efficiency(), a.FragmentationRatio(), a.Waste()
	row := ComparedRow{
		Key: key, Title: title, PeakReserved: a.PeakReserved, PeakAllocated: a.PeakAllocated, PeakActive: peakActive,
		Efficiency: &efficiency, FragmentationRatio: &fragmentation, Waste: &waste,
	}
	if share, ok := plan.Reduction(a); ok {
		row.PlanReduction = &share
	}
	return row
}

// RanOut says that the allocator ran out of memory, and drops the figures that
// mean nothing then.
func (r *ComparedRow) RanOut(at OutOfMemory) {
	r.OutOfMemory = &at
	r.drop()
}

// Estimated says that the peak may be off by a share. It is not below what the program needs.
func (r *ComparedRow) Estimated(share float64) {
	low := max(int64(math.Round(float64(r.PeakReserved)*(1-share))), r.PeakAllocated)
	high := int64(math.Round(float64(r.PeakReserved) * (1 + share)))
	r.Low, r.High = &low, &high
	r.Title = fmt.Sprintf("%s ±%g %%", r.Title, 100*share)
}

// CannotServe says that the allocator does not serve such a program, and why.
func (r *ComparedRow) CannotServe(why string) {
	r.Unfit = why
	r.drop()
}

// NotRecorded drops the figures of the recording if it does not have what was reserved.
func (r *ComparedRow) NotRecorded() { r.drop() }

func (r *ComparedRow) drop() {
	r.Efficiency, r.FragmentationRatio, r.Waste, r.PlanReduction = nil, nil, nil, nil
	r.Low, r.High = nil, nil
}
