package verify

import (
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// phaseLoads checks that the lower bound of every phase is its largest load, at
// the time where it is said to be, and that the certificate is the worst of
// them. A phase's load is on a circle: what a pass begins with is what every
// pass ends with.
func (j *judge) phaseLoads() {
	needs := j.needs()
	residents, worst := uint64(0), uint64(0)
	for i := range j.d.Slots {
		if j.d.Slots[i].Flags&planfile.SlotResident != 0 {
			residents = plus(residents, needs[i])
		}
	}
	for p := range j.stages {
		st, claimed := &j.stages[p], &j.d.Phases[p]
		always := residents
		if !st.body {
			always = 0 // there they have starts
		}
		if st.interlude {
			for _, i := range j.keptCells() {
				always = plus(always, needs[i])
			}
		}
		most, first, there := j.loadOf(st, needs, always, claimed.BoundAt)
		if claimed.LowerBound != most {
			j.violated(RuleCertificate, none, none, "lower bound of %s of %d B, but the most that is live is %d B, at %d", st.name, claimed.LowerBound, most, first)
		} else if there != most || claimed.BoundAt >= st.length {
			j.violated(RuleCertificate, none, none, "lower bound of %s of %d B at %d, but %d B are live there", st.name, claimed.LowerBound, claimed.BoundAt, there)
		}
		worst = max(worst, most)
	}
	j.worstPhase(worst)
}

// worstPhase checks the certificate, knowing the largest load.
func (j *judge) worstPhase(worst uint64) {
	c := &j.d.Certificate
	at := slices.IndexFunc(j.stages, func(st stage) bool { return c.At >= st.base && c.At < st.base+st.length })
	switch {
	case c.Kind == planfile.BoundApart:
		j.apart()
	case c.Kind != planfile.BoundLoad:
		j.violated(RuleCertificate, none, none, "bound of kind %d, expected 1 (load) or 3 (streams apart)", c.Kind)
	case c.LowerBound != worst:
		j.violated(RuleCertificate, none, none, "lower bound of %d B, but the largest of the phases is %d B", c.LowerBound, worst)
	case at < 0 || j.d.Phases[at].LowerBound != worst || c.At != j.stages[at].base+j.d.Phases[at].BoundAt:
		j.violated(RuleCertificate, none, none, "lower bound at %d of plan time, where no phase has its bound of %d B", c.At, worst)
	default:
		j.gap()
	}
}

// loadOf is the most bytes needed at once in a phase beside what always is, the
// first time where they are, and the bytes needed at another time.
func (j *judge) loadOf(st *stage, needs []uint64, always, at uint64) (most, first, there uint64) {
	there = always
	var all []interval
	for i := st.first; i < st.end; i++ {
		if j.d.Slots[i].Flags&planfile.SlotStray != 0 {
			continue
		}
		live := interval{j.d.Slots[i].Start, j.endIn(st, i), needs[i]}
		if live.start <= at && at < live.end {
			there = plus(there, live.size)
		}
		all = append(all, live)
	}
	most, first = maxLoad(all)
	return plus(always, most), first, there
}

// endIn is where the live range of slot i ends within its phase.
func (j *judge) endIn(st *stage, i int) uint64 { return min(j.d.SlotEnd(i), st.length) }

// strays checks the stray bytes as far as the plan tells: between what they are
// with every stray at its least and at its largest. AgainstTrace knows better.
func (j *judge) strays() {
	low, high := uint64(0), uint64(0)
	for i := range j.d.Passes {
		p := &j.d.Passes[i]
		st := &j.stages[p.Phase]
		least, most := uint64(0), uint64(0)
		eachBit(p.Present, func(k int) {
			if s := &j.d.Slots[st.first+st.entering+k]; s.Flags&planfile.SlotStray != 0 {
				least, most = plus(least, needed(s.Least)), plus(most, needed(s.Requested))
			}
		})
		low, high = max(low, least), max(high, most)
	}
	if b := j.d.StrayBytes; b < low || b > high {
		j.violated(RuleStray, none, none, "stray bytes of %d B, but the strays of a pass take %d to %d B", b, low, high)
	}
}
