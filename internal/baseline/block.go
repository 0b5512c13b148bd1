package baseline

import "github.com/stplan/stplan/internal/trace"

// block is a piece of a segment, or of the address space of an expandable
// segment. prev and next are its neighbours in address order within the
// segment; a block without neighbours is the whole segment.
type block struct {
	addr       uint64
	size       trace.Bytes
	stream     uint64
	pool       *pool
	space      *space // of an expandable segment, nil in a native one
	prev, next *block
	// used until the program frees it, then waiting until the free completes.
	used, waiting bool
	unmapped      bool
	buffer        int32 // the buffer in the block, while used or waiting
	since         int64 // the pool's search count when the block became free

	// A block is in at most one queue: a waiting block in the allocator's, in the
	// order of the frees; a free block that the garbage collector may take in its
	// pool's.
	earlier, later *block

	// An idle block is in one of its pool's sets, which owns these fields.
	key         key
	left, right *block
	rank        uint64
}

func (b *block) end() uint64 { return b.addr + uint64(b.size) }

// whole says that the block is its whole segment.
func (b *block) whole() bool { return b.prev == nil && b.next == nil }

// idle says that nothing occupies the block, mapped or not. It is false for nil.
func (b *block) idle() bool { return b != nil && !b.used && !b.waiting }

// cutFront makes the first size bytes of b the block front, and b the rest. The
// caller updates the pool's sets.
func (b *block) cutFront(front *block, size trace.Bytes) {
	front.addr, front.size = b.addr, size
	front.stream, front.pool, front.space, front.unmapped = b.stream, b.pool, b.space, b.unmapped
	front.prev, front.next = b.prev, b
	if b.prev != nil {
		b.prev.next = front
	}
	b.prev = front
	b.addr += uint64(size)
	b.size -= size
}

// absorb joins src to b, its neighbour on either side.
func (b *block) absorb(src *block) {
	if b.prev == src {
		b.addr = src.addr
		if b.prev = src.prev; b.prev != nil {
			b.prev.next = b
		}
	} else if b.next = src.next; b.next != nil {
		b.next.prev = b
	}
	b.size += src.size
}

// queue is a list of blocks in the order of their arrival.
type queue struct{ first, last *block }

func (q *queue) push(b *block) {
	if b.earlier = q.last; b.earlier == nil {
		q.first = b
	} else {
		b.earlier.later = b
	}
	q.last = b
}

// remove takes out b, which must be in the queue.
func (q *queue) remove(b *block) {
	if b.earlier == nil {
		q.first = b.later
	} else {
		b.earlier.later = b.later
	}
	if b.later == nil {
		q.last = b.earlier
	} else {
		b.later.earlier = b.earlier
	}
	b.earlier, b.later = nil, nil
}

// pool is one half, small or large, of a memory pool.
type pool struct {
	small bool
	// custom says that the pool is a MemPool with an allocator of its own. Its
	// segments are never expandable.
	custom bool
	// free holds mapped blocks by (stream, size, address), unmapped holds the
	// rest of the address spaces by (stream, address).
	free, unmapped set
	searches       int64 // requests so far, counted only if the collector is on
	cache          cache
}

// put adds an idle block to the set it belongs to.
func (p *pool) put(b *block) {
	if b.unmapped {
		p.unmapped.insert(b, key{stream: b.stream, addr: b.addr})
		return
	}
	b.since = p.searches
	p.free.insert(b, key{stream: b.stream, size: b.size, addr: b.addr})
	if b.whole() {
		p.cache.add(b)
	}
}

// drop removes an idle block from its set.
func (p *pool) drop(b *block) {
	if b.unmapped {
		p.unmapped.remove(b)
		return
	}
	p.free.remove(b)
	if b.whole() {
		p.cache.remove(b)
	}
}

// pair is a memory pool: its small and its large half.
type pair struct {
	small, large pool
	// unused says that a private pool's owner has let go of it. Only then are its
	// segments given back. It is always true for the default pool.
	unused bool
}

func newPair(id trace.PoolID, custom bool) *pair {
	return &pair{
		unused: id == trace.PoolID{},
		small:  pool{small: true, custom: custom},
		large:  pool{custom: custom},
	}
}

// half is the pool for blocks of a rounded size.
func (p *pair) half(isSmall bool) *pool {
	if isSmall {
		return &p.small
	}
	return &p.large
}
