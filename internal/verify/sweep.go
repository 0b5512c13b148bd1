package verify

import (
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// owners remembers for every byte of the arena who had it last. Only the
// offsets where slots begin or end matter: the cuts. A piece of the arena
// with one owner runs from one member of starts to the next.
//
// Every take-over adds two pieces at most and removes those it covers, so n of
// them cost O(n log n), the sorting of the cuts included.
type owners struct {
	cuts   []uint64 // offsets, ascending
	starts *positions
	owner  []int // owner[k]: of the piece that starts at cut k, none if nobody's
}

func newOwners(d *planfile.Device) *owners {
	cuts := make([]uint64, 1, 2*len(d.Slots)+1)
	for i := range d.Slots {
		cuts = append(cuts, d.Slots[i].Offset, d.Slots[i].Offset+d.Slots[i].Size)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	o := &owners{cuts: cuts, starts: newPositions(len(cuts)), owner: make([]int, len(cuts))}
	o.starts.insert(0)
	o.owner[0] = none
	return o
}

// piece is a range of bytes [from, to) that had one owner.
type piece struct {
	owner    int
	from, to uint64
}

func (o *owners) clone() *owners {
	return &owners{o.cuts, o.starts.clone(), slices.Clone(o.owner)}
}

// take gives [offset, offset+size) to a new owner, and appends to had the pieces
// that had another one before.
func (o *owners) take(owner int, offset, size uint64, had []piece) []piece {
	low, _ := slices.BinarySearch(o.cuts, offset)
	high, _ := slices.BinarySearch(o.cuts, offset+size)
	for k := o.starts.at(low); ; {
		next := o.starts.after(k, len(o.cuts))
		before := o.owner[k]
		if before != none {
			had = append(had, piece{before, o.cuts[max(k, low)], o.cuts[min(next, high)]})
		}
		if k > low {
			o.starts.remove(k)
		}
		if next >= high {
			if next > high { // the rest of the last piece keeps its owner
				o.starts.insert(high)
				o.owner[high] = before
			}
			break
		}
		k = next
	}
	o.starts.insert(low)
	o.owner[low] = owner
	return had
}
