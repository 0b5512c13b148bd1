package baseline

import (
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// cache holds the free blocks of a pool that are whole segments, for the garbage
// collector. As in PyTorch, expandable ones count towards the average age but are
// never given back. Whether a block is a whole segment does not change while it is
// free.
type cache struct {
	count int64
	since int64 // the sum of block.since over all
	// native holds the native ones, those that have been free longest first.
	native queue
}

func (c *cache) add(b *block) {
	c.count++
	c.since += b.since
	if b.space == nil {
		c.native.push(b)
	}
}

func (c *cache) remove(b *block) {
	c.count--
	c.since -= b.since
	if b.space == nil {
		c.native.remove(b)
	}
}

// old lists the native blocks that have been free for at least the average number
// of searches, in the order of pool.free.
func (c *cache) old(searches int64) []*block {
	if c.count == 0 {
		return nil
	}
	average := float64(c.count*searches-c.since) / float64(c.count)
	var found []*block
	for b := c.native.first; b != nil && float64(searches-b.since) >= average; b = b.later {
		found = append(found, b)
	}
	slices.SortFunc(found, func(a, b *block) int { return a.key.compare(b.key) })
	return found
}

// collect is the garbage collector. If more than the threshold is reserved, it gives
// back free segments of the default large pool that have been free for at least the
// average time. It works in rounds, each with a new average, until enough is given
// back, and never stops within a round.
func (a *caching) collect() {
	p := &a.pools[0].large
	target := a.stats.Reserved - trace.Bytes(a.gcThreshold*float64(a.allowed))
	for reclaimed := trace.Bytes(0); reclaimed < target; {
		old := p.cache.old(p.searches)
		if len(old) == 0 {
			return
		}
		for _, b := range old {
			reclaimed += b.size
			a.freeSegment(b)
		}
	}
}

// releaseAvailable makes room for a request if there is a maximal split size. It
// gives back one free oversize segment of the stream that is large enough, or else
// the largest ones until their sum is. It reports whether that was enough.
//
// In PyTorch oversize blocks are whole segments. Adopted segments may have been split
// under other settings; those stay.
func (a *caching) releaseAvailable(p *pool, stream uint64, size trace.Bytes) bool {
	if a.maxSplit == unlimited {
		return false
	}
	k := key{stream: stream, size: max(size, a.maxSplit)}
	if b := sameStream(p.free.ceiling(k), stream); b != nil && b.space == nil {
		if b.whole() {
			a.freeSegment(b)
		}
		return true
	}
	released := trace.Bytes(0)
	b := sameStream(p.free.before(k), stream)
	for b != nil && b.size >= a.maxSplit && released < k.size {
		next := sameStream(p.free.before(b.key), stream)
		if b.space == nil && b.whole() {
			released += b.size
			a.freeSegment(b)
		}
		b = next
	}
	return released >= k.size
}

func (a *caching) EmptyCache(unused []trace.PoolID) {
	for _, id := range unused {
		a.pool(id).unused = true
	}
	a.releaseAll()
}

// releaseAll waits for every pending free and gives back all free segments,
// and all free pages of expandable ones.
func (a *caching) releaseAll() {
	for a.waiting.first != nil {
		a.settle(a.waiting.first)
	}
	for i, p := range a.pools {
		switch {
		case i == 0:
			a.releasePool(&p.large)
			a.releasePool(&p.small)
		case p.unused:
			a.releasePool(&p.small)
			a.releasePool(&p.large)
		}
	}
}

// releasePool gives back native segments first, then expandable pages, both in the
// order of p.free.
func (a *caching) releasePool(p *pool) {
	var expandable []*block
	for _, b := range p.free.blocks() {
		if b.space != nil {
			expandable = append(expandable, b)
		} else if b.whole() {
			a.freeSegment(b)
		}
	}
	for _, b := range expandable {
		a.unmap(b)
	}
}
