package baseline

import "github.com/stplan/stplan/internal/trace"

// segmentEvent is one dealing of the allocator with the driver.
type segmentEvent struct {
	action trace.Action
	addr   uint64
	size   trace.Bytes
	stream uint64
}

// caching is PyTorch's caching allocator. Its rules are in the file of the
// mechanism they belong to: native.go and expandable.go for taking memory from
// the driver, release.go for giving it back.
type caching struct {
	rules
	driver driver
	watch  func(segmentEvent) // if not nil, told of every dealing with the driver

	pools   []*pair // the default pool first, then by first use
	private map[trace.PoolID]*pair
	custom  map[trace.PoolID]bool
	live    []*block // by buffer; nil before its allocation and after its completion
	waiting queue

	stats Stats

	spare []*block
	ranks ranks
}

// Caching is PyTorch's caching allocator under c. A setting of c that makes no
// sense is an error of New.
func Caching(key, title string, c Config) Allocator {
	return Allocator{key, title, func(p *Program) (Model, error) {
		return cachingFor(p, c, newCard(p.device), nil)
	}}
}

func cachingFor(p *Program, c Config, d driver, watch func(segmentEvent)) (*caching, error) {
	r, err := c.rules()
	if err != nil {
		return nil, err
	}
	a := newCaching(r, d, len(p.buffers), watch)
	a.custom = p.custom
	return a, nil
}

func newCaching(r rules, d driver, buffers int, watch func(segmentEvent)) *caching {
	return &caching{
		rules: r, driver: d, watch: watch,
		live: make([]*block, buffers), private: make(map[trace.PoolID]*pair),
		pools: []*pair{newPair(trace.PoolID{}, false)},
	}
}

func (a *caching) Stats() Stats { return a.stats }

func (a *caching) Alloc(buffer int32, r Request) bool {
	_, ok := a.alloc(buffer, r)
	return ok
}

// Refuse makes the attempt whose failure is recorded. A request that free memory
// can serve after all is freed again at once.
func (a *caching) Refuse(buffer int32, r Request) {
	a.driver.refuse(true)
	if _, ok := a.alloc(buffer, r); ok {
		a.Free(buffer)
		a.Complete(buffer)
	}
	a.driver.refuse(false)
}

func (a *caching) alloc(buffer int32, r Request) (uint64, bool) {
	size := a.divisions.Round(r.Size)
	p := a.pool(r.Pool).half(small(size))
	b := a.find(p, r.Stream, size)
	if b == nil {
		b = a.obtain(p, r.Stream, size)
	}
	if b == nil {
		return 0, false
	}
	b = a.front(b, size)
	a.hold(buffer, b)
	return b.addr, true
}

// find takes a free block that can serve.
func (a *caching) find(p *pool, stream uint64, size trace.Bytes) *block {
	if a.collects() {
		p.searches++
	}
	b := a.lookup(p, stream, size)
	if b != nil {
		p.drop(b)
	}
	return b
}

// lookup is the smallest sufficient free block of the stream, the lowest among
// equals.
func (a *caching) lookup(p *pool, stream uint64, size trace.Bytes) *block {
	b := sameStream(p.free.ceiling(key{stream: stream, size: size}), stream)
	if b != nil && b.space != nil {
		b = a.preferHole(p, b)
	}
	// Only this block is tried: larger ones would be oversize as well.
	if b == nil || a.oversize(b.size, size) {
		return nil
	}
	return b
}

// canServe says that a request needs nothing from the driver. Expandable
// segments can give an oversize block after all.
func (a *caching) canServe(r Request) bool {
	size := a.divisions.Round(r.Size)
	p := a.pool(r.Pool).half(small(size))
	if a.lookup(p, r.Stream, size) != nil {
		return true
	}
	b := p.room(r.Stream, size)
	return a.expandable && b != nil && !b.unmapped && b.size >= size
}

func sameStream(b *block, stream uint64) *block {
	if b == nil || b.stream != stream {
		return nil
	}
	return b
}

// obtain gets a block that no free block could serve: the steps PyTorch takes
// until one of them works.
func (a *caching) obtain(p *pool, stream uint64, size trace.Bytes) *block {
	if a.collects() {
		a.collect()
	}
	if b := a.grow(p, stream, size); b != nil {
		return b
	}
	if a.releaseAvailable(p, stream, size) {
		if b := a.grow(p, stream, size); b != nil {
			return b
		}
	}
	a.stats.Retries++
	a.releaseAll()
	return a.grow(p, stream, size)
}

// grow takes memory from the driver, nil if that is refused. The cap counts a
// whole segment even where an expandable one would map less.
func (a *caching) grow(p *pool, stream uint64, size trace.Bytes) *block {
	if a.allowed >= 0 && a.stats.Reserved+a.segment(size) > a.allowed {
		return nil
	}
	if a.expandable && !p.custom {
		return a.expand(p, stream, size)
	}
	return a.newSegment(p, stream, a.segment(size))
}

// front is the front of b that a request gets, or all of it.
func (a *caching) front(b *block, size trace.Bytes) *block {
	if !a.splits(size, b.size-size) {
		return b
	}
	return a.cut(b, size)
}

// cut makes the first size bytes of b, which is in no set, a block of their
// own, and puts the rest back.
func (a *caching) cut(b *block, size trace.Bytes) (front *block) {
	front = a.newBlock()
	b.cutFront(front, size)
	b.pool.put(b)
	return front
}

// hold makes b the buffer's.
func (a *caching) hold(buffer int32, b *block) {
	b.buffer, b.used = buffer, true
	a.live[buffer] = b
	a.stats.Allocated += b.size
	a.stats.Active += b.size
}

// free does nothing for a buffer that could not be served.
func (a *caching) Free(buffer int32) {
	b := a.live[buffer]
	if b == nil {
		return
	}
	b.used, b.waiting = false, true
	a.stats.Allocated -= b.size
	a.waiting.push(b)
}

// complete does nothing for a buffer whose completion releaseAll has waited for.
func (a *caching) Complete(buffer int32) {
	if b := a.live[buffer]; b != nil {
		a.settle(b)
	}
}

// settle makes a waiting block free.
func (a *caching) settle(b *block) {
	a.waiting.remove(b)
	b.waiting = false
	a.live[b.buffer] = nil
	a.stats.Active -= b.size
	a.merge(b)
	b.pool.put(b)
}

// merge joins b, which is in no set, with its idle neighbours of the same kind,
// mapped or unmapped.
func (a *caching) merge(b *block) {
	for _, n := range [...]*block{b.prev, b.next} {
		if n.idle() && n.unmapped == b.unmapped {
			b.pool.drop(n)
			b.absorb(n)
			a.recycle(n)
		}
	}
}

// pool finds a memory pool, or begins it.
func (a *caching) pool(id trace.PoolID) *pair {
	if id == (trace.PoolID{}) {
		return a.pools[0]
	}
	p, ok := a.private[id]
	if !ok {
		p = newPair(id, a.custom[id])
		a.private[id] = p
		a.pools = append(a.pools, p)
	}
	return p
}

func (a *caching) newBlock() *block {
	if len(a.spare) == 0 {
		return &block{rank: a.ranks.next()}
	}
	b := a.spare[len(a.spare)-1]
	a.spare = a.spare[:len(a.spare)-1]
	return b
}

// recycle keeps a block that is in no set and no segment for later use. Blocks
// keep their ranks.
func (a *caching) recycle(b *block) {
	*b = block{rank: b.rank}
	a.spare = append(a.spare, b)
}

// deal accounts for a dealing with the driver over a range of b's segment.
func (a *caching) deal(action trace.Action, b *block, addr uint64, size trace.Bytes) {
	if action == trace.ActionSegmentAlloc || action == trace.ActionSegmentMap {
		a.stats.Reserve(size)
	} else {
		a.stats.Reserve(-size)
	}
	if a.watch != nil {
		a.watch(segmentEvent{action, addr, size, b.stream})
	}
}
