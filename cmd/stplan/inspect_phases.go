package main

import (
	"fmt"
	"io"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
)

// inspectedPhase is a phase of a periodic plan: of its slots, so many are
// allocated in it, and of those so many are not in every recorded pass
// (optional), leave it in a cell, or are strays; so many enter it.
type inspectedPhase struct {
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

func inspectPhases(d *planfile.Device) []inspectedPhase {
	all := []inspectedPhase{}
	for i := range d.Phases {
		p := &d.Phases[i]
		row := inspectedPhase{Kind: p.Kind.String(), Passes: p.Occurrences, Length: p.Length,
			Makespan: p.Makespan, LowerBound: p.LowerBound, LowerBoundAt: p.BoundAt, GapBytes: p.Makespan - p.LowerBound}
		for k := range slotsOf(d, p) {
			row.count(&slotsOf(d, p)[k])
		}
		all = append(all, row)
	}
	return all
}

func (row *inspectedPhase) count(s *planfile.Slot) {
	if s.Flags&planfile.SlotEntering != 0 {
		row.Entering++
		return
	}
	row.Allocations++
	if s.Occurrences < row.Passes {
		row.Optional++
	}
	if s.Flags&planfile.SlotLeaving != 0 {
		row.Leaving++
	}
	if s.Flags&planfile.SlotStray != 0 {
		row.Strays++
	}
}

// slotsOf are the slots of a phase.
func slotsOf(d *planfile.Device, p *planfile.Phase) []planfile.Slot {
	return d.Slots[p.FirstSlot : p.FirstSlot+p.SlotCount]
}

// cells counts the cells and what they take. Every body fills each once.
func cells(d *planfile.Device) (n int, bytes uint64) {
	if d.Mode != planfile.ModePeriodic {
		return 0, 0
	}
	for _, s := range slotsOf(d, &d.Phases[1]) {
		if s.Flags&planfile.SlotLeaving != 0 {
			n++
			bytes += s.Size
		}
	}
	return n, bytes
}

// writePhases prints what only periodic plans have.
func (d *inspectedDevice) writePhases(w io.Writer, row func(label, value string)) {
	if len(d.Phases) == 0 {
		return
	}
	row("passes", fmt.Sprintf("%s, up to event %s", report.Count(d.Passes), report.Count(*d.SteadyEnd)))
	row("cells", fmt.Sprintf("%s, %s B", report.Count(d.Cells), report.Count(d.CellBytes)))
	row("strays of a pass", report.Count(d.StrayBytes)+" B, off plan")
	row("waits over the seam", report.Count(d.OverSeam))
	for i := range d.Phases {
		p := &d.Phases[i]
		sub := func(label, value string) { row("  "+label, value) }
		if p.Kind == planfile.PhasePrologue.String() {
			fmt.Fprintln(w, "  prologue")
			sub("events", report.Count(p.Length))
		} else {
			fmt.Fprintf(w, "  %s %d\n", p.Kind, i)
			sub("recorded passes", report.Count(p.Passes))
			sub("entering", report.Count(p.Entering))
		}
		sub("allocations", fmt.Sprintf("%s (%s optional, %s leaving, %s strays)", report.Count(p.Allocations), report.Count(p.Optional), report.Count(p.Leaving), report.Count(p.Strays)))
		sub("makespan", report.Count(p.Makespan)+" B")
		sub("lower bound, as claimed", fmt.Sprintf("%s B at %s", report.Count(p.LowerBound), report.Count(p.LowerBoundAt)))
		sub("gap, as claimed", report.Gap(int64(p.Makespan), int64(p.LowerBound)))
	}
}

// allocations counts the slots of a plan without what only crosses a seam: an
// entering slot is the rest of a leaving one.
func allocations(d *planfile.Device) int {
	n := 0
	for i := range d.Slots {
		if d.Slots[i].Flags&planfile.SlotEntering == 0 {
			n++
		}
	}
	return n
}
