//go:build cgo

package compile

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
)

// TestSmallSlotsApart: if sizes vary, no slot up to one of the sizes has bytes of a larger one, at whatever time, but for
// those that stay or cross the seam, unless the plan would take more than a thousandth more. That is so in few of these programs.
func TestSmallSlotsApart(t *testing.T) {
	const seeds, most = 24, 6
	mixed, both := 0, 0
	for seed := range uint64(seeds) {
		lengths := someLengths(rand.New(rand.NewPCG(seed, 23)), 8)
		p, _ := compiledAt(t, newDeepJob(seed).record("lengths", lengths), 0)
		d := p.Devices[0]
		isApart, found := false, false
		for _, limit := range smallest {
			var small, large []planfile.Slot
			for _, s := range d.Slots {
				switch {
				case s.Size == 0 || s.Flags&keptSlots != 0:
				case s.Size <= uint64(limit):
					small = append(small, s)
				default:
					large = append(large, s)
				}
			}
			found = found || len(small) > 0 && len(large) > 0
			isApart = isApart || len(small) > 0 && !slices.ContainsFunc(small, func(s planfile.Slot) bool {
				return slices.ContainsFunc(large, func(l planfile.Slot) bool { return s.Offset < l.Offset+l.Size && l.Offset < s.Offset+s.Size })
			})
		}
		if found {
			both++
			if !isApart {
				mixed++
			}
		}
		if bound := d.Certificate.LowerBound; d.ArenaBytes > bound+bound/100 {
			t.Errorf("seed %d: %d B, expected at most 1 %% above the bound of %d", seed, d.ArenaBytes, bound)
		}
	}
	t.Logf("%d of %d programs have both kinds of slots, and in %d they share bytes", both, seeds, mixed)
	if both < seeds/2 || mixed > most {
		t.Errorf("in %d of %d programs small and large slots share bytes, expected at most %d of at least %d", mixed, both, most, seeds/2)
	}
}
