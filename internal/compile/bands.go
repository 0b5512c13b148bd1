package compile

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
)

// keptSlots are the flags of slots whose bytes stay taken, or cross the seam.
const keptSlots = planfile.SlotResident | planfile.SlotEntering | planfile.SlotLeaving

// band is a range of the arena that no slot crosses the ends of, and that has no
// smaller such range in it. So bands may lie in any order, and each may be mirrored,
// and slots that are live together still do not overlap.
type band struct {
	low, high   packing.Bytes
	slots       []int32
	kept        bool          // a slot in it is kept
	first, last packing.Bytes // bytes of its ends without a kept slot, if it has one
	phases      int           // that have slots in it
}

// sortBands puts the bands of a periodic plan in an order in which what stays and what
// crosses the seam lies as low as may be. If a run asks for sizes beyond the recorded
// ones, the rest is placed anew above it (runtime/cuda/match_layout.c), and the more
// of the arena that is, the less memory has to move then. It takes out the gaps
// between bands, if there are any, and makes no other difference to the size.
//
// Bands without a kept slot are last, those that the most phases use first, so that
// phases which use less of the arena end as low as may be.
func (d *draft) sortBands() {
	bands := d.bands()
	if len(bands) < 2 {
		return
	}
	top := -1 // the band whose end has the most room above what is kept in it
	for i := range bands {
		if b := &bands[i]; b.kept && b.room() > 0 && (top < 0 || b.room() > bands[top].room()) {
			top = i
		}
	}
	rank := func(i int) int {
		switch {
		case i == top:
			return 1
		case bands[i].kept:
			return 0
		default:
			return 2
		}
	}
	order := make([]int, len(bands))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if c := cmp.Compare(rank(i), rank(j)); c != 0 || bands[i].kept {
			return c
		}
		return cmp.Compare(bands[j].phases, bands[i].phases)
	})
	var at packing.Bytes
	for _, i := range order {
		b := &bands[i]
		mirrored := i == top && b.first > b.last
		for _, n := range b.slots {
			s := &d.slots[n]
			if mirrored {
				s.offset = at + b.high - (s.offset + s.size)
			} else {
				s.offset += at - b.low
			}
		}
		at += b.high - b.low
	}
}

// room is the bytes at one end of a band that no kept slot lies in.
func (b *band) room() packing.Bytes { return max(b.first, b.last) }

// bands lists the bands of the arena by address.
func (d *draft) bands() []band {
	phase := make([]int32, len(d.slots))
	order := make([]int32, 0, len(d.slots))
	for x := range d.phases {
		p := &d.phases[x]
		for i := p.first; i < p.first+p.count; i++ {
			phase[i] = int32(x)
			if d.slots[i].size > 0 {
				order = append(order, int32(i))
			}
		}
	}
	slices.SortFunc(order, func(i, j int32) int {
		return cmp.Or(cmp.Compare(d.slots[i].offset, d.slots[j].offset), cmp.Compare(i, j))
	})
	var bands []band
	for _, i := range order {
		s := &d.slots[i]
		if n := len(bands); n == 0 || s.offset >= bands[n-1].high {
			bands = append(bands, band{low: s.offset, high: s.offset})
		}
		b := &bands[len(bands)-1]
		b.slots = append(b.slots, i)
		b.high = max(b.high, s.offset+s.size)
	}
	for i := range bands {
		bands[i].describe(d, phase)
	}
	return bands
}

// describe fills in what is known of a band once its ends are.
func (b *band) describe(d *draft, phase []int32) {
	b.first, b.last = b.high-b.low, b.high-b.low
	seen := map[int32]bool{}
	for _, i := range b.slots {
		seen[phase[i]] = true
		if s := &d.slots[i]; s.is(keptSlots) {
			b.kept = true
			b.first = min(b.first, s.offset-b.low)
			b.last = min(b.last, b.high-(s.offset+s.size))
		}
	}
	b.phases = len(seen)
}

// keptTop is the end of the highest slot that is kept.
func (d *draft) keptTop() packing.Bytes { return topOf(d.slots, keptSlots) }

// sortedKeptTop is where keptTop is once the bands are sorted.
func (d *draft) sortedKeptTop() packing.Bytes {
	sorted := d.clone()
	sorted.sortBands()
	return sorted.keptTop()
}

// keptBytes is the bytes of the slots that are kept, each cell counted once.
func (d *draft) keptBytes() packing.Bytes {
	var sum packing.Bytes
	for i := range d.slots {
		if s := &d.slots[i]; s.is(planfile.SlotResident) {
			sum += s.size
		}
	}
	for _, size := range d.cells {
		sum += size
	}
	return sum
}

// leastVaries is how large a slot is, in bytes, whose place follows the sizes of a run (SP_KEY_LEAST of
// runtime/cuda/match_laws.h).
const leastVaries = 256 << 10

// varies says whether the passes ask for different sizes of a slot that may lie elsewhere in each.
func (d *draft) varies() bool {
	return slices.ContainsFunc(d.slots, func(s slot) bool {
		return s.requested > s.least && s.requested > leastVaries && !s.is(keptSlots)
	})
}
