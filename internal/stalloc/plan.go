package stalloc

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// item is a request to be packed, live in [start, end).
type item struct {
	start, end trace.Time
	size       trace.Bytes
	offset     trace.Bytes
	line       *line
}

func (i *item) at() span { return span{i.offset, i.offset + i.size} }

// pack places everything and returns the size of the arena. Residents lie end to end. The
// others are packed above them in both ways, as STAlloc's autotune tries several, and the
// smaller is kept.
func (p *program) pack() trace.Bytes {
	for _, l := range p.residents {
		l.offset = p.resident
		p.resident += l.size
	}
	slices.SortStableFunc(p.items, func(a, b item) int { return cmp.Compare(a.start, b.start) })
	best := newPacker(p.items, true)
	if best.top > maxLoad(p.items) {
		if free := newPacker(p.items, false); free.top < best.top {
			best = free
		}
	}
	for i := range best.items {
		it := &best.items[i]
		it.line.offset = p.resident + it.offset
	}
	return p.resident + best.top
}

// maxLoad is the most bytes that live at once, which no packing is below.
func maxLoad(items []item) (most trace.Bytes) {
	type change struct {
		at trace.Time
		by trace.Bytes
	}
	var changes []change
	for _, it := range items {
		changes = append(changes, change{it.start, it.size}, change{it.end, -it.size})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	load := trace.Bytes(0)
	for _, c := range changes {
		load += c.by
		most = max(most, load)
	}
	return most
}

// packer places items, the largest first, each at the lowest offset at which nothing is
// that lives at the same time. In layers, no item crosses a border between two layers, and
// one that fits into none begins a layer of its size: STAlloc lays out items of one size
// together, and fills what they leave with smaller ones.
type packer struct {
	items   []item // by start
	until   []int  // by item: the first item that starts at its end or later
	placed  []bool
	tree    [][]int32 // placed items, by the nodes of a segment tree over the items
	leaves  int
	layered bool
	borders []trace.Bytes // of the layers, ascending, the top one last
	top     trace.Bytes
	near    []span // scratch: where the placed items are that live with the one to be placed
}

func newPacker(items []item, layered bool) *packer {
	k := &packer{items: slices.Clone(items), until: make([]int, len(items)), placed: make([]bool, len(items)), layered: layered, leaves: 1}
	for k.leaves < len(items) {
		k.leaves *= 2
	}
	k.tree = make([][]int32, 2*k.leaves)
	order := make([]int32, len(items))
	for i := range items {
		order[i] = int32(i)
		end := items[i].end
		k.until[i], _ = slices.BinarySearchFunc(items, end, func(o item, end trace.Time) int { return cmp.Compare(o.start, end) })
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(items[b].size, items[a].size) })
	for _, i := range order {
		k.place(i)
	}
	return k
}

func (k *packer) place(i int32) {
	it := &k.items[i]
	k.neighbours(int(i))
	at := trace.Bytes(0)
	for _, o := range k.near {
		if o.high > at {
			if at = k.within(at, it.size); at+it.size <= o.low {
				break
			}
			at = max(at, o.high)
		}
	}
	it.offset = k.within(at, it.size)
	if end := it.offset + it.size; end > k.top {
		k.top = end
		k.borders = append(k.borders, end)
	}
	k.insert(int(i))
}

// within is the first offset from at on at which size bytes cross no border, or the top.
func (k *packer) within(at, size trace.Bytes) trace.Bytes {
	if !k.layered {
		return at
	}
	i, _ := slices.BinarySearch(k.borders, at+1)
	for ; i < len(k.borders) && at+size > k.borders[i]; i++ {
		at = k.borders[i]
	}
	return at
}

// neighbours finds the placed items that live at the same time as item i, by offset: those
// that live when it starts, and those that start while it lives.
func (k *packer) neighbours(i int) {
	k.near = k.near[:0]
	for n := k.leaves + i; n > 0; n /= 2 {
		for _, j := range k.tree[n] {
			k.near = append(k.near, k.items[j].at())
		}
	}
	for j := i + 1; j < k.until[i]; j++ {
		if k.placed[j] {
			k.near = append(k.near, k.items[j].at())
		}
	}
	slices.SortFunc(k.near, func(a, b span) int { return cmp.Compare(a.low, b.low) })
}

// insert lists item i in the nodes that cover [i, until).
func (k *packer) insert(i int) {
	k.placed[i] = true
	for low, high := k.leaves+i, k.leaves+max(k.until[i], i+1); low < high; low, high = low/2, high/2 {
		if low&1 == 1 {
			k.tree[low] = append(k.tree[low], int32(i))
			low++
		}
		if high&1 == 1 {
			high--
			k.tree[high] = append(k.tree[high], int32(i))
		}
	}
}
