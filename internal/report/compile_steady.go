package report

import (
	"fmt"
	"io"
	"strings"
)

// SteadyState is what a periodic plan says beyond a recorded one. Sizes are
// bytes, events those of the device's list.
type SteadyState struct {
	CutEvent     int64   `json:"cut_event"`           // where the prologue ends
	EndEvent     int64   `json:"end_event"`           // after the last recorded pass
	Passes       int     `json:"passes"`              // recorded
	Cells        int     `json:"cells"`               // places that cross the seam
	CellBytes    int64   `json:"cell_bytes"`          // of all of them
	StrayBytes   int64   `json:"stray_bytes"`         // off plan in one pass, at most
	RecordedPeak int64   `json:"recorded_peak_bytes"` // load of the recording up to the end event, strays apart
	EnvelopeCost float64 `json:"envelope_cost"`       // lower bound / recorded peak - 1
	// Believed is the slots that are larger than any recorded request, for rounds of a loop that
	// some passes lack, or for lengths that other micro-batches had.
	Believed int `json:"believed_slots,omitempty"`
	// Shared is the slots that share a place with others, as data decide what each of them takes, and Places
	// the places that they share.
	Shared int     `json:"shared_slots,omitempty"`
	Places int     `json:"shared_places,omitempty"`
	Phases []Phase `json:"phases"`
}

// Phase is the prologue or one body of a periodic plan. Length counts events of
// the prologue, and allocations of a body.
type Phase struct {
	Kind       string  `json:"kind"`
	Passes     int     `json:"passes"`
	Length     int64   `json:"length"`
	Slots      int     `json:"slots"`
	Optional   int     `json:"optional_slots"` // that not every recorded pass had
	Strays     int     `json:"stray_slots"`
	Makespan   int64   `json:"makespan_bytes"`
	LowerBound int64   `json:"lower_bound_bytes"`
	Gap        float64 `json:"gap"`
}

func (s *SteadyState) write(w io.Writer) error {
	t := Table{}
	t.Row("  phase", "passes", "slots", "optional", "off plan", "plan", "bound", "gap")
	for i := range s.Phases {
		p := &s.Phases[i]
		name := p.Kind
		if i > 0 {
			name = fmt.Sprintf("%s %d", p.Kind, i)
		}
		t.Row("  "+name, Count(p.Passes), Count(p.Slots), Count(p.Optional), Count(p.Strays), Bytes(p.Makespan), Bytes(p.LowerBound), strings.TrimSuffix(Gap(p.Makespan, p.LowerBound), " (optimal)"))
	}
	fmt.Fprintln(w)
	if err := t.Write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	seam := fmt.Sprintf("cross the seam: %s in %s cells; off plan: %s a pass; envelope over the recording: %.2f %%",
		Bytes(s.CellBytes), Count(s.Cells), Bytes(s.StrayBytes), 100*s.EnvelopeCost)
	if s.Believed > 0 {
		seam += fmt.Sprintf("; %s larger than recorded, as in other rounds of a loop or other micro-batches", plural(s.Believed, "slot"))
	}
	if s.Shared > 0 {
		seam += fmt.Sprintf("; data decide sizes: %s share %s", plural(s.Shared, "slot"), plural(s.Places, "place"))
	}
	return writeWrapped(w, "  ", seam)
}
