package stalloc

import (
	"cmp"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// item is a tensor to be packed. Its times are lines of the Trace. It lives in [start, end).
type item struct {
	start, end int
	size       trace.Bytes // aligned
	offset     trace.Bytes
}

// packing is STAlloc's packer by its default settings ("split and fuse", with clusters of
// exactly one size), decision by decision, so that its plans are the same to the byte: what
// it wastes and what it overlooks counts. Sizes are packed from the largest down. Those of
// one size first take what is left above shorter-lived tensors in the layers that exist; the
// rest form layers of their own.
type packing struct {
	layers []*layer
	top    trace.Bytes
	// An item of the iteration that is replayed, which starts at begin or later, is there
	// again after period, and that must end by end. STAlloc looks at this only when it forms
	// a layer, and only for other items of the size: an item that lives across the seam
	// can overlap others one iteration later.
	begin, period, end int
}

// layer is a piece of the arena. Its own items all have its size. Smaller ones are stacked
// on whatever is below them.
type layer struct {
	size, offset trace.Bytes
	items        []*item
	busy         []lifetime // of its own items, and when they are there again
	level        skyline    // what of it is taken, by time
}

type lifetime struct{ start, end int }

// pack places the items, which are by start, and returns how much they need. begin and
// period are of the iteration that is replayed; nothing is if begin is after all items.
func pack(items []*item, begin, period int) trace.Bytes {
	p := &packing{begin: begin, period: period}
	bySize := make(map[trace.Bytes][]*item)
	for _, it := range items {
		bySize[it.size] = append(bySize[it.size], it)
		p.end = max(p.end, it.end)
	}
	sizes := make([]trace.Bytes, 0, len(bySize))
	for s := range bySize {
		sizes = append(sizes, s)
	}
	slices.Sort(sizes)
	for _, s := range slices.Backward(sizes) {
		p.place(bySize[s])
	}
	return p.top
}

// place places the items of one size.
func (p *packing) place(same []*item) {
	var queue []*item
	for _, l := range p.form(same) {
		queue = append(queue, l.items...)
	}
	size := same[0].size
	order := p.rehearse(queue, size)
	for _, l := range p.layers {
		for n, i := range order {
			if i < 0 {
				continue
			}
			if level, ok := l.level.stack(queue[i], l.size); ok {
				queue[i].offset = l.offset + level
				order[n] = -1
			}
		}
	}
	var rest []*item
	for _, i := range order {
		if i >= 0 {
			rest = append(rest, queue[i])
		}
	}
	slices.SortFunc(rest, func(a, b *item) int { return cmp.Compare(a.start, b.start) })
	for _, l := range p.form(rest) {
		l.offset = p.top
		p.top += l.size
		for _, it := range l.items {
			it.offset = l.offset
			l.level.set(it.start-1, it.end-1, it.size)
		}
		p.layers = append(p.layers, l)
	}
}

// rehearsals is how often STAlloc tries an order before it takes the last one: it stops
// after five that are no better than the one before, and as it measures all items and not
// those left over, none is ever better.
const rehearsals = 6

// rehearse is the order in which the items of queue, by index, are stacked into the layers.
// Each attempt moves what it could not place to the front. It means to: it moves the items
// whose index is the place in the order of one that found none.
func (p *packing) rehearse(queue []*item, size trace.Bytes) []int {
	order := make([]int, len(queue))
	for i := range order {
		order[i] = i
	}
	var level skyline
	for range rehearsals {
		placed := make([]bool, len(order))
		for _, l := range p.layers {
			level = append(level[:0], l.level...)
			for n, i := range order {
				if _, ok := level.stack(queue[i], l.size); ok {
					placed[n] = true
				}
			}
		}
		next := make([]int, 0, len(order))
		for n := range order {
			if !placed[n] {
				next = append(next, n)
			}
		}
		for _, i := range order {
			if placed[i] {
				next = append(next, i)
			}
		}
		if slices.Equal(next, order) {
			break // and so would be all that follow
		}
		order = next
	}
	return order
}

// form puts items of one size into layers: each into the one whose last item ended last, of
// those in which it fits.
func (p *packing) form(items []*item) (layers []*layer) {
	var ends []int // by layer: of its last item
	var free []int
	for _, it := range items {
		free = free[:0]
		for i, end := range ends {
			if end <= it.start {
				free = append(free, i)
			}
		}
		slices.SortStableFunc(free, func(a, b int) int { return cmp.Compare(ends[b], ends[a]) })
		at := slices.IndexFunc(free, func(i int) bool { return !layers[i].overlaps(it) })
		if at < 0 {
			layers, ends = append(layers, &layer{size: it.size}), append(ends, 0)
			at = len(layers) - 1
		} else {
			at = free[at]
		}
		l := layers[at]
		l.items = append(l.items, it)
		l.busy = append(l.busy, lifetime{it.start, it.end})
		if it.start >= p.begin && it.start+p.period <= p.end {
			l.busy = append(l.busy, lifetime{it.start + p.period, min(it.end+p.period, p.end)})
		}
		ends[at] = it.end
	}
	return layers
}

// overlaps looks at busy, which is not in order, as if it were, as STAlloc does: it ends at
// the first lifetime that begins later.
func (l *layer) overlaps(it *item) bool {
	for _, b := range l.busy {
		if b.end <= it.start {
			continue
		}
		return it.end > b.start
	}
	return false
}

// skyline is a height at each time: steps that begin at a time and last until the next. It
// is 0 before the first.
type skyline []step

type step struct {
	at     int
	height trace.Bytes
}

// find is the index of the step that at is in, -1 before the first.
func (s skyline) find(at int) int {
	return sort.Search(len(s), func(i int) bool { return s[i].at > at }) - 1
}

// highest is the greatest height in [from, to], both included.
func (s skyline) highest(from, to int) (h trace.Bytes) {
	for i := s.find(from); i < len(s) && (i < 0 || s[i].at <= to); i++ {
		if i >= 0 {
			h = max(h, s[i].height)
		}
	}
	return h
}

// set makes the height h in [from, to], both included.
func (s *skyline) set(from, to int, h trace.Bytes) {
	if from < 0 {
		return // what STAlloc's code does with an item that starts at the first line
	}
	i, after := s.find(from), s.find(to+1)
	next := trace.Bytes(0) // the height behind to
	if after >= 0 {
		next = (*s)[after].height
	}
	if i >= 0 && (*s)[i].at == from {
		i--
	}
	*s = slices.Replace(*s, i+1, after+1, step{from, h}, step{to + 1, next})
}

// stack puts an item on top of what is there while it lives, if that leaves it below limit.
// STAlloc counts its last line as part of its life here.
func (s *skyline) stack(it *item, limit trace.Bytes) (level trace.Bytes, ok bool) {
	if it.size > limit {
		return 0, false
	}
	level = s.highest(it.start, it.end)
	if level+it.size > limit {
		return 0, false
	}
	s.set(it.start, it.end, level+it.size)
	return level, true
}
