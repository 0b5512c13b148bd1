package main

import (
	"context"
	"fmt"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// steadyState is the recording's steady state, or nil where the plan is to be of
// the recorded process: asked for, or because nothing repeats, or because the
// envelope of its passes would take more memory than the recording reserved.
func (a *app) steadyState(name string, dev *planfile.Device, tl *lifespan.Timeline, it lifespan.Iterations, opt planOptions) (*lifespan.Periodic, error) {
	if opt.mode == planfile.ModeRecorded {
		return nil, nil
	}
	end := lifespanEnd(opt.end)
	per, why := lifespan.FindPeriodic(tl, it, end)
	switch {
	case per == nil && opt.mode == planfile.ModePeriodic:
		return nil, fmt.Errorf("%s: device %d: no periodic plan: %s", name, dev.Ordinal, why)
	case per == nil && it.Count == 0:
		return nil, nil // the summary says that nothing repeats
	case per == nil:
		a.note("%s: device %d: the plan is of the recorded process only: %s", name, dev.Ordinal, why)
		return nil, nil
	case opt.mode == planfile.ModePeriodic:
		return per, nil
	}
	if bound, limit := envelope(tl, per, end), worthwhile(dev, tl); bound > limit {
		a.note("%s: device %d: the plan is of the recorded process only: one that fits every pass takes at least %s, and beyond %s it is not worth it (--mode periodic makes it)",
			name, dev.Ordinal, report.Bytes(int64(bound)), report.Bytes(int64(limit)))
		return nil, nil
	}
	return per, nil
}

// worthwhile is how many bytes a periodic plan may take before it is worse than
// what everybody has: what the recording reserved. Where the recording does not
// say, a quarter on top of what the program needed, which is about the most that
// native allocation wastes.
func worthwhile(dev *planfile.Device, tl *lifespan.Timeline) trace.Bytes {
	if dev.RecordedPeakReserved > 0 {
		return trace.Bytes(dev.RecordedPeakReserved)
	}
	return tl.PeakAllocated.Bytes / 4 * 5
}

// envelope is the circular lower bound of a steady state.
func envelope(tl *lifespan.Timeline, per *lifespan.Periodic, end lifespan.End) trace.Bytes {
	var most trace.Bytes
	for _, p := range per.Envelope(tl, end) {
		most = max(most, p.Bytes)
	}
	return most
}

// describeSteadyState adds to a summary what only a periodic plan has.
func describeSteadyState(row *report.CompiledDevice, dev *planfile.Device, tl *lifespan.Timeline, per *lifespan.Periodic, end lifespan.End) {
	recorded := per.PeakRecorded(tl, end)
	s := &report.SteadyState{
		CutEvent: int64(per.Cut), EndEvent: int64(per.End), Passes: len(per.Passes),
		Cells: len(per.Cells), StrayBytes: int64(per.StrayBytes), RecordedPeak: int64(recorded.Bytes),
	}
	for _, c := range per.Cells {
		s.CellBytes += int64(c.Size)
	}
	if recorded.Bytes > 0 {
		s.EnvelopeCost = float64(dev.Certificate.LowerBound)/float64(recorded.Bytes) - 1
	}
	for i := range dev.Phases {
		p := &dev.Phases[i]
		phase := report.Phase{
			Kind: p.Kind.String(), Passes: int(p.Occurrences), Length: int64(p.Length),
			Makespan: int64(p.Makespan), LowerBound: int64(p.LowerBound), Gap: report.GapShare(int64(p.Makespan), int64(p.LowerBound)),
		}
		for _, slot := range phaseSlots(dev, p) {
			switch {
			case slot.Flags&planfile.SlotEntering != 0:
				continue
			case slot.Flags&planfile.SlotStray != 0:
				phase.Strays++
			case slot.Occurrences < p.Occurrences:
				phase.Optional++
			}
			phase.Slots++
		}
		s.Phases = append(s.Phases, phase)
	}
	row.Steady = s
}

// orderPeriodic lists the waits of a periodic plan, and moves slots to where
// fewer are needed, unless each stream has its own memory: then only frees that
// are pending need one, and a move could mix the streams.
func (a *app) orderPeriodic(ctx context.Context, dev *planfile.Device, opt planOptions) error {
	if opt.noCrossStream {
		dev.Waits = periodicWaits(dev)
		return nil
	}
	return fewerPeriodicWaits(ctx, dev)
}

// fillPeriodic writes what a periodic plan says but its bounds and waits: the
// slots of every phase, and which recorded pass had which slots.
func fillPeriodic(dev *planfile.Device, tl *lifespan.Timeline, per *lifespan.Periodic, c *circle, pl packing.Placement) {
	dev.SteadyStart, dev.SteadyEnd, dev.StrayBytes = uint64(per.Cut), uint64(per.End), uint64(per.StrayBytes)
	f := periodicFiller{dev: dev, c: c, pl: pl}
	f.prologue(tl, per)
	for i := range per.Bodies {
		f.body(i+1, &per.Bodies[i])
	}
	for _, p := range per.Passes {
		dev.Passes = append(dev.Passes, planfile.Pass{FirstEvent: uint64(p.First), Phase: uint32(p.Body + 1), Present: p.Present})
	}
}

type periodicFiller struct {
	dev *planfile.Device
	c   *circle
	pl  packing.Placement
}

func (f *periodicFiller) stream(handle uint64) uint32 { return uint32(f.c.streams.of(handle)) }

// place gives slot s the offset and size of a buffer of the problem.
func (f *periodicFiller) place(s *planfile.Slot, buffer int32) {
	s.Offset, s.Size = uint64(f.pl.Offsets[buffer]), uint64(f.c.problem.Buffers[buffer].Size)
}

func (f *periodicFiller) prologue(tl *lifespan.Timeline, per *lifespan.Periodic) {
	phase := planfile.Phase{Kind: planfile.PhasePrologue, Occurrences: 1, Length: uint64(per.Cut), SlotCount: uint64(len(per.Prologue))}
	for i, s := range per.Prologue {
		b := &tl.Buffers[s.Buffer]
		slot := planfile.Slot{
			Start: uint64(b.Start), RequestedEnd: uint64(s.RequestedEnd), CompletedEnd: uint64(s.CompletedEnd),
			Requested: uint64(b.Requested), Least: uint64(b.Requested), Stream: f.stream(b.Stream), Occurrences: 1, Cell: planfile.NoCell,
		}
		if s.Resident {
			slot.Flags |= planfile.SlotResident
		}
		if b.Initial {
			slot.Flags |= planfile.SlotInitial
		}
		if s.Cell >= 0 {
			slot.Flags |= planfile.SlotLeaving
			slot.Cell = uint32(s.Cell)
		}
		f.place(&slot, f.c.slots[0][i])
		f.dev.Slots = append(f.dev.Slots, slot)
	}
	f.dev.Phases = append(f.dev.Phases, phase)
}

func (f *periodicFiller) body(phase int, body *lifespan.Body) {
	first := len(f.dev.Slots)
	for i := range body.Entering {
		slot := f.bodySlot(&body.Entering[i])
		slot.Flags |= planfile.SlotEntering
		f.place(&slot, f.c.cells[slot.Cell])
		f.dev.Slots = append(f.dev.Slots, slot)
	}
	for i := range body.Slots {
		slot := f.bodySlot(&body.Slots[i])
		if slot.Cell != planfile.NoCell {
			slot.Flags |= planfile.SlotLeaving
		}
		if b := f.c.slots[phase][i]; b >= 0 {
			f.place(&slot, b)
		} else {
			slot.Flags |= planfile.SlotStray
		}
		f.dev.Slots = append(f.dev.Slots, slot)
	}
	kind := planfile.PhaseBody
	if body.Interlude {
		kind = planfile.PhaseInterlude
	}
	f.dev.Phases = append(f.dev.Phases, planfile.Phase{
		Kind: kind, Occurrences: uint32(body.Occurrences), Length: uint64(body.Length),
		FirstSlot: uint64(first), SlotCount: uint64(len(f.dev.Slots) - first),
	})
}

// bodySlot is s without a place.
func (f *periodicFiller) bodySlot(s *lifespan.Slot) planfile.Slot {
	slot := planfile.Slot{
		Start: uint64(s.Start), RequestedEnd: uint64(s.RequestedEnd), CompletedEnd: uint64(s.CompletedEnd),
		Requested: uint64(s.Requested), Least: uint64(s.Least), Stream: f.stream(s.Stream), Occurrences: uint32(s.Occurrences), Cell: planfile.NoCell,
	}
	if s.Cell >= 0 {
		slot.Cell = uint32(s.Cell)
	}
	return slot
}

// bounds gives every phase its bound and its makespan, residents included, and
// in an interlude the cells, which lie filled in it.
func bounds(dev *planfile.Device, peaks []lifespan.PhasePeak) {
	var residents uint64
	for i := range dev.Slots[:dev.Phases[0].SlotCount] {
		if s := &dev.Slots[i]; s.Flags&planfile.SlotResident != 0 {
			residents = max(residents, s.Offset+s.Size)
		}
	}
	cells := uint64(0)
	for _, s := range phaseSlots(dev, &dev.Phases[1]) {
		if s.Flags&planfile.SlotLeaving != 0 {
			cells = max(cells, s.Offset+s.Size)
		}
	}
	for i, top := range peaks {
		p := &dev.Phases[i]
		p.LowerBound, p.BoundAt, p.Makespan = uint64(top.Bytes), uint64(top.At), residents
		if p.Kind == planfile.PhaseInterlude {
			p.Makespan = max(p.Makespan, cells)
		}
		for _, s := range dev.Slots[p.FirstSlot : p.FirstSlot+p.SlotCount] {
			p.Makespan = max(p.Makespan, s.Offset+s.Size)
		}
	}
}

func phaseSlots(dev *planfile.Device, p *planfile.Phase) []planfile.Slot {
	return dev.Slots[p.FirstSlot : p.FirstSlot+p.SlotCount]
}
