package report

import (
	"fmt"
	"io"

	"github.com/stplan/stplan/internal/planfile"
)

// InspectedPhase is a phase of a periodic plan. Allocations counts the slots that
// are allocated in it. Of these, Optional counts those with a place that not every
// recorded pass had, Leaving those that leave it in a cell, and Strays those without
// a place. Entering counts the cells that it finds filled and frees.
type InspectedPhase struct {
	Kind         string `json:"kind"`
	Passes       uint32 `json:"recorded_passes"`
	Length       uint64 `json:"length"`
	Allocations  int    `json:"allocations"`
	Optional     int    `json:"optional"`
	Entering     int    `json:"entering"`
	Leaving      int    `json:"leaving"`
	Strays       int    `json:"strays"`
	Makespan     uint64 `json:"makespan_bytes"`
	LowerBound   uint64 `json:"lower_bound_bytes"`
	LowerBoundAt uint64 `json:"lower_bound_time"`
	GapBytes     uint64 `json:"gap_bytes"`
}

func inspectPhases(d *planfile.Device) []InspectedPhase {
	all := []InspectedPhase{}
	for i := range d.Phases {
		p := &d.Phases[i]
		count := d.CountPhase(i)
		row := InspectedPhase{
			Kind: p.Kind.String(), Passes: p.Occurrences, Length: p.Length,
			Allocations: count.Allocations, Optional: count.Optional, Entering: count.Entering, Leaving: count.Leaving, Strays: count.Strays,
			Makespan: p.Makespan, LowerBound: p.LowerBound, LowerBoundAt: p.BoundAt, GapBytes: p.Makespan - p.LowerBound,
		}
		all = append(all, row)
	}
	return all
}

// writePhases prints what only periodic plans have.
func (d *InspectedDevice) writePhases(w io.Writer, row func(label, value string)) {
	if len(d.Phases) == 0 {
		return
	}
	row("passes", fmt.Sprintf("%s, up to event %s", Count(d.Passes), Count(*d.SteadyEnd)))
	row("cells", fmt.Sprintf("%s, %s B", Count(d.Cells), Count(d.CellBytes)))
	row("strays of a pass", Count(d.StrayBytes)+" B, off plan")
	row("waits over the seam", Count(d.OverSeam))
	for i := range d.Phases {
		p := &d.Phases[i]
		sub := func(label, value string) { row("  "+label, value) }
		if p.Kind == planfile.PhasePrologue.String() {
			fmt.Fprintln(w, "  prologue")
			sub("events", Count(p.Length))
		} else {
			fmt.Fprintf(w, "  %s %d\n", p.Kind, i)
			sub("recorded passes", Count(p.Passes))
			sub("entering", Count(p.Entering))
		}
		sub("allocations", fmt.Sprintf("%s (%s optional, %s leaving, %s strays)", Count(p.Allocations), Count(p.Optional), Count(p.Leaving), Count(p.Strays)))
		sub("makespan", Count(p.Makespan)+" B")
		sub("lower bound, as claimed", fmt.Sprintf("%s B at %s", Count(p.LowerBound), Count(p.LowerBoundAt)))
		sub("gap, as claimed", Gap(int64(p.Makespan), int64(p.LowerBound)))
	}
}
