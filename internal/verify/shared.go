package verify

import (
	"maps"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// ownsNothing has the flags of the slots that own no bytes: a stray has no place, and a
// shared one belongs to its holder.
const ownsNothing = planfile.SlotStray | planfile.SlotShares

// shares checks slot i if it shares its place: it has to name a holder, and to have the
// place of that.
func (j *judge) shares(st *stage, i int) {
	s := &j.d.Slots[i]
	if s.Flags&planfile.SlotShares == 0 {
		return
	}
	switch {
	case j.d.Mode == planfile.ModeRecorded:
		j.violated(RuleShared, i, none, "slot %d shares its place, which no slot of mode recorded does", i)
		return
	case s.Flags != planfile.SlotShares:
		j.violated(RuleShared, i, none, "slot %d: flags %#x, expected no other beside that it shares its place", i, uint32(s.Flags))
		return
	case int64(s.Cell) < int64(st.first) || int64(s.Cell) >= int64(i):
		j.violated(RuleShared, i, none, "slot %d shares the place of slot %d, expected an earlier slot of %s, which begins at slot %d", i, s.Cell, st.name, st.first)
		return
	}
	k := int(s.Cell)
	switch h := &j.d.Slots[k]; {
	case h.Flags != 0:
		j.violated(RuleShared, k, i, "slot %d shares the place of slot %d, which has the flags %#x, expected none", i, k, uint32(h.Flags))
	case s.Stream != h.Stream:
		j.violated(RuleShared, k, i, "slot %d is on stream %d, expected %d, that of slot %d, whose place it shares", i, s.Stream, h.Stream, k)
	case s.Offset != h.Offset || s.Size != h.Size:
		j.violated(RuleShared, k, i, "slot %d has %d B at offset %d, expected the %d B at offset %d of slot %d, whose place it shares", i, s.Size, s.Offset, h.Size, h.Offset, k)
	}
}

// keep fills in the ends of the hold that slots have on their places.
func (j *judge) keep() {
	j.keptEnds, j.keptCompleted = j.d.KeptEnds()
	if j.d.End == planfile.EndCompleted {
		j.keptEnds = j.keptCompleted
	}
}

// hold adds buffer b of slot i to what the shared place of the slot holds in this pass.
func (p *passage) hold(i int, b *buffer) {
	if !p.shared[i] {
		return
	}
	holder := i
	if s := &p.d.Slots[i]; s.Flags&planfile.SlotShares != 0 {
		holder = int(s.Cell)
	}
	p.held[holder] = append(p.held[holder], interval{uint64(b.start), uint64(p.end(b)), needed(uint64(b.requested))})
}

// fit checks that what shared places held in this pass was never more at once than they
// have. It does not prove that first fit finds a gap for each of them.
func (p *passage) fit(when string) {
	for _, holder := range slices.Sorted(maps.Keys(p.held)) {
		if most, at := maxLoad(p.held[holder]); most > p.d.Slots[holder].Size {
			p.violated(RuleShared, holder, none, "slot %d of %s and those that share its place of %d B take %d B at event %d, %s",
				holder, p.stageOf(holder).name, p.d.Slots[holder].Size, most, at, when)
		}
	}
	clear(p.held)
}
