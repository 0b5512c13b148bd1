package compile

import (
	"math/bits"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
)

// OffPlan is the most bytes that live at once, in the recorded passes, of what a
// periodic plan has no place for. tl is the timeline of the recording that the
// plan was made from.
func OffPlan(dev *planfile.Device, tl *lifespan.Timeline) int64 {
	change := make([]int64, tl.Events+1)
	next := 0
	for next < len(tl.Buffers) && uint64(tl.Buffers[next].Start) < dev.SteadyStart {
		next++
	}
	for _, pass := range dev.Passes {
		slots := dev.PhaseAllocations(int(pass.Phase))
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
