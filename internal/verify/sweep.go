package verify

import (
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// owners has the last owner of every byte of the arena. Only the offsets at which slots
// begin or end matter: the cuts. A piece of the arena with one owner runs from one member
// of starts to the next.
//
// A call of take adds at most two pieces and removes those it covers, so n calls cost
// O(n log n), including the sorting of the cuts.
type owners struct {
	cuts   []uint64   // offsets, ascending
	starts *positions // the cuts at which pieces start, as indices of cuts
	owner  []int      // by index of the cut that its piece starts at; none without an owner
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

// take gives [offset, offset+size) to a new owner. It appends to had the pieces that had
// an owner before.
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
