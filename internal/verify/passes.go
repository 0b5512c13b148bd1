package verify

import (
	"math/bits"

	"github.com/stplan/stplan/internal/planfile"
)

// passes checks that the recorded passes are in order and of bodies, that each has a
// presence bit for every allocation slot of its body and for no other, and that the bits
// agree with the occurrences of phases and slots.
func (j *judge) passes() {
	d := j.d
	if d.Mode != planfile.ModePeriodic {
		return
	}
	if d.SteadyEnd <= d.SteadyStart || d.SteadyEnd > d.Events {
		j.violated(RulePass, none, none, "passes from event %d to %d, expected them to ascend and to end within %d events", d.SteadyStart, d.SteadyEnd, d.Events)
	}
	count := make([]uint32, len(d.Phases))
	seen := make([]uint32, len(d.Slots))
	for i := range d.Passes {
		p := &d.Passes[i]
		switch {
		case i == 0 && p.FirstEvent != d.SteadyStart:
			j.violated(RulePass, none, none, "the first pass begins at %d, expected the steady start %d", p.FirstEvent, d.SteadyStart)
			return
		case i > 0 && p.FirstEvent <= d.Passes[i-1].FirstEvent || p.FirstEvent >= d.SteadyEnd:
			j.violated(RulePass, none, none, "pass %d begins at %d, expected it after the pass before and before the steady end %d", i, p.FirstEvent, d.SteadyEnd)
			return
		case p.Phase == 0 || int64(p.Phase) >= int64(len(d.Phases)):
			j.violated(RulePass, none, none, "pass %d is of phase %d, expected a body, 1 to %d", i, p.Phase, len(d.Phases)-1)
			return
		}
		st := &j.stages[p.Phase]
		if n := (st.length + 63) / 64; uint64(len(p.Present)) != n || st.length%64 != 0 && p.Present[n-1]>>(st.length%64) != 0 {
			j.violated(RulePass, none, none, "pass %d has presence bits for other slots than the %d of %s", i, st.length, st.name)
			return
		}
		count[p.Phase]++
		eachBit(p.Present, func(k int) { seen[st.first+st.entering+k]++ })
	}
	j.occurrences(count, seen)
}

// occurrences compares the occurrences that phases and slots claim with those of the
// passes.
func (j *judge) occurrences(count, seen []uint32) {
	for p := range j.stages[1:] {
		st, phase := &j.stages[p+1], &j.d.Phases[p+1]
		if n := count[p+1]; n != phase.Occurrences || n == 0 {
			j.violated(RulePass, none, none, "%s claims %d passes, but %d are listed", st.name, phase.Occurrences, n)
		}
		for i := st.first; i < st.end; i++ {
			s := &j.d.Slots[i]
			switch enters := s.Flags&planfile.SlotEntering != 0; {
			case enters && s.Occurrences > phase.Occurrences:
				j.violated(RulePass, i, none, "slot %d enters %s in %d passes, but the body has %d", i, st.name, s.Occurrences, phase.Occurrences)
			case !enters && (s.Occurrences != seen[i] || seen[i] == 0):
				j.violated(RulePass, i, none, "slot %d of %s claims %d occurrences, but %d passes have it", i, st.name, s.Occurrences, seen[i])
			}
		}
	}
}

// eachBit calls f with the index of every set bit, ascending.
func eachBit(words []uint64, f func(k int)) {
	for w, word := range words {
		for ; word != 0; word &= word - 1 {
			f(w*64 + bits.TrailingZeros64(word))
		}
	}
}
