package verify

import (
	"cmp"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// play gives slots their bytes in the order in which a run would, and looks at
// who had them before. An owner is a slot in one pass: slot + pass × slots.
type play struct {
	*judge
	o    *owners
	st   *stage
	pass int
	// until is, by cell, where what lies in it when the pass begins ends: the
	// end of the entering slot, 0 where the body has none, never in an interlude.
	until    map[uint32]uint64
	had      []piece // room for take
	kept     []reuse // and for ended
	progress func(slots int)
	done     int
}

// reuses proves that no address has two live owners, and that the waits are
// those that reuse needs. It plays the prologue and after it two passes of each
// body: the first finds what the prologue left, the second what a pass leaves,
// and that is all that any later pass finds, whatever body came before, since
// all leave the same cells. Of any two slots that overlap in time and address at
// least one such pair is found: the later of the two meets the earlier one
// itself, or one that met it.
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

// fill gives every cell its bytes before an interlude: the prologue may have left
// some empty, and other bodies have not.
func (p *play) fill() {
	for _, i := range p.keptCells() {
		s := &p.d.Slots[i]
		p.until[s.Cell] = math.MaxUint64
		p.had = p.o.take(i, s.Offset, s.Size, p.had[:0])
	}
}

// body plays two passes and gives the reuses of both: those from the prologue,
// those from the pass before, and those within a pass, which are the same.
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

// compare takes the waits of slot i off the list, and compares. The slots come
// in order; waits that are not for them have nothing to wait for.
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
	const report = 1 << 16
	for i := p.st.first + p.st.entering; i < p.st.end; i++ {
		s := &p.d.Slots[i]
		if s.Flags&planfile.SlotStray == 0 {
			p.had = p.o.take(i+p.pass*len(p.d.Slots), s.Offset, s.Size, p.had[:0])
			visit(i, p.ended(i, p.had))
		}
		if p.done++; p.done%report == 0 {
			p.progress(min(p.done, len(p.d.Slots)))
		}
	}
}

// ended reports the owners that still live when slot i starts and returns the
// others, from whom it may take over, each once.
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
		} else if over || p.pass < 2 { // a second pass finds the same in itself again
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

// live says whether a slot is live at a time of the pass: one of this pass, or
// of one before. Of those residents are live for ever, and what left its phase
// in a cell is until the body frees it.
func (p *play) live(i int, over bool, at uint64) bool {
	s := &p.d.Slots[i]
	switch {
	case !over:
		return p.d.SlotEnd(i) > at
	case s.Flags&planfile.SlotResident != 0:
		return true
	case s.Flags&planfile.SlotLeaving != 0:
		return p.until[s.Cell] > at
	}
	return false
}
