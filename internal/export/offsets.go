package export

import (
	"math/bits"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
)

// Offsets are the places of a timeline's buffers in the plan that was made from it, -1
// for those that have none: strays, and what follows the last recorded pass.
func Offsets(dev *planfile.Device, tl *lifespan.Timeline) []int64 {
	out := make([]int64, len(tl.Buffers))
	for i := range out {
		out[i] = -1
	}
	next := 0 // buffers and slots are in the same order
	place := func(s *planfile.Slot) {
		if next < len(out) && s.Flags&planfile.SlotStray == 0 {
			out[next] = int64(s.Offset)
		}
		next++
	}
	once := dev.Slots
	if dev.Mode == planfile.ModePeriodic {
		once = dev.PhaseSlots(0)
	}
	for i := range once {
		place(&once[i])
	}
	for _, pass := range dev.Passes {
		slots := dev.PhaseAllocations(int(pass.Phase))
		for w, word := range pass.Present {
			for ; word != 0; word &= word - 1 {
				place(&slots[64*w+bits.TrailingZeros64(word)])
			}
		}
	}
	return out
}
