//go:build cgo

package compile

import (
	"math/rand/v2"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// TestSmallSlotsApart: if sizes vary, no small slot has bytes of a large one, at whatever time, but for those that stay or
// cross the seam; and the plan takes hardly more for that.
func TestSmallSlotsApart(t *testing.T) {
	both := 0
	for seed := range uint64(12) {
		lengths := someLengths(rand.New(rand.NewPCG(seed, 23)), 8)
		p, _ := compiledAt(t, newDeepJob(seed).record("lengths", lengths), 0)
		d := p.Devices[0]
		var small, large []planfile.Slot
		for _, s := range d.Slots {
			switch {
			case s.Size == 0 || s.Flags&keptSlots != 0:
			case s.Size <= leastVaries:
				small = append(small, s)
			default:
				large = append(large, s)
			}
		}
		if len(small) > 0 && len(large) > 0 {
			both++
		}
		for _, s := range small {
			for _, l := range large {
				if s.Offset < l.Offset+l.Size && l.Offset < s.Offset+s.Size {
					t.Fatalf("seed %d: %d B at %d lie in %d B at %d", seed, s.Size, s.Offset, l.Size, l.Offset)
				}
			}
		}
		if bound := d.Certificate.LowerBound; d.ArenaBytes > bound+bound/100 {
			t.Errorf("seed %d: %d B, expected at most 1 %% above the bound of %d", seed, d.ArenaBytes, bound)
		}
	}
	if both < 6 {
		t.Errorf("%d programs have small and large slots, expected 6", both)
	}
}
