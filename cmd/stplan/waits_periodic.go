package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
)

// unrolled is a prologue and some passes of one body on one timeline, for the
// packer: the body's n-th pass begins where the one before ends, and what lies
// in a cell is one buffer, from the phase that fills it to the one that frees it.
type unrolled struct {
	problem packing.Problem
	uses    []packing.Use
	offsets []packing.Bytes
	slots   []int32 // of each buffer: an index into Device.Slots
	pass    []int   // of each buffer: 0 for the prologue, then the passes from 1
}

// unroll plays the prologue and then body x so many times, every slot present.
// Strays have no place and are left out.
func unroll(d *planfile.Device, x, passes int) *unrolled {
	u := &unrolled{problem: packing.Problem{Alignment: packing.Bytes(d.Alignment)}}
	enters, interlude := enteringEnds(d, x, d.SlotEnd), d.Phases[x].Kind == planfile.PhaseInterlude
	base, end := uint64(0), d.Phases[0].Length+uint64(passes)*d.Phases[x].Length
	for pass := range passes + 1 {
		phase := &d.Phases[min(pass, 1)*x]
		next := base + phase.Length
		for i := phase.FirstSlot; i < phase.FirstSlot+phase.SlotCount; i++ {
			s := &d.Slots[i]
			if s.Flags&(planfile.SlotEntering|planfile.SlotStray) != 0 {
				continue
			}
			until := base + d.SlotEnd(int(i))
			switch {
			case s.Flags&planfile.SlotResident != 0:
				until = end
			case s.Flags&planfile.SlotLeaving != 0 && interlude:
				until = end
			case s.Flags&planfile.SlotLeaving != 0:
				until = min(end, next+enters[s.Cell])
			}
			u.add(d, int32(i), pass, base+s.Start, until, base+s.CompletedEnd)
		}
		base = next
		if pass == 0 && interlude {
			u.addCells(d, base, end)
		}
	}
	return u
}

// addCells adds the cells that the prologue left empty: before an interlude some
// body has filled them.
func (u *unrolled) addCells(d *planfile.Device, start, end uint64) {
	filled := map[uint32]bool{}
	for _, s := range phaseSlots(d, &d.Phases[0]) {
		filled[s.Cell] = true
	}
	first := &d.Phases[1]
	for i := first.FirstSlot; i < first.FirstSlot+first.SlotCount; i++ {
		if s := &d.Slots[i]; s.Flags&planfile.SlotLeaving != 0 && !filled[s.Cell] {
			u.add(d, int32(i), 0, start, end, end)
		}
	}
}

// enteringEnds says when body x frees what it finds in each cell, given the end
// of every slot; 0, which is before its first allocation, where it has no
// entering slot.
func enteringEnds(d *planfile.Device, x int, end func(slot int) uint64) map[uint32]uint64 {
	ends := map[uint32]uint64{}
	phase := &d.Phases[x]
	for i := phase.FirstSlot; i < phase.FirstSlot+phase.SlotCount; i++ {
		if s := &d.Slots[i]; s.Flags&planfile.SlotEntering != 0 {
			ends[s.Cell] = end(int(i))
		}
	}
	return ends
}

func (u *unrolled) add(d *planfile.Device, slot int32, pass int, start, end, settled uint64) {
	s := &d.Slots[slot]
	if d.End == planfile.EndCompleted {
		settled = end // nobody has come before
	}
	u.problem.Buffers = append(u.problem.Buffers, packing.Buffer{Start: packing.Time(start), End: packing.Time(end), Size: packing.Bytes(s.Size)})
	u.uses = append(u.uses, packing.Use{Stream: int32(s.Stream), Settled: packing.Time(settled)})
	u.offsets = append(u.offsets, packing.Bytes(s.Offset))
	u.slots = append(u.slots, slot)
	u.pass = append(u.pass, pass)
}

func (u *unrolled) placement() packing.Placement {
	pl := packing.Placement{Offsets: u.offsets}
	for i, b := range u.problem.Buffers {
		pl.Makespan = max(pl.Makespan, u.offsets[i]+b.Size)
	}
	return pl
}

// periodicWaits are the waits of a periodic plan: of every sequence of the
// prologue and two passes of one body.
func periodicWaits(d *planfile.Device) []planfile.Wait {
	var all []planfile.Wait
	for x := 1; x < len(d.Phases); x++ {
		u := unroll(d, x, 2)
		for _, w := range packing.Waits(&u.problem, u.uses, u.placement()) {
			kind := waitKind(w)
			if u.pass[w.Earlier] != u.pass[w.Later] {
				kind |= planfile.WaitSeam
			}
			all = append(all, planfile.Wait{Later: uint32(u.slots[w.Later]), Earlier: uint32(u.slots[w.Earlier]), Kind: kind})
		}
	}
	slices.SortFunc(all, func(a, b planfile.Wait) int {
		return cmp.Or(cmp.Compare(a.Later, b.Later), cmp.Compare(a.Earlier, b.Earlier), cmp.Compare(a.Kind, b.Kind))
	})
	return slices.Compact(all)
}

// periodicRounds is how often every phase is gone through for fewer waits: what
// one phase gains may open a place for another.
const periodicRounds = 2

// fewerPeriodicWaits moves slots of a periodic plan to where fewer reuses need a
// wait, phase by phase, within the arena. Residents and cells stay, which all
// phases share. It sets the plan's waits; makespans are to be taken afterwards.
func fewerPeriodicWaits(ctx context.Context, d *planfile.Device) error {
	d.Waits = periodicWaits(d)
	for range periodicRounds {
		before := len(d.Waits)
		for phase := range d.Phases {
			if err := fewerWaitsIn(ctx, d, phase); err != nil {
				return err
			}
		}
		if len(d.Waits) == before {
			break
		}
	}
	return nil
}

// fewerWaitsIn moves the slots of one phase. A body is seen in the second of
// three passes, so that what comes before and after is what it is for ever; the
// prologue before one pass of the first body. Where the moves turn out to be
// worth nothing, since the passes around have not moved, all is left as it was.
func fewerWaitsIn(ctx context.Context, d *planfile.Device, phase int) error {
	u := unroll(d, max(phase, 1), 1+2*min(phase, 1))
	const fixed = planfile.SlotResident | planfile.SlotLeaving
	for i, slot := range u.slots {
		u.uses[i].Pinned = u.pass[i] != 2*min(phase, 1) || d.Slots[slot].Flags&fixed != 0
	}
	pl, err := packing.FewerWaits(ctx, &u.problem, u.uses, u.placement(), packing.Options{})
	if err != nil {
		return err
	}
	moved := *d
	moved.Slots = slices.Clone(d.Slots)
	for i, slot := range u.slots {
		if !u.uses[i].Pinned {
			moved.Slots[slot].Offset = uint64(pl.Offsets[i])
		}
	}
	if moved.Waits = periodicWaits(&moved); len(moved.Waits) < len(d.Waits) {
		d.Slots, d.Waits = moved.Slots, moved.Waits
	}
	return nil
}
