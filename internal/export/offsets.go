package export

import (
	"math/bits"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
)

// Offsets are the places of a timeline's buffers in the plan that was made from it, -1
// for those that have none: strays, what shares its place with others, which lies anywhere
// in there, and what follows the last recorded pass.
func Offsets(dev *planfile.Device, tl *lifespan.Timeline) []int64 {
	out, shared := make([]int64, len(tl.Buffers)), dev.Shared()
	for i, k := range Slots(dev, tl) {
		out[i] = -1
		if k >= 0 && dev.Slots[k].Flags&planfile.SlotStray == 0 && !shared[k] {
			out[i] = int64(dev.Slots[k].Offset)
		}
	}
	return out
}

// Slots are the slots of a timeline's buffers in the plan that was made from it, -1 for
// what follows the last recorded pass.
func Slots(dev *planfile.Device, tl *lifespan.Timeline) []int32 {
	out := make([]int32, len(tl.Buffers))
	for i := range out {
		out[i] = -1
	}
	next := 0 // buffers and slots are in the same order
	place := func(slot int) {
		if next < len(out) {
			out[next] = int32(slot)
		}
		next++
	}
	once := len(dev.Slots)
	if dev.Mode == planfile.ModePeriodic {
		once = len(dev.PhaseSlots(0))
	}
	for k := range once {
		place(k)
	}
	for _, pass := range dev.Passes {
		phase := &dev.Phases[pass.Phase]
		first := int(phase.FirstSlot+phase.SlotCount) - len(dev.PhaseAllocations(int(pass.Phase)))
		for w, word := range pass.Present {
			for ; word != 0; word &= word - 1 {
				place(first + 64*w + bits.TrailingZeros64(word))
			}
		}
	}
	return out
}
