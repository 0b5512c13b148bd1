package verify

import (
	"cmp"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// play gives slots their bytes in the order in which a run would and looks at the owners
// before. An owner is a slot in one pass, as the number slot + pass × number of slots.
type play struct {
	*judge
	o    *owners
	st   *stage
	pass int
	// until is, by cell, the end of what lies in it when the pass begins: the end of the
	// entering slot, 0 if the body has none, the largest uint64 in an interlude.
	until    map[uint32]uint64
	had      []piece // buffer for the results of take
	kept     []reuse // buffer for the results of ended
	progress func(slots int)
	done     int // slots played so far
}

// reuses proves that no address has two live owners, and that the waits are exactly
// those that reuse needs. It plays the prologue and after it two passes of each body.
// The first pass finds what the prologue left, and the second what a pass leaves. No
// later pass finds anything else, also after another body, since all phases leave the
// same cells.
//
// If any two slots overlap in time and address, an overlap is found: the later of the two
// takes bytes from the earlier one, or from a slot that took them from it.
func (j *judge) reuses(progress func(slots int)) {
	waits := j.d.Waits
	p := &play{judge: j, o: newOwners(j.d), st: &j.stages[0], progress: progress}
	p.run(func(i int, reused []reuse) { waits = j.compare(i, reused, waits) })
	after := p.o
	for b := range j.stages[1:] {
		p.st, p.o, p.pass = &j.stages[b+1], after.clone(), 1
		p.until = map[uint32]uint64{}
		for i := p.st.first; i < p.st.first+p.st.entering; i++ {
			p.until[j.d.Slots[i].Cell] = j.d.SlotEnd(i)
		}
		if p.st.interlude {
			p.fill()
		}
		p.body(func(i int, reused []reuse) { waits = j.compare(i, reused, waits) })
	}
	j.compare(len(j.d.Slots), nil, waits)
}

// fill gives every cell its bytes before an interlude. After the prologue some may be
// empty, but after any body all are full.
func (p *play) fill() {
	for _, i := range p.keptCells() {
		s := &p.d.Slots[i]
		p.until[s.Cell] = math.MaxUint64
		p.had = p.o.take(i, s.Offset, s.Size, p.had[:0])
	}
}

// body plays two passes and visits each slot with its reuses: those from the prologue,
// those from the pass before, and those within a pass, which are the same in both.
func (p *play) body(visit func(i int, reused []reuse)) {
	type found struct {
		later int
		reuse
	}
	var prologue []found
	p.run(func(i int, reused []reuse) {
		for _, r := range reused {
			if r.over {
				prologue = append(prologue, found{i, r})
			}
		}
	})
	p.pass = 2
	var all []reuse
	p.run(func(i int, reused []reuse) {
		all = all[:0]
		for ; len(prologue) > 0 && prologue[0].later == i; prologue = prologue[1:] {
			all = append(all, prologue[0].reuse)
		}
		visit(i, append(all, reused...))
	})
}

// compare compares the reuses of slot i with its waits, and returns the list without
// them. The slots come in order. Waits of slots in between, which are not played, are
// wrong.
func (j *judge) compare(i int, reused []reuse, listed []planfile.Wait) []planfile.Wait {
	n := 0
	for n < len(listed) && int(listed[n].Later) <= i {
		n++
	}
	k := 0
	for k < n && int(listed[k].Later) < i {
		k++
	}
	for _, w := range listed[:k] {
		j.waits(int(w.Later), nil, []planfile.Wait{w})
	}
	j.waits(i, reused, listed[k:n])
	return listed[n:]
}

// run plays one pass of the stage.
func (p *play) run(visit func(i int, reused []reuse)) {
	const report = 1 << 16 // slots between two calls of progress, so that the calls cost nothing
	for i := p.st.first + p.st.entering; i < p.st.end; i++ {
		s := &p.d.Slots[i]
		if s.Flags&ownsNothing == 0 {
			p.had = p.o.take(i+p.pass*len(p.d.Slots), s.Offset, s.Size, p.had[:0])
			visit(i, p.ended(i, p.had))
		}
		if p.done++; p.done%report == 0 {
			p.progress(min(p.done, len(p.d.Slots)))
		}
	}
}

// ended reports as overlaps the owners that are still live when slot i starts, and
// returns the others, each once: slot i takes over from them.
func (p *play) ended(i int, had []piece) []reuse {
	n := len(p.d.Slots)
	kept := p.kept[:0]
	slices.SortFunc(had, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.owner%n, b.owner%n), cmp.Compare(a.owner, b.owner), cmp.Compare(a.from, b.from))
	})
	had = slices.CompactFunc(had, func(a, b piece) bool { return a.owner == b.owner })
	start := p.d.Slots[i].Start
	for _, h := range had {
		earlier, over := h.owner%n, h.owner/n != p.pass
		if !p.live(earlier, over, start) {
			kept = append(kept, reuse{earlier, over, h.from, h.to})
		} else if over || p.pass < 2 { // what lies within a pass was reported in the first one
			before := ""
			if over {
				before = ", of the phase before,"
			}
			p.violated(RuleOverlap, earlier, i, "%s%s and %s are both live at %d and share bytes [%d, %d)",
				p.slot(earlier), before, p.slot(i), start, h.from, h.to)
		}
	}
	p.kept = kept
	return kept
}

// live says whether slot i is live at a time of the pass. over says that it belongs to
// a phase before. Of those, residents are live for ever, and a leaving slot is live
// until the body frees what lies in its cell.
func (p *play) live(i int, over bool, at uint64) bool {
	s := &p.d.Slots[i]
	switch {
	case !over:
		return p.keptEnds[i] > at
	case s.Flags&planfile.SlotResident != 0:
		return true
	case s.Flags&planfile.SlotLeaving != 0:
		return p.until[s.Cell] > at
	}
	return false
}
