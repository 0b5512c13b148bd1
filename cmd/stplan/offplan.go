package main

import (
	"math/bits"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
)

// offPlan is the most bytes that live at once, in the recorded passes, of what a
// periodic plan has no place for. tl is the timeline of the recording, which the
// plan is known to belong to.
func offPlan(dev *planfile.Device, tl *lifespan.Timeline) int64 {
	change := make([]int64, tl.Events+1)
	next := 0
	for next < len(tl.Buffers) && uint64(tl.Buffers[next].Start) < dev.SteadyStart {
		next++
	}
	for _, pass := range dev.Passes {
		slots := allocationSlots(dev, &dev.Phases[pass.Phase])
		for w, word := range pass.Present {
			for ; word != 0; word &= word - 1 {
				if slots[64*w+bits.TrailingZeros64(word)].Flags&planfile.SlotStray != 0 {
					b := &tl.Buffers[next]
					change[b.Start] += int64(b.Size)
					change[b.RequestedEnd] -= int64(b.Size)
				}
				next++
			}
		}
	}
	var live, most int64
	for _, c := range change {
		live += c
		most = max(most, live)
	}
	return most
}

// allocationSlots are the slots of a body without the entering ones, which come
// first.
func allocationSlots(dev *planfile.Device, p *planfile.Phase) []planfile.Slot {
	slots := phaseSlots(dev, p)
	for len(slots) > 0 && slots[0].Flags&planfile.SlotEntering != 0 {
		slots = slots[1:]
	}
	return slots
}
