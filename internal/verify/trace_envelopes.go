package verify

import (
	"maps"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// enter checks what lies in the cells when a pass begins: its body has an entering slot
// for it, unless it is freed before the first allocation.
func (p *passage) enter(pass int) {
	st, content := p.stageOfPass(pass), p.enters[pass]
	for _, cell := range slices.Sorted(maps.Keys(content)) {
		b := content[cell]
		i, enters := st.entered[cell]
		if enters {
			p.observe(i, pass, b)
			continue
		}
		p.shown[phaseCell{int(p.d.Passes[pass].Phase), cell}] = true
		if p.within(pass, p.end(b)) > 0 {
			p.differs(st.left[cell], b, inCell(cell), "before the first allocation of "+st.name, at(p.end(b)))
		}
	}
}

// unseen finds cells for which a body has no entering slot although no pass of it began
// with the cell filled. Nothing shows that the body frees them before its first
// allocation.
func (p *passage) unseen() {
	for k := range p.stages[1:] {
		st := &p.stages[k+1]
		for _, cell := range slices.Sorted(maps.Keys(st.left)) {
			_, enters := st.entered[cell]
			if i := st.left[cell]; !enters && !p.shown[phaseCell{k + 1, cell}] && p.d.Slots[i].Start > 0 {
				p.violated(RuleCell, i, none, "%s has no slot for what enters it in cell %d, and no pass shows that it is freed before the first allocation", st.name, cell)
			}
		}
	}
}

// envelopes compares every slot with the buffers that it had in the passes.
func (p *passage) envelopes() {
	for i := range p.d.Slots {
		s, o := &p.d.Slots[i], &p.seen[i]
		bad := func(what string, planned, recorded any) {
			p.violated(RuleBuffer, i, none, "slot %d of %s: %s %v, in the trace %v", i, p.stageOf(i).name, what, planned, recorded)
		}
		switch {
		case s.Occurrences != o.occurrences:
			bad("occurrences", s.Occurrences, o.occurrences)
		case s.Requested != o.most:
			bad("requested bytes", s.Requested, o.most)
		case s.Least != o.least:
			bad("least requested bytes", s.Least, o.least)
		case o.occurrences == 0: // no pass entered by it, so its ends are not known
		case s.RequestedEnd != o.requestedEnd:
			bad("requested end", s.RequestedEnd, o.requestedEnd)
		case s.CompletedEnd < o.completed || s.CompletedEnd > o.completedMost:
			bad("completed end", s.CompletedEnd, o.completed)
		}
	}
}

// strayBytes checks the largest sum of the strays of a pass.
func (p *passage) strayBytes() {
	most := uint64(0)
	for pass := range p.d.Passes {
		st, sum := p.stageOfPass(pass), uint64(0)
		for k := p.first[pass]; k < p.first[pass+1]; k++ {
			if i := st.first + st.entering + p.ordinal[k-p.first[0]]; p.d.Slots[i].Flags&planfile.SlotStray != 0 {
				sum += needed(uint64(p.buffers[k].requested))
			}
		}
		most = max(most, sum)
	}
	if most != p.d.StrayBytes {
		p.violated(RuleStray, none, none, "stray bytes of %d B, but the strays of a pass take %d B in the trace", p.d.StrayBytes, most)
	}
}

// peaks checks the peaks of a periodic plan, which are those of the whole recording.
func (p *passage) peaks() {
	requested, completed := intervals(p.buffers)
	p.peakOf("allocated", p.d.PeakAllocated, requested)
	p.peakOf("active", p.d.PeakActive, completed)
}

// intervals are the live ranges of buffers to both their ends.
func intervals(buffers []buffer) (requested, completed []interval) {
	for i := range buffers {
		b := &buffers[i]
		requested = append(requested, interval{uint64(b.start), uint64(b.requestedEnd), needed(uint64(b.requested))})
		completed = append(completed, interval{uint64(b.start), uint64(b.completedEnd), needed(uint64(b.requested))})
	}
	return requested, completed
}
