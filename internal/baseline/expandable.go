package baseline

import "github.com/stplan/stplan/internal/trace"

// space is the address space of one expandable segment. It belongs to one stream
// and one pool. Memory is mapped into it in whole pages, counted from base.
type space struct {
	base uint64
	page trace.Bytes
}

// preferHole chooses among the free blocks of expandable segments from b on. A
// block before unmapped space counts with that space, since it could grow, so that
// a hole between used blocks is preferred to it. It walks over the next larger
// blocks until one is no better. If expandable segments are off, it skips their
// blocks instead.
func (a *caching) preferHole(p *pool, b *block) *block {
	next := func(b *block) *block { return sameStream(p.free.after(b.key), b.stream) }
	if !a.expandable {
		for b != nil && b.space != nil {
			b = next(b)
		}
		return b
	}
	for b.space != nil {
		n := next(b)
		if n == nil || n.growable() >= b.growable() {
			break
		}
		b = n
	}
	return b
}

// growable is the size to which a free block could grow in place.
func (b *block) growable() trace.Bytes {
	if b.next != nil && b.next.unmapped {
		return b.size + b.next.size
	}
	return b.size
}

// expand maps memory until it has a block of the given size, nil if it cannot. What
// it has mapped by then stays mapped and free.
func (a *caching) expand(p *pool, stream uint64, size trace.Bytes) *block {
	b := p.room(stream, size)
	if b == nil {
		b = a.reserve(p, stream)
	}
	if b != nil && b.unmapped {
		b = a.mapFront(b, min(b.size, size))
	}
	// The address space is larger than the card, so b.next is never nil here.
	for b != nil && b.size < size {
		b = a.mapFront(b.next, min(size-b.size, b.next.size))
	}
	if b != nil {
		p.drop(b)
	}
	return b
}

// room finds the lowest run of idle blocks, mapped or not, that contains unmapped
// space and is large enough. It returns the run's first block, nil if there is none.
func (p *pool) room(stream uint64, size trace.Bytes) *block {
	u := sameStream(p.unmapped.ceiling(key{stream: stream}), stream)
	for ; u != nil; u = sameStream(p.unmapped.after(u.key), stream) {
		first := u
		if u.prev.idle() {
			first = u.prev
		}
		sum := trace.Bytes(0)
		for b := first; b.idle() && sum < size; b = b.next {
			sum += b.size
		}
		if sum >= size {
			return first
		}
	}
	return nil
}

// reserve takes new address space, larger than the card, nil if there is none left.
func (a *caching) reserve(p *pool, stream uint64) *block {
	page := a.page(p.small)
	size := align(a.reservation, page)
	base, ok := a.driver.reserve(size)
	if !ok {
		return nil
	}
	b := a.newBlock()
	b.addr, b.size, b.stream, b.pool, b.unmapped = base, size, stream, p, true
	b.space = &space{base, page}
	p.put(b)
	return b
}

// mapFront maps the first size bytes of an unmapped block, rounded up to pages. It
// returns the free block that they form with their free neighbours, nil if the card
// is full.
func (a *caching) mapFront(b *block, size trace.Bytes) *block {
	size = align(size, b.space.page)
	if a.stats.Reserved+size > a.capacity || !a.driver.commit(size) {
		return nil
	}
	b.pool.drop(b)
	if b.size > size {
		b = a.cut(b, size)
	}
	addr := b.addr
	b.unmapped = false
	a.merge(b)
	b.pool.put(b)
	a.emit(trace.ActionSegmentMap, b, addr, size)
	return b
}

// unmap gives back the whole pages inside a free block. The rest of the block on
// either side stays mapped and free. Address space without any mapped page is given
// up.
func (a *caching) unmap(b *block) {
	base, page := b.space.base, uint64(b.space.page)
	low := base + (b.addr-base+page-1)/page*page
	high := base + (b.end()-base)/page*page
	if low >= high {
		return
	}
	b.pool.drop(b)
	if before := trace.Bytes(low - b.addr); before > 0 {
		front := a.newBlock()
		b.cutFront(front, before)
		front.pool.put(front)
	}
	if b.end() > high {
		b = a.cut(b, trace.Bytes(high-low))
	}
	size := b.size
	b.unmapped = true
	a.merge(b)
	b.pool.put(b)
	a.emit(trace.ActionSegmentUnmap, b, low, size)
	if b.whole() {
		b.pool.drop(b)
		a.recycle(b)
	}
}
