package page

import (
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// held is a range of bytes of a shared place that a buffer takes until its end.
type held struct {
	low, high uint64 // from the start of the arena
	end       trace.Time
}

// inShared has the addresses, from the start of the arena, of the buffers that share a
// place with others. The plan does not say where in the place each lies, so they lie where
// a run would have them: each, when it is allocated, in the first gap that is large enough.
// A buffer without a gap is not listed.
func inShared(plan *planfile.Device, tl *lifespan.Timeline, slots []int32) map[int]uint64 {
	end := lifespan.EndRequested
	if plan.End == planfile.EndCompleted {
		end = lifespan.EndCompleted
	}
	addresses, live, shared := map[int]uint64{}, map[int32][]held{}, plan.Shared()
	for i, k := range slots {
		if k < 0 || !shared[k] {
			continue
		}
		holder := k
		if s := &plan.Slots[k]; s.Flags&planfile.SlotShares != 0 {
			holder = int32(s.Cell)
		}
		b, place := &tl.Buffers[i], &plan.Slots[holder]
		ended := func(h held) bool { return h.end <= b.Start }
		all := slices.DeleteFunc(live[holder], ended) // by address
		at, low := firstGap(all, place.Offset, uint64(b.Size))
		if low+uint64(b.Size) <= place.Offset+place.Size {
			addresses[i] = low
			all = slices.Insert(all, at, held{low, low + uint64(b.Size), b.Until(end)})
		}
		live[holder] = all
	}
	return addresses
}

// firstGap is the lowest address, not below low, of a gap of so many bytes, and the index
// in all of the first range above it.
func firstGap(all []held, low, bytes uint64) (at int, address uint64) {
	for at < len(all) && all[at].low < low+bytes {
		low = all[at].high
		at++
	}
	return at, low
}
