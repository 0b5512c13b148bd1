package verify

import (
	"fmt"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/planfile"
)

// stage is a phase as it is judged. A recorded plan has one, which is not a body.
type stage struct {
	name       string // for messages
	body       bool
	interlude  bool   // a body that leaves every cell filled
	first, end int    // its slots are [first, end)
	entering   int    // the number of them that enter, which come first
	length     uint64 // its times are [0, length)
	carry      uint64 // a completed end is at most this much after length
	base       uint64 // the plan time at which it begins

	left, entered map[uint32]int // by cell: the slots that leave and enter the phase
}

// stageOf is the phase that slot i is in.
func (j *judge) stageOf(i int) *stage {
	k := sort.Search(len(j.stages), func(k int) bool { return i < j.stages[k].end })
	return &j.stages[k]
}

// divide makes the stages, and returns whether they divide the slots.
func (j *judge) divide() bool {
	d := j.d
	if d.Mode == planfile.ModeRecorded {
		if len(d.Phases) > 0 || len(d.Passes) > 0 {
			j.violated(RulePhase, none, none, "%d phases and %d passes, expected none in mode recorded", len(d.Phases), len(d.Passes))
			return false
		}
		j.stages = []stage{{name: "the recording", end: len(d.Slots), length: d.Events}}
		return true
	}
	if len(d.Phases) < 2 {
		j.violated(RulePhase, none, none, "%d phases, expected a prologue and a body at least", len(d.Phases))
		return false
	}
	next, base := 0, uint64(0)
	for p := range d.Phases {
		ph := &d.Phases[p]
		st := stage{name: "the prologue", first: next, length: ph.Length, carry: d.Phases[max(1, p)].Length, base: base}
		want := planfile.PhasePrologue
		if p > 0 {
			st.name, st.body, want = fmt.Sprintf("body %d", p), true, planfile.PhaseBody
		}
		if p > 1 && ph.Kind == planfile.PhaseInterlude {
			st.interlude, want = true, planfile.PhaseInterlude
		}
		switch {
		case ph.Kind != want:
			j.violated(RulePhase, none, none, "phase %d is a %s, expected a %s", p, ph.Kind, want)
			return false
		case ph.Length == 0 || ph.Length > d.Events:
			j.violated(RulePhase, none, none, "%s has the length %d, expected 1 to %d, the number of events", st.name, ph.Length, d.Events)
			return false
		case ph.FirstSlot != uint64(next) || ph.SlotCount > uint64(len(d.Slots)-next):
			j.violated(RulePhase, none, none, "%s has %d slots from %d on, expected them from %d on, below %d", st.name, ph.SlotCount, ph.FirstSlot, next, len(d.Slots))
			return false
		}
		next += int(ph.SlotCount)
		base += ph.Length
		st.end = next
		st.entering = countEntering(d.Slots[st.first:st.end])
		j.stages = append(j.stages, st)
	}
	if next != len(d.Slots) {
		j.violated(RulePhase, none, none, "the phases have %d slots, the device %d", next, len(d.Slots))
		return false
	}
	return j.lengths()
}

// countEntering is the number of entering slots before the first other one.
func countEntering(slots []planfile.Slot) int {
	k := slices.IndexFunc(slots, func(s planfile.Slot) bool { return s.Flags&planfile.SlotEntering == 0 })
	if k < 0 {
		return len(slots)
	}
	return k
}

// lengths checks the lengths of the phases.
func (j *judge) lengths() bool {
	if p := &j.d.Phases[0]; p.Length != j.d.SteadyStart || p.Occurrences != 1 {
		j.violated(RulePhase, none, none, "the prologue has the length %d and %d passes, expected the length %d, the steady start, and 1 pass", p.Length, p.Occurrences, j.d.SteadyStart)
		return false
	}
	for p := range j.stages[1:] {
		st := &j.stages[p+1]
		if n := uint64(st.end - st.first - st.entering); n != st.length {
			j.violated(RulePhase, none, none, "%s has the length %d, expected %d, the number of its slots that do not enter", st.name, st.length, n)
			return false
		}
	}
	return true
}

// kindOf checks that slot i is of a kind that its phase may have.
func (j *judge) kindOf(st *stage, i int) {
	s := &j.d.Slots[i]
	allowed := planfile.SlotResident | planfile.SlotInitial | planfile.SlotLeaving | planfile.SlotShares
	exclusive := s.Flags &^ planfile.SlotInitial
	if st.body {
		allowed = planfile.SlotEntering | planfile.SlotLeaving | planfile.SlotStray | planfile.SlotShares
	}
	if st.interlude {
		allowed = planfile.SlotStray | planfile.SlotShares
	}
	switch {
	case s.Flags&^allowed != 0 || exclusive&(exclusive-1) != 0:
		j.violated(RulePhase, i, none, "slot %d: flags %#x, which a slot of %s cannot have", i, uint32(s.Flags), st.name)
	case s.Flags&planfile.SlotShares == 0 && (s.Flags&crosses != 0) == (s.Cell == planfile.NoCell):
		j.violated(RuleCell, i, none, "slot %d: cell %#x, expected a cell if and only if the slot enters or leaves", i, s.Cell)
	case s.Least > s.Requested:
		j.violated(RuleSize, i, none, "slot %d: least request of %d B, above the largest of %d B", i, s.Least, s.Requested)
	case !st.body && s.Least != s.Requested:
		j.violated(RuleSize, i, none, "slot %d: least request of %d B in the prologue, expected its request of %d B", i, s.Least, s.Requested)
	case !st.body && s.Occurrences != 1:
		j.violated(RulePass, i, none, "slot %d: %d occurrences in the prologue, expected 1", i, s.Occurrences)
	}
}

// timesIn checks the times of slot i of a periodic plan. Only leaving slots, residents
// and strays may be live at the end of a phase.
func (j *judge) timesIn(st *stage, i int) {
	s, end := &j.d.Slots[i], j.d.SlotEnd(i)
	bad := func(format string, args ...any) {
		j.violated(RuleTimes, i, none, "slot %d of %s: %s", i, st.name, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Start >= end:
		bad("empty live range: starts at %d and ends at %d", s.Start, end)
	case s.RequestedEnd > s.CompletedEnd:
		bad("freed at %d, but reusable before that, at %d", s.RequestedEnd, s.CompletedEnd)
	case s.RequestedEnd > st.length:
		bad("freed at %d, after the end of the phase at %d", s.RequestedEnd, st.length)
	case s.CompletedEnd > st.length+st.carry:
		bad("reusable at %d, expected at most %d", s.CompletedEnd, st.length+st.carry)
	case s.Flags&(planfile.SlotInitial|planfile.SlotEntering) != 0 && s.Start != 0:
		bad("live before the phase, but starts at %d", s.Start)
	case s.Flags&planfile.SlotResident != 0 && (s.RequestedEnd != st.length || s.CompletedEnd != st.length):
		bad("never freed, but ends at %d and %d, expected %d", s.RequestedEnd, s.CompletedEnd, st.length)
	case s.Flags&planfile.SlotLeaving != 0 && end < st.length:
		bad("leaves the phase, but ends at %d, before the end of the phase at %d", end, st.length)
	case s.Flags&(planfile.SlotLeaving|planfile.SlotStray) == 0 && end > st.length:
		bad("ends at %d, but does not leave the phase, which ends at %d", end, st.length)
	}
}

// followsIn checks that slot i of a body is in order: entering slots come first, by cell,
// and the k-th allocation after them starts at time k, from 0.
func (j *judge) followsIn(st *stage, i int) {
	s, k := &j.d.Slots[i], i-st.first
	switch enters := s.Flags&planfile.SlotEntering != 0; {
	case enters && k >= st.entering:
		j.violated(RuleOrder, i, none, "slot %d enters %s, but is listed after an allocation", i, st.name)
	case enters && k > 0 && s.Cell <= j.d.Slots[i-1].Cell:
		j.violated(RuleOrder, i-1, i, "slot %d enters %s in cell %d, slot %d before it in cell %d", i, st.name, s.Cell, i-1, j.d.Slots[i-1].Cell)
	case !enters && s.Start != uint64(k-st.entering):
		j.violated(RuleOrder, i, none, "slot %d of %s starts at %d, expected %d, the number of allocations before it", i, st.name, s.Start, k-st.entering)
	}
}
