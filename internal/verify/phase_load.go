package verify

import (
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// phaseLoads checks that the lower bound of every phase is its largest load and that its
// load at BoundAt is the same, and that the certificate is that of the phase with the
// largest bound. The load of a body includes its entering slots, so each pass begins with
// what every pass ends with.
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
			always = 0 // in the prologue they have starts
		}
		if st.interlude {
			for _, i := range j.keptCells() {
				always = plus(always, needs[i])
			}
		}
		most, first, there := j.loadOf(st, needs, always, claimed.BoundAt)
		if claimed.LowerBound != most {
			j.violated(RuleCertificate, none, none, "lower bound of %s of %d B, but its largest load is %d B, at %d", st.name, claimed.LowerBound, most, first)
		} else if there != most || claimed.BoundAt >= st.length {
			j.violated(RuleCertificate, none, none, "lower bound of %s of %d B at %d, but %d B are live there", st.name, claimed.LowerBound, claimed.BoundAt, there)
		}
		worst = max(worst, most)
	}
	j.worstPhase(worst)
}

// worstPhase checks the certificate against worst, the largest load of all phases.
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
		j.violated(RuleCertificate, none, none, "lower bound at plan time %d, but no phase has its bound of %d B there", c.At, worst)
	default:
		j.gap()
	}
}

// loadOf is the max load of a phase, the first time that has it, and the load at time at.
// always is a number of bytes that are live throughout the phase besides its slots.
func (j *judge) loadOf(st *stage, needs []uint64, always, at uint64) (most, first, there uint64) {
	there = always
	var all []interval
	for i := st.first; i < st.end; i++ {
		if j.d.Slots[i].Flags&ownsNothing != 0 {
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

// endIn is the end of slot i's hold on its place within its phase.
func (j *judge) endIn(st *stage, i int) uint64 { return min(j.keptEnds[i], st.length) }

// strays checks the stray bytes as far as the plan alone allows: they lie between the
// sums of the least and of the largest requests of the strays. AgainstTrace checks them
// exactly.
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
