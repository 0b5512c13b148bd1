package baseline

import (
	"github.com/stplan/stplan/internal/splitmix"
	"github.com/stplan/stplan/internal/trace"
)

// segmentEvent is memory that the allocator took from the driver or gave back.
type segmentEvent struct {
	action trace.Action
	addr   uint64
	size   trace.Bytes
	stream uint64
}

// caching is the Model of PyTorch's caching allocator (c10/cuda/
// CUDACachingAllocator.cpp). native.go and expandable.go take memory from the
// driver, release.go gives it back.
type caching struct {
	rules
	driver driver
	watch  func(segmentEvent) // if not nil, called with every segment event

	pools   []*pair // the default pool first, then by first use
	private map[trace.PoolID]*pair
	custom  map[trace.PoolID]bool
	live    []*block // by buffer; nil before its allocation and after its completion
	waiting queue    // blocks with a pending free

	stats Stats

	spare []*block
	ranks uint64 // state of the sequence that ranks come from
}

// Caching is PyTorch's caching allocator under c. A setting of c that makes no
// sense is an error of New.
func Caching(key, title string, c Config) Allocator {
	return Allocator{
		Key: key, Title: title,
		New: func(p *Program) (Model, error) { return cachingFor(p, c, newCard(p.device), nil) },
		Within: func(usable, device trace.Bytes) Allocator {
			limited := c
			limited.UsableMemory, limited.DeviceMemory = usable, device
			return Caching(key, title, limited)
		},
	}
}

// Fork is a copy of PyTorch's native caching allocator inside another allocator, with
// settings c. unit, in bytes, is that of segments of 10 MiB and more. No segment lies where
// the recording has one, but each below those before it.
func Fork(c Config, unit trace.Bytes) Allocator {
	return Allocator{New: func(p *Program) (Model, error) {
		r, err := Native(c).rules()
		if err != nil {
			return nil, err
		}
		r.largeUnit = unit
		return newCaching(r, newCard(&trace.Device{}), len(p.buffers), nil), nil
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

// find takes a free block that can serve the request out of its set, nil if there
// is none.
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

// lookup returns the smallest sufficient free block of the stream, the lowest of
// those of one size, nil if there is none.
func (a *caching) lookup(p *pool, stream uint64, size trace.Bytes) *block {
	b := sameStream(p.free.ceiling(key{stream: stream, size: size}), stream)
	if b != nil && b.space != nil {
		b = a.preferHole(p, b)
	}
	// If this block is oversize, so are all larger ones.
	if b == nil || a.oversize(b.size, size) {
		return nil
	}
	return b
}

// canServe says that a request needs nothing from the driver. With expandable
// segments, expand finds a block that lookup rejects as oversize.
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

// obtain gets a block for a request that no free block can serve. It tries in turn
// what PyTorch tries, nil if nothing helps.
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

// grow takes memory from the driver, nil if that is refused. As in PyTorch, the
// cap counts a whole segment even if an expandable one would map less.
func (a *caching) grow(p *pool, stream uint64, size trace.Bytes) *block {
	if a.allowed >= 0 && a.stats.Reserved+a.segment(size) > a.allowed {
		return nil
	}
	if a.expandable && !p.custom {
		return a.expand(p, stream, size)
	}
	return a.newSegment(p, stream, a.segment(size))
}

// front returns the part of b that a request gets: its front, or all of it.
func (a *caching) front(b *block, size trace.Bytes) *block {
	if !a.splits(size, b.size-size) {
		return b
	}
	return a.cut(b, size)
}

// cut makes the first size bytes of b, which is in no set, a block of its own and
// puts the rest into a set.
func (a *caching) cut(b *block, size trace.Bytes) (front *block) {
	front = a.newBlock()
	b.cutFront(front, size)
	b.pool.put(b)
	return front
}

// hold gives b to the buffer.
func (a *caching) hold(buffer int32, b *block) {
	b.buffer, b.used = buffer, true
	a.live[buffer] = b
	a.stats.Allocated += b.size
	a.stats.Active += b.size
}

// Free does nothing for a buffer that could not be served.
func (a *caching) Free(buffer int32) {
	b := a.live[buffer]
	if b == nil {
		return
	}
	b.used, b.waiting = false, true
	a.stats.Allocated -= b.size
	a.waiting.push(b)
}

// Complete does nothing for a buffer whose completion releaseAll has waited for.
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

// merge joins b, which is in no set, with its idle neighbours, mapped with mapped
// and unmapped with unmapped.
func (a *caching) merge(b *block) {
	for _, n := range [...]*block{b.prev, b.next} {
		if n.idle() && n.unmapped == b.unmapped {
			b.pool.drop(n)
			b.absorb(n)
			a.recycle(n)
		}
	}
}

// pool returns a memory pool, which it makes at its first use.
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
		return &block{rank: splitmix.Next(&a.ranks)}
	}
	b := a.spare[len(a.spare)-1]
	a.spare = a.spare[:len(a.spare)-1]
	return b
}

// recycle keeps a block that is in no set and no segment for newBlock. A block
// keeps its rank for good, so that ranks stay distinct.
func (a *caching) recycle(b *block) {
	*b = block{rank: b.rank}
	a.spare = append(a.spare, b)
}

// emit counts and reports a segment event over a range of b's segment.
func (a *caching) emit(action trace.Action, b *block, addr uint64, size trace.Bytes) {
	if action == trace.ActionSegmentAlloc || action == trace.ActionSegmentMap {
		a.stats.Reserve(size)
	} else {
		a.stats.Reserve(-size)
	}
	if a.watch != nil {
		a.watch(segmentEvent{action, addr, size, b.stream})
	}
}
