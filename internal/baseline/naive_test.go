package baseline

import (
	"cmp"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// naive is PyTorch's caching allocator written again from its specification, as a
// reference. Regions are slices of pieces, every search is a linear scan, and nothing
// is kept in order. It shares only Config, Usage and the driver with caching.
type naive struct {
	c        Config
	driver   driver
	watch    func(segmentEvent)
	regions  []*naiveRegion
	now      Usage
	searches map[naiveHalf]int
	waiting  []int32
	pools    []trace.PoolID // private ones, by first use
	unused   []trace.PoolID
	// completed is called for each free that emptyCache waits for.
	completed func(buffer int32)
}

type naiveHalf struct {
	pool  trace.PoolID
	small bool
}

type naiveRegion struct {
	addr       uint64
	stream     uint64
	half       naiveHalf
	expandable bool
	pieces     []naivePiece
}

type naivePiece struct {
	size  trace.Bytes
	state byte // 'f'ree, 'u'sed, 'w'aiting, unmapped '-'
	owner int32
	age   int
}

// place is a piece of a region, found by a scan.
type place struct {
	region *naiveRegion
	index  int
	addr   uint64
	size   trace.Bytes
}

func newNaive(c Config, d driver, watch func(segmentEvent)) *naive {
	return &naive{c: c, driver: d, watch: watch, searches: make(map[naiveHalf]int), completed: func(int32) {}}
}

func (n *naive) usage() Usage { return n.now }

func (n *naive) places(keep func(place, naivePiece) bool) []place {
	var all []place
	for _, r := range n.regions {
		addr := r.addr
		for i, p := range r.pieces {
			if at := (place{r, i, addr, p.size}); keep(at, p) {
				all = append(all, at)
			}
			addr += uint64(p.size)
		}
	}
	return all
}

func (n *naive) freePlaces(h naiveHalf) []place {
	free := n.places(func(at place, p naivePiece) bool { return p.state == 'f' && at.region.half == h })
	slices.SortFunc(free, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.region.stream, b.region.stream), cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr))
	})
	return free
}

func (n *naive) large() trace.Bytes {
	if n.c.LargeSegmentSize > 0 {
		return n.c.LargeSegmentSize
	}
	return 20 << 20
}

func (n *naive) maxSplit() trace.Bytes {
	if n.c.MaxSplitSize > 0 {
		return n.c.MaxSplitSize
	}
	return math.MaxInt64
}

func (n *naive) nonSplit() trace.Bytes {
	if n.c.MaxNonSplitRounding > 0 {
		return n.c.MaxNonSplitRounding
	}
	return n.large()
}

func (n *naive) allowed() (trace.Bytes, bool) {
	if n.c.MemoryFraction == 0 || n.c.MemoryFraction == 1 {
		return 0, false
	}
	return trace.Bytes(math.Floor(n.c.MemoryFraction * float64(n.c.DeviceMemory))), true
}

func (n *naive) capacity() trace.Bytes {
	switch {
	case n.c.UsableMemory > 0:
		return n.c.UsableMemory
	case n.c.DeviceMemory > 0:
		return n.c.DeviceMemory
	}
	return 1 << 56
}

// roundNaive tries sizes upwards until one is a rounded size: powers of two and
// the steps between them, or multiples of 512.
func (n *naive) roundNaive(r trace.Bytes) trace.Bytes {
	if r < 512 {
		return 512
	}
	i := 0
	for i < 15 && r >= 1<<(21+i) {
		i++
	}
	d := trace.Bytes(n.c.Divisions[i])
	if d > 1 && r > 512*d {
		floor := trace.Bytes(1)
		for floor*2 <= r {
			floor *= 2
		}
		for s := floor; ; s += floor / d {
			if s >= r {
				return s
			}
		}
	}
	return (r + 511) / 512 * 512
}

func (n *naive) alloc(buffer int32, q Request) (uint64, bool) {
	s := n.roundNaive(q.Size)
	h := naiveHalf{q.Pool, s <= 1<<20}
	if q.Pool != (trace.PoolID{}) && !slices.Contains(n.pools, q.Pool) {
		n.pools = append(n.pools, q.Pool)
	}
	seg := n.large()
	if h.small {
		seg = 2 << 20
	} else if s >= 10<<20 {
		seg = (s + 2<<20 - 1) / (2 << 20) * (2 << 20)
	}
	limit, capped := n.allowed()
	collecting := capped && n.c.GCThreshold > 0
	if collecting {
		n.searches[h]++
	}
	at, ok := n.find(h, q.Stream, s)
	if !ok && collecting {
		n.collect(limit)
	}
	grow := func() {
		if capped && n.now.Reserved+seg > limit {
			return
		}
		if n.c.Expandable {
			at, ok = n.expand(h, q.Stream, s)
		} else {
			at, ok = n.take(h, q.Stream, seg)
		}
	}
	if !ok {
		grow()
	}
	if !ok && n.releaseSome(h, q.Stream, s) {
		grow()
	}
	if !ok {
		n.emptyCache(nil)
		grow()
	}
	if !ok {
		return 0, false
	}
	rest := at.size - s
	var split bool
	if h.small || n.c.Expandable {
		split = rest >= 512
	} else {
		split = s < n.maxSplit() && rest > 1<<20
	}
	used := naivePiece{size: at.size, state: 'u', owner: buffer}
	if split {
		used.size = s
		tail := naivePiece{size: rest, state: 'f', age: n.searches[h]}
		at.region.pieces = slices.Replace(at.region.pieces, at.index, at.index+1, used, tail)
	} else {
		at.region.pieces[at.index] = used
	}
	n.now.Allocated += used.size
	n.now.Active += used.size
	return at.addr, true
}

func (n *naive) find(h naiveHalf, stream uint64, s trace.Bytes) (place, bool) {
	free := slices.DeleteFunc(n.freePlaces(h), func(p place) bool { return p.region.stream != stream || p.size < s })
	if !n.c.Expandable && len(free) > 0 && free[0].region.expandable {
		for len(free) > 0 && free[0].region.expandable {
			free = free[1:]
		}
	}
	if len(free) == 0 {
		return place{}, false
	}
	best := free[0]
	reach := func(p place) trace.Bytes {
		if p.index+1 < len(p.region.pieces) && p.region.pieces[p.index+1].state == '-' {
			return p.size + p.region.pieces[p.index+1].size
		}
		return p.size
	}
	for _, p := range free[1:] {
		if !best.region.expandable || reach(p) >= reach(best) {
			break
		}
		best = p
	}
	if s < n.maxSplit() && best.size >= n.maxSplit() || s >= n.maxSplit() && best.size >= s+n.nonSplit() {
		return place{}, false
	}
	return best, true
}

func (n *naive) take(h naiveHalf, stream uint64, seg trace.Bytes) (place, bool) {
	if n.now.Reserved+seg > n.capacity() {
		return place{}, false
	}
	addr, ok := n.driver.segment(seg)
	if !ok {
		return place{}, false
	}
	r := &naiveRegion{addr: addr, stream: stream, half: h, pieces: []naivePiece{{size: seg, state: 'f', age: n.searches[h]}}}
	n.regions = append(n.regions, r)
	n.now.Reserved += seg
	n.watch(segmentEvent{trace.ActionSegmentAlloc, addr, seg, stream})
	return place{r, 0, addr, seg}, true
}

func (n *naive) page(h naiveHalf) trace.Bytes {
	if h.small {
		return 2 << 20
	}
	return n.large()
}

func (n *naive) expand(h naiveHalf, stream uint64, s trace.Bytes) (place, bool) {
	start, ok := n.room(h, stream, s)
	if !ok {
		page := n.page(h)
		va := trace.Bytes(1 << 48)
		if n.c.DeviceMemory > 0 {
			va = n.c.DeviceMemory * 9 / 8
		}
		va = (va + page - 1) / page * page
		addr, ok := n.driver.reserve(va)
		if !ok {
			return place{}, false
		}
		r := &naiveRegion{addr: addr, stream: stream, half: h, expandable: true, pieces: []naivePiece{{size: va, state: '-'}}}
		n.regions = append(n.regions, r)
		start = place{r, 0, addr, va}
	}
	r := start.region
	for {
		// Map unmapped parts of the idle run from start until the free piece at
		// start is large enough.
		i := r.indexOf(start.addr)
		p := r.pieces[i]
		if p.state == 'f' && p.size >= s {
			return place{r, i, start.addr, p.size}, true
		}
		need, hole := min(s, p.size), i
		if p.state == 'f' {
			hole = i + 1
			if hole == len(r.pieces) {
				return place{}, false
			}
			need = min(s-p.size, r.pieces[hole].size)
		}
		if !n.mapPages(r, hole, need) {
			return place{}, false
		}
	}
}

// room is the lowest idle run with unmapped space in it that can hold s.
func (n *naive) room(h naiveHalf, stream uint64, s trace.Bytes) (place, bool) {
	holes := n.places(func(at place, p naivePiece) bool {
		return p.state == '-' && at.region.half == h && at.region.stream == stream
	})
	slices.SortFunc(holes, func(a, b place) int { return cmp.Compare(a.addr, b.addr) })
	for _, at := range holes {
		if at.index > 0 && at.region.pieces[at.index-1].state == 'f' {
			at.index--
			at.size = at.region.pieces[at.index].size
			at.addr -= uint64(at.size)
		}
		sum := trace.Bytes(0)
		for _, p := range at.region.pieces[at.index:] {
			if p.state != 'f' && p.state != '-' {
				break
			}
			sum += p.size
		}
		if sum >= s {
			return at, true
		}
	}
	return place{}, false
}

func (r *naiveRegion) indexOf(addr uint64) int {
	at := r.addr
	for i, p := range r.pieces {
		if at == addr {
			return i
		}
		at += uint64(p.size)
	}
	panic("no piece begins there")
}

func (n *naive) mapPages(r *naiveRegion, hole int, need trace.Bytes) bool {
	page := n.page(r.half)
	need = (need + page - 1) / page * page
	if n.now.Reserved+need > n.capacity() || !n.driver.commit(need) {
		return false
	}
	addr := r.addr
	for _, p := range r.pieces[:hole] {
		addr += uint64(p.size)
	}
	pieces := []naivePiece{{size: need, state: 'f', age: n.searches[r.half]}}
	if rest := r.pieces[hole].size - need; rest > 0 {
		pieces = append(pieces, naivePiece{size: rest, state: '-'})
	}
	r.pieces = slices.Replace(r.pieces, hole, hole+1, pieces...)
	n.join(r, hole)
	n.now.Reserved += need
	n.watch(segmentEvent{trace.ActionSegmentMap, addr, need, r.stream})
	return true
}

// join merges piece i with its neighbours of the same idle state. The result counts
// as free since now.
func (n *naive) join(r *naiveRegion, i int) {
	for i+1 < len(r.pieces) && r.pieces[i+1].state == r.pieces[i].state {
		r.pieces[i].size += r.pieces[i+1].size
		r.pieces = slices.Delete(r.pieces, i+1, i+2)
	}
	for i > 0 && r.pieces[i-1].state == r.pieces[i].state {
		r.pieces[i-1].size += r.pieces[i].size
		r.pieces = slices.Delete(r.pieces, i, i+1)
		i--
	}
	r.pieces[i].age = n.searches[r.half]
}

func (n *naive) owned(buffer int32) (place, bool) {
	at := n.places(func(_ place, p naivePiece) bool {
		return (p.state == 'u' || p.state == 'w') && p.owner == buffer
	})
	if len(at) == 0 {
		return place{}, false
	}
	return at[0], true
}

func (n *naive) free(buffer int32) {
	at, ok := n.owned(buffer)
	if !ok {
		return
	}
	at.region.pieces[at.index].state = 'w'
	n.now.Allocated -= at.size
	n.waiting = append(n.waiting, buffer)
}

func (n *naive) complete(buffer int32) {
	at, ok := n.owned(buffer)
	if !ok {
		return
	}
	at.region.pieces[at.index].state = 'f'
	n.now.Active -= at.size
	n.join(at.region, at.index)
	n.waiting = slices.DeleteFunc(n.waiting, func(b int32) bool { return b == buffer })
}

func (n *naive) drop(r *naiveRegion) trace.Bytes {
	size := r.pieces[0].size
	n.regions = slices.DeleteFunc(n.regions, func(x *naiveRegion) bool { return x == r })
	n.now.Reserved -= size
	n.watch(segmentEvent{trace.ActionSegmentFree, r.addr, size, r.stream})
	return size
}

func (n *naive) collect(limit trace.Bytes) {
	threshold := trace.Bytes(n.c.GCThreshold * float64(limit))
	h := naiveHalf{}
	target := n.now.Reserved - threshold
	got := trace.Bytes(0)
	for got < target {
		candidates := slices.DeleteFunc(n.freePlaces(h), func(p place) bool { return len(p.region.pieces) > 1 })
		sum := 0
		for _, p := range candidates {
			sum += n.searches[h] - p.region.pieces[0].age
		}
		freed := false
		for _, p := range candidates {
			age := n.searches[h] - p.region.pieces[0].age
			if !p.region.expandable && float64(age) >= float64(sum)/float64(len(candidates)) {
				got += n.drop(p.region)
				freed = true
			}
		}
		if !freed {
			return
		}
	}
}

func (n *naive) releaseSome(h naiveHalf, stream uint64, s trace.Bytes) bool {
	if n.maxSplit() == math.MaxInt64 {
		return false
	}
	want := max(s, n.maxSplit())
	free := slices.DeleteFunc(n.freePlaces(h), func(p place) bool { return p.region.stream != stream })
	i := slices.IndexFunc(free, func(p place) bool { return p.size >= want })
	if i >= 0 && !free[i].region.expandable {
		n.drop(free[i].region)
		return true
	}
	if i < 0 {
		i = len(free)
	}
	got := trace.Bytes(0)
	for i--; i >= 0 && free[i].size >= n.maxSplit() && got < want; i-- {
		if !free[i].region.expandable {
			got += n.drop(free[i].region)
		}
	}
	return got >= want
}

func (n *naive) emptyCache(unused []trace.PoolID) {
	n.unused = append(n.unused, unused...)
	for len(n.waiting) > 0 {
		n.completed(n.waiting[0])
		n.complete(n.waiting[0])
	}
	halves := []naiveHalf{{}, {small: true}}
	for _, id := range n.pools {
		if slices.Contains(n.unused, id) {
			halves = append(halves, naiveHalf{id, true}, naiveHalf{id, false})
		}
	}
	for _, h := range halves {
		free := n.freePlaces(h)
		for _, p := range free {
			if !p.region.expandable && len(p.region.pieces) == 1 {
				n.drop(p.region)
			}
		}
		for _, p := range free {
			if p.region.expandable {
				n.unmap(p.region, p.addr)
			}
		}
	}
}

func (n *naive) unmap(r *naiveRegion, addr uint64) {
	page := n.page(r.half)
	i := r.indexOf(addr)
	low := trace.Bytes(addr - r.addr)
	high := low + r.pieces[i].size
	first := (low + page - 1) / page * page
	last := high / page * page
	if first >= last {
		return
	}
	age := n.searches[r.half]
	var pieces []naivePiece
	if first > low {
		pieces = append(pieces, naivePiece{size: first - low, state: 'f', age: age})
	}
	hole := i + len(pieces)
	pieces = append(pieces, naivePiece{size: last - first, state: '-'})
	if high > last {
		pieces = append(pieces, naivePiece{size: high - last, state: 'f', age: age})
	}
	r.pieces = slices.Replace(r.pieces, i, i+1, pieces...)
	n.join(r, hole)
	n.now.Reserved -= last - first
	n.watch(segmentEvent{trace.ActionSegmentUnmap, r.addr + uint64(first), last - first, r.stream})
	if len(r.pieces) == 1 {
		n.regions = slices.DeleteFunc(n.regions, func(x *naiveRegion) bool { return x == r })
	}
}
