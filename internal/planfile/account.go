package planfile

import "sort"

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
