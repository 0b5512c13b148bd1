package verify

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stplan/stplan/internal/planfile"
)

// owners remembers for every byte of the arena which slot had it last. Only
// the offsets where slots begin or end matter: the cuts. A piece of the arena
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

// take gives [offset, offset+size) to a slot, and appends to had the pieces
// that had another owner before.
func (o *owners) take(slot int, offset, size uint64, had []piece) []piece {
	low, _ := slices.BinarySearch(o.cuts, offset)
	high, _ := slices.BinarySearch(o.cuts, offset+size)
	for k := o.starts.at(low); ; {
		next := o.starts.after(k, len(o.cuts))
		owner := o.owner[k]
		if owner != none {
			had = append(had, piece{owner, o.cuts[max(k, low)], o.cuts[min(next, high)]})
		}
		if k > low {
			o.starts.remove(k)
		}
		if next >= high {
			if next > high { // the rest of the last piece keeps its owner
				o.starts.insert(high)
				o.owner[high] = owner
			}
			break
		}
		k = next
	}
	o.starts.insert(low)
	o.owner[low] = slot
	return had
}

// reuses gives every slot its bytes in the order of the starts, and looks at
// who had them before. An owner that still lives is an overlap. Of any two
// slots that overlap in time and address at least one such pair is found: the
// later of the two meets the earlier one itself, or one that met it.
func (j *judge) reuses(progress func(slots int)) {
	const report = 1 << 16
	o := newOwners(j.d)
	waits := j.d.Waits
	var had []piece
	for i := range j.d.Slots {
		s := &j.d.Slots[i]
		had = o.take(i, s.Offset, s.Size, had[:0])
		slices.SortFunc(had, func(a, b piece) int {
			return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.from, b.from))
		})
		had = slices.CompactFunc(had, func(a, b piece) bool { return a.owner == b.owner })
		n := 0
		for n < len(waits) && int(waits[n].Later) == i {
			n++
		}
		j.waits(i, j.ended(i, had), waits[:n])
		waits = waits[n:]
		if (i+1)%report == 0 {
			progress(i + 1)
		}
	}
}

// ended reports the owners that still live when slot i starts and keeps the
// others, from whom it may take over.
func (j *judge) ended(i int, had []piece) []piece {
	kept := had[:0]
	for _, h := range had {
		if j.d.SlotEnd(h.owner) <= j.d.Slots[i].Start {
			kept = append(kept, h)
			continue
		}
		j.violated(RuleOverlap, h.owner, i, "%s and %s are both live at %d and share bytes [%d, %d)",
			j.slot(h.owner), j.slot(i), j.d.Slots[i].Start, h.from, h.to)
	}
	return kept
}

// waits compares the reuses of slot i, by earlier owner, with the waits that
// are listed for it, in the same order.
func (j *judge) waits(i int, reused []piece, listed []planfile.Wait) {
	for len(reused) > 0 || len(listed) > 0 {
		switch {
		case len(listed) == 0 || len(reused) > 0 && reused[0].owner < int(listed[0].Earlier):
			if kind := j.kind(reused[0].owner, i); kind != 0 {
				j.violated(RuleWait, reused[0].owner, i, "%s takes over bytes [%d, %d) of %s without a wait, expected one that is %s",
					j.slot(i), reused[0].from, reused[0].to, j.slot(reused[0].owner), kinds(kind))
			}
			reused = reused[1:]
		case len(reused) == 0 || int(listed[0].Earlier) < reused[0].owner:
			e := int(listed[0].Earlier)
			j.violated(RuleWait, e, i, "%s waits for %s, but is not the next owner of any of its bytes", j.slot(i), j.slot(e))
			listed = listed[1:]
		default:
			e := reused[0].owner
			if kind := j.kind(e, i); kind != listed[0].Kind {
				j.violated(RuleWait, e, i, "the wait of %s for %s is %s, expected %s", j.slot(i), j.slot(e), kinds(listed[0].Kind), kinds(kind))
			}
			reused, listed = reused[1:], listed[1:]
		}
	}
}

// kind says what kind of wait slot later needs to take over from slot earlier:
// 0 if the order of their stream is enough.
func (j *judge) kind(earlier, later int) (kind planfile.WaitKind) {
	e, l := &j.d.Slots[earlier], &j.d.Slots[later]
	if j.d.Streams[e.Stream] != j.d.Streams[l.Stream] {
		kind |= planfile.WaitCrossStream
	}
	if e.CompletedEnd > l.Start {
		kind |= planfile.WaitPending
	}
	return kind
}

func kinds(k planfile.WaitKind) string {
	var names []string
	if k&planfile.WaitCrossStream != 0 {
		names = append(names, "cross-stream")
	}
	if k&planfile.WaitPending != 0 {
		names = append(names, "pending")
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " and ")
}
