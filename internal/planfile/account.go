package planfile

import (
	"slices"
	"sort"
)

// What follows counts what is in a plan. The plan need not be verified, but it
// must have passed Decode.

// PhaseSlots are the slots of phase x.
func (d *Device) PhaseSlots(x int) []Slot {
	p := &d.Phases[x]
	return d.Slots[p.FirstSlot : p.FirstSlot+p.SlotCount]
}

// PhaseAllocations are the slots of phase x without the entering ones, which come
// first: slot k of them is bit k of a pass's Present.
func (d *Device) PhaseAllocations(x int) []Slot {
	slots := d.PhaseSlots(x)
	for len(slots) > 0 && slots[0].Flags&SlotEntering != 0 {
		slots = slots[1:]
	}
	return slots
}

// PhaseOf is the phase that has a slot of a periodic plan.
func (d *Device) PhaseOf(slot uint32) int {
	return sort.Search(len(d.Phases)-1, func(x int) bool {
		return uint64(slot) < d.Phases[x].FirstSlot+d.Phases[x].SlotCount
	})
}

// Shares says whether some slot shares its place.
func (d *Device) Shares() bool {
	return slices.ContainsFunc(d.Slots, func(s Slot) bool { return s.Flags&SlotShares != 0 })
}

// Shared says of every slot whether others lie in its place as well, at some offset that
// the plan does not fix: whether it is a sharing slot or the holder of one.
func (d *Device) Shared() []bool {
	shared := make([]bool, len(d.Slots))
	for i := range d.Slots {
		if holder, ok := d.holder(i); ok {
			shared[i], shared[holder] = true, true
		}
	}
	return shared
}

// CountShared counts the slots that share a place with others, and the places that they share.
func (d *Device) CountShared() (slots, places int) {
	for i, shared := range d.Shared() {
		if !shared {
			continue
		}
		slots++
		if _, ok := d.holder(i); !ok {
			places++
		}
	}
	return slots, places
}

// KeptEnds are the two ends of every slot's hold on its place. Those of a holder are the
// latest among its own and those of all that share its place, because nothing else may
// use these bytes before. Those of other slots, sharing ones as well, are their own.
func (d *Device) KeptEnds() (requested, completed []uint64) {
	requested, completed = make([]uint64, len(d.Slots)), make([]uint64, len(d.Slots))
	for i := range d.Slots {
		s := &d.Slots[i]
		requested[i], completed[i] = s.RequestedEnd, s.CompletedEnd
		if holder, ok := d.holder(i); ok { // before slot i, so its own ends are there
			requested[holder] = max(requested[holder], s.RequestedEnd)
			completed[holder] = max(completed[holder], s.CompletedEnd)
		}
	}
	return requested, completed
}

// holder is the slot whose place slot i shares. It is false for a slot that shares none,
// or names no slot before it.
func (d *Device) holder(i int) (holder int, ok bool) {
	s := &d.Slots[i]
	if s.Flags&SlotShares == 0 || uint64(s.Cell) >= uint64(i) {
		return 0, false
	}
	return int(s.Cell), true
}

// Allocations counts the slots that are allocated in their phase. An entering
// slot is not: it is the rest of a leaving one.
func (d *Device) Allocations() int {
	n := 0
	for i := range d.Slots {
		if d.Slots[i].Flags&SlotEntering == 0 {
			n++
		}
	}
	return n
}

// PhaseCount counts the slots of one phase: those allocated in it, and of these
// the ones with a place that not every recorded pass had (Optional), the ones
// that leave it in a cell, and the strays. Entering counts the others.
type PhaseCount struct {
	Allocations, Optional, Leaving, Strays, Entering int
}

// CountPhase counts the slots of phase x.
func (d *Device) CountPhase(x int) PhaseCount {
	var n PhaseCount
	for _, s := range d.PhaseSlots(x) {
		if s.Flags&SlotEntering != 0 {
			n.Entering++
			continue
		}
		n.Allocations++
		switch {
		case s.Flags&SlotStray != 0:
			n.Strays++
		case s.Occurrences < d.Phases[x].Occurrences:
			n.Optional++
		}
		if s.Flags&SlotLeaving != 0 {
			n.Leaving++
		}
	}
	return n
}

// Cells counts the cells of a plan and the bytes that they take. Every body
// fills each of them once.
func (d *Device) Cells() (n int, bytes uint64) {
	if d.Mode != ModePeriodic {
		return 0, 0
	}
	for _, s := range d.PhaseSlots(1) {
		if s.Flags&SlotLeaving != 0 {
			n++
			bytes += s.Size
		}
	}
	return n, bytes
}

// EnteringEnds is when body x frees what it finds in each cell, in its own time,
// by the given end of a slot. A cell without an entering slot is freed before the
// first allocation, and is not in the map.
func (d *Device) EnteringEnds(x int, end func(slot int) uint64) map[uint32]uint64 {
	ends := map[uint32]uint64{}
	p := &d.Phases[x]
	for i := p.FirstSlot; i < p.FirstSlot+p.SlotCount; i++ {
		if s := &d.Slots[i]; s.Flags&SlotEntering != 0 {
			ends[s.Cell] = end(int(i))
		}
	}
	return ends
}
