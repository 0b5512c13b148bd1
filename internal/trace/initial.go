package trace

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// Sizes that the native allocator is built on, in bytes.
const (
	minBlock     Bytes = 512      // sizes of blocks are multiples of it
	smallLimit   Bytes = 1 << 20  // the largest request that small segments serve
	smallSegment Bytes = 2 << 20  // small segments have this size
	largeGranule Bytes = 20 << 20 // large expandable segments grow by multiples of it
)

// pastBlock is a block that was live before the first entry.
type pastBlock struct {
	Block
	// touched is the first entry that names it. It is len(Events) if none does:
	// then the block is still there at the end, and Final has its size.
	touched int
}

// inferInitial reconstructs the state in which a recording began, from the blocks that
// it frees without an alloc and from those that are there at its end and that no entry
// names. guessed counts the blocks and ranges about which something is assumed: the
// extent of a block that was freed, the pool of a segment that was released.
func inferInitial(d *Device, p *past, s *Settings) (initial []Segment, guessed int) {
	memory := newPastMemory(d)
	l := layout{d: d, settings: s, ranges: memory.ranges()}
	l.place(pastBlocks(d, p, memory))
	for i := range l.placed {
		if l.placed[i].touched < len(d.Events) {
			guessed++
		}
	}
	for i := range l.ranges {
		if l.ranges[i].from != fromFinal {
			guessed++
		}
	}
	return l.segments(), guessed
}

// past is what the events of a device tell about the time before them.
type past struct {
	named *numbering // the addresses of allocs and frees
	slots []int32    // by entry, for allocs and frees: the number of its address
	frees []int      // the entries that free an address that no earlier entry names
}

func (p *past) names(address uint64) bool { return p.named.find(address) != None }

func pastOf(events []Event) *past {
	p := &past{named: newNumbering(0), slots: make([]int32, len(events))}
	for i := range events {
		e := &events[i]
		if !e.pairs() {
			continue
		}
		slot, known := p.named.number(e.Addr)
		p.slots[i] = slot
		if !known && e.Action != ActionAlloc {
			p.frees = append(p.frees, i)
		}
	}
	return p
}

// pastBlocks returns the blocks that were live before the first entry, by
// address and without overlaps.
func pastBlocks(d *Device, p *past, memory *pastMemory) []pastBlock {
	var blocks []pastBlock
	for _, i := range p.frees {
		e := &d.Events[i]
		b := Block{Address: e.Addr, Requested: e.Size, State: BlockAllocated, Stack: None}
		if e.Action == ActionFreeCompleted {
			b.State = BlockPendingFree
		}
		blocks = append(blocks, pastBlock{b, i})
	}
	for _, s := range d.Final {
		for _, b := range s.Blocks {
			if !p.names(b.Address) && b.State != BlockInactive {
				blocks = append(blocks, pastBlock{b, len(d.Events)})
			}
		}
	}
	blocks = slices.DeleteFunc(blocks, func(b pastBlock) bool { return memory.newBefore(b.Address, b.touched) })
	slices.SortFunc(blocks, func(a, b pastBlock) int { return cmp.Compare(a.Address, b.Address) })
	return withoutOverlaps(blocks, len(d.Events))
}

// withoutOverlaps resolves contradictions between blocks that overlap; a recording
// without its alloc entries has many. A block that is still there at the end wins over
// others, then the block that was freed first: those that overlap it came later. never
// is the touched of blocks that are still there at the end.
func withoutOverlaps(blocks []pastBlock, never int) []pastBlock {
	stronger := func(a, b pastBlock) bool {
		return a.touched == never || b.touched != never && a.touched < b.touched
	}
	kept := blocks[:0]
	for _, b := range blocks {
		for len(kept) > 0 && kept[len(kept)-1].end() > b.Address && stronger(b, kept[len(kept)-1]) {
			kept = kept[:len(kept)-1]
		}
		if len(kept) == 0 || kept[len(kept)-1].end() <= b.Address {
			kept = append(kept, b)
		}
	}
	return kept
}

// end is the first address that is certainly not part of the block.
func (b *pastBlock) end() uint64 {
	end, carry := bits.Add64(b.Address, uint64(max(b.Size, b.Requested, 1)), 0)
	if carry != 0 {
		return ^uint64(0)
	}
	return end
}

// pastRange is a range of memory that the allocator had before the first entry.
type pastRange struct {
	Segment
	from      int  // the entry that names it, or fromFinal
	knownPool bool // Pool is recorded
}

const fromFinal = -1

func (r *pastRange) end() uint64 { return r.Address + uint64(r.Size) }

// pastMemory knows which memory the allocator had before the first entry. For each
// piece of the address space, the earliest entry decides: if it takes the piece from
// the driver, the allocator did not have it before; if it gives the piece back, the
// allocator had it. A piece that no entry names was there if it is in Final.
type pastMemory struct {
	claims  []segmentClaim
	painter *painter
}

// segmentClaim says whether a range of memory was there before the first entry (old).
type segmentClaim struct {
	pastRange
	old bool
}

func newPastMemory(d *Device) *pastMemory {
	claims := segmentClaims(d)
	p := newPainter(claims)
	for i := range claims {
		p.paint(claims[i].Address, claims[i].end(), int32(i))
	}
	return &pastMemory{claims, p}
}

// segmentClaims lists the segment events in order, then Final, without those that
// validate will refuse.
func segmentClaims(d *Device) []segmentClaim {
	var claims []segmentClaim
	for i := range d.Events {
		e := &d.Events[i]
		if e.Action >= ActionSegmentAlloc && e.Action <= ActionSegmentUnmap && sane(e.Addr, e.Size) {
			old := e.Action == ActionSegmentFree || e.Action == ActionSegmentUnmap
			claims = append(claims, segmentClaim{rangeOf(d, i, e.Size), old})
		}
	}
	for _, s := range d.Final {
		if sane(s.Address, s.Size) {
			claims = append(claims, segmentClaim{pastRange{s, fromFinal, true}, true})
		}
	}
	return claims
}

// rangeOf describes the memory at the address of entry i, as the entry tells it.
func rangeOf(d *Device, i int, size Bytes) pastRange {
	e := &d.Events[i]
	s := Segment{Address: e.Addr, Size: size, Stream: e.Stream, Small: size <= smallSegment,
		Expandable: e.Action == ActionSegmentMap || e.Action == ActionSegmentUnmap}
	if e.Pool >= 0 {
		s.Pool = d.Pools[e.Pool]
	}
	return pastRange{s, i, e.Pool >= 0}
}

// ranges lists the memory that was there before the first entry, by address.
func (m *pastMemory) ranges() []pastRange {
	var ranges []pastRange
	m.painter.each(func(lo, hi uint64, owner int32) {
		if !m.claims[owner].old {
			return
		}
		r := m.claims[owner].pastRange
		r.Address, r.Size = lo, Bytes(hi-lo)
		if n := len(ranges); n == 0 || !join(&ranges[n-1], &r) {
			ranges = append(ranges, r)
		}
	})
	return ranges
}

// newBefore reports whether the memory at an address was first taken from the driver
// by an entry before the given one. Then no block can have been there at the start.
func (m *pastMemory) newBefore(address uint64, entry int) bool {
	owner := m.painter.at(address)
	return owner != None && !m.claims[owner].old && m.claims[owner].from < entry
}

// untouched reports whether an address is in Final, and no entry takes its memory from
// the driver or gives it back.
func (m *pastMemory) untouched(address uint64) bool {
	owner := m.painter.at(address)
	return owner != None && m.claims[owner].from == fromFinal
}

func sane(address uint64, size Bytes) bool {
	return size > 0 && size <= maxSize && !overflows(address, size)
}

// join extends a by its neighbour b if both belong to one expandable segment. That
// happens to pieces that are unmapped one by one, or beside a piece that stays mapped.
func join(a, b *pastRange) bool {
	separate := a.end() != b.Address || !a.Expandable || !b.Expandable || a.Stream != b.Stream ||
		a.knownPool && b.knownPool && a.Pool != b.Pool ||
		a.from == fromFinal && b.from == fromFinal
	if separate {
		return false
	}
	if b.from == fromFinal {
		a.Small, a.from = b.Small, fromFinal
	}
	if b.knownPool {
		a.Pool, a.knownPool = b.Pool, true
	}
	a.Size += b.Size
	return true
}

// painter divides the address space at the ends of ranges, and remembers for each
// piece the first owner that painted it.
type painter struct {
	cuts  []uint64
	owner []int32 // of the piece that starts at a cut, or None if it is bare
	next  []int32 // by piece: itself if it is bare, else a later piece; no bare piece lies between
}

func newPainter(claims []segmentClaim) *painter {
	p := &painter{}
	for i := range claims {
		p.cuts = append(p.cuts, claims[i].Address, claims[i].end())
	}
	slices.Sort(p.cuts)
	p.cuts = slices.Compact(p.cuts)
	p.owner = make([]int32, len(p.cuts))
	p.next = make([]int32, len(p.cuts))
	for i := range p.cuts {
		p.owner[i], p.next[i] = None, int32(i)
	}
	return p
}

// paint gives the bare pieces of [lo, hi) to an owner. Its time is proportional to
// their number: pieces that have an owner are skipped.
func (p *painter) paint(lo, hi uint64, owner int32) {
	first, _ := slices.BinarySearch(p.cuts, lo)
	for i := p.bare(int32(first)); p.cuts[i] < hi; i = p.bare(i) {
		p.owner[i] = owner
		p.next[i] = i + 1
	}
}

// bare returns the first bare piece from i on, and shortens the paths of next as
// union-find does. The piece after the last cut is always bare.
func (p *painter) bare(i int32) int32 {
	for p.next[i] != i {
		p.next[i] = p.next[p.next[i]]
		i = p.next[i]
	}
	return i
}

// at returns the owner of an address, or None.
func (p *painter) at(address uint64) int32 {
	i := sort.Search(len(p.cuts), func(i int) bool { return p.cuts[i] > address }) - 1
	if i < 0 {
		return None
	}
	return p.owner[i]
}

// each visits the painted pieces. Neighbours with one owner are visited as one.
func (p *painter) each(visit func(lo, hi uint64, owner int32)) {
	for i := 0; i < len(p.cuts); {
		j := i + 1
		for j < len(p.cuts) && p.owner[j] == p.owner[i] {
			j++
		}
		if p.owner[i] != None {
			visit(p.cuts[i], p.cuts[j], p.owner[i])
		}
		i = j
	}
}

// layout places blocks in ranges.
type layout struct {
	d        *Device
	settings *Settings
	ranges   []pastRange
	placed   []placedBlock
}

// placedBlock is a block in its range.
type placedBlock struct {
	pastBlock
	inside int   // index of its range
	room   Bytes // from its address to the next block, or to the end of its range
	split  bool  // a part of the room was allocated to others while the block lived
}

// place finds the range of every block. A block outside of all ranges gets a range of
// its own; there are such blocks if segment entries were not recorded.
func (l *layout) place(blocks []pastBlock) {
	l.addOrphans(blocks)
	r := 0
	for i, b := range blocks {
		for r < len(l.ranges) && l.ranges[r].end() <= b.Address {
			r++
		}
		if r == len(l.ranges) || l.ranges[r].Address > b.Address {
			continue // validate will refuse the trace
		}
		limit := l.ranges[r].end()
		if i+1 < len(blocks) {
			limit = min(limit, blocks[i+1].Address)
		}
		l.placed = append(l.placed, placedBlock{pastBlock: b, inside: r, room: Bytes(limit - b.Address)})
	}
	l.findSplits()
}

// addOrphans adds a range for each block that is in none.
func (l *layout) addOrphans(blocks []pastBlock) {
	var orphans []pastRange
	r := 0
	for i, b := range blocks {
		for r < len(l.ranges) && l.ranges[r].end() <= b.Address {
			r++
		}
		limit := ^uint64(0)
		if r < len(l.ranges) {
			limit = l.ranges[r].Address
		}
		if limit <= b.Address || b.touched == len(l.d.Events) {
			continue
		}
		if i+1 < len(blocks) {
			limit = min(limit, blocks[i+1].Address)
		}
		size := min(uint64(l.settings.RoundupPower2Divisions.Round(b.Requested)), limit-b.Address)
		if sane(b.Address, Bytes(size)) {
			orphans = append(orphans, rangeOf(l.d, b.touched, Bytes(size)))
		}
	}
	l.ranges = append(l.ranges, orphans...)
	slices.SortFunc(l.ranges, func(a, b pastRange) int { return cmp.Compare(a.Address, b.Address) })
}

// findSplits marks the blocks in whose room memory was allocated while they lived: the
// rest of the room was not part of them.
func (l *layout) findSplits() {
	last := 0
	for i := range l.placed {
		if b := &l.placed[i]; b.Size == 0 {
			last = max(last, b.touched)
		}
	}
	for i := range l.d.Events[:last] {
		e := &l.d.Events[i]
		if e.Action != ActionAlloc {
			continue
		}
		n := sort.Search(len(l.placed), func(k int) bool { return l.placed[k].Address > e.Addr }) - 1
		if n >= 0 {
			b := &l.placed[n]
			inside := e.Addr > b.Address && e.Addr-b.Address < uint64(b.room)
			b.split = b.split || i < b.touched && inside
		}
	}
}

// extent is the size of a block. Final has it if the block is still there at the end.
// Otherwise it is the rounded request, plus the rest of the room if the allocator would
// not have split that off: in large segments that are not expandable, it keeps a rest
// of up to 1 MiB, and any rest if the rounded request is at least max_split_size.
func (l *layout) extent(b *placedBlock) Bytes {
	if b.Size > 0 {
		return min(b.Size, b.room)
	}
	rounded := l.settings.RoundupPower2Divisions.Round(b.Requested)
	if rounded >= b.room {
		return b.room
	}
	r := &l.ranges[b.inside]
	whole := l.settings.Known && l.settings.MaxSplitSize >= 0 && rounded >= l.settings.MaxSplitSize
	if !r.Small && !r.Expandable && !b.split && (whole || b.room-rounded <= smallLimit) {
		return b.room
	}
	return rounded
}

// segments tiles the ranges with their blocks and with free blocks between these.
func (l *layout) segments() []Segment {
	var segments []Segment
	rest := l.placed
	for i := range l.ranges {
		n := 0
		for n < len(rest) && rest[n].inside == i {
			n++
		}
		segments = append(segments, l.tile(&l.ranges[i], rest[:n]))
		rest = rest[n:]
	}
	return segments
}

func (l *layout) tile(r *pastRange, blocks []placedBlock) Segment {
	if r.from != fromFinal && r.Expandable {
		r.Small = smallExpandable(r.Size, blocks)
	}
	s := r.Segment
	s.Blocks = nil
	next := s.Address
	for i := range blocks {
		b := blocks[i].Block
		s.addFree(next, b.Address)
		b.Size = l.extent(&blocks[i])
		b.Requested = min(b.Requested, b.Size)
		s.Blocks = append(s.Blocks, b)
		next = b.Address + uint64(b.Size)
	}
	s.addFree(next, s.Address+uint64(s.Size))
	return s
}

func (s *Segment) addFree(from, to uint64) {
	if from < to {
		s.Blocks = append(s.Blocks, Block{Address: from, Size: Bytes(to - from), Stack: None})
	}
}

// smallExpandable reports whether a released expandable range was in the pool of small
// requests. It was not if it held a large request; without blocks, it was not if its
// size is a multiple of the 20 MiB by which the large pool grows.
func smallExpandable(size Bytes, blocks []placedBlock) bool {
	for i := range blocks {
		if blocks[i].Requested > smallLimit {
			return false
		}
	}
	return len(blocks) > 0 || size%largeGranule != 0
}
