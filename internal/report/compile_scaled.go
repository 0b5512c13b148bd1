package report

import (
	"fmt"
	"io"
)

// Scaled says what a plan for more than was recorded rests on. Sizes are bytes. Bytes of
// slots are sums over the slots, of which not all live at once.
type Scaled struct {
	MaxScale     float64 `json:"max_scale"`
	Bound        int64   `json:"planned_bound_bytes"` // the most that is live at once, with the sizes planned for
	Quantities   int     `json:"quantities"`          // that sizes follow; each is planned at MaxScale times its largest
	Varied       int     `json:"varied_slots"`        // of the bodies, whose size varied over the recorded iterations
	VariedBytes  int64   `json:"varied_bytes"`
	Lawless      int     `json:"lawless_slots"` // of these, those that follow no law: planned as recorded
	LawlessBytes int64   `json:"lawless_bytes"`
	Prologue     int     `json:"prologue_slots"` // that are the same as slots of a body, and planned by their laws
}

// write prints it for people; d is the device's plan.
func (s *Scaled) write(w io.Writer, d *CompiledDevice) error {
	if s.Varied == 0 {
		return writeWrapped(w, "  ", fmt.Sprintf("--max-scale %g changes nothing: no size varied over the recorded iterations of a periodic plan. Record batches of different sizes, or accept the recorded ones.", s.MaxScale))
	}
	planned := fmt.Sprintf("planned for %g times the largest of the %s that sizes followed in the recording: %s of %s slots that varied, with %s of %s, follow a law, and %s slots of the prologue with them.",
		s.MaxScale, plural(s.Quantities, "hidden length"), Count(s.Varied-s.Lawless), Count(s.Varied), Bytes(s.VariedBytes-s.LawlessBytes), Bytes(s.VariedBytes), Count(s.Prologue))
	if s.Lawless > 0 {
		planned += fmt.Sprintf(" %s with %s follow none, and are planned as recorded.", plural(s.Lawless, "slot"), Bytes(s.LawlessBytes))
	}
	if err := writeWrapped(w, "  ", planned); err != nil {
		return err
	}
	return writeWrapped(w, "  ", fmt.Sprintf("the recording needs %s, what is planned for %s; gap to that: %s",
		Bytes(d.LowerBound), Bytes(s.Bound), Gap(d.PlanBytes, s.Bound)))
}
