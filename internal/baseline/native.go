package baseline

import "github.com/stplan/stplan/internal/trace"

// newSegment takes a native segment from the driver, as one block that is in no
// set, nil if the card is full.
func (a *caching) newSegment(p *pool, stream uint64, size trace.Bytes) *block {
	if a.stats.Reserved+size > a.capacity {
		return nil
	}
	addr, ok := a.driver.segment(size)
	if !ok {
		return nil
	}
	b := a.newBlock()
	b.addr, b.size, b.stream, b.pool = addr, size, stream, p
	a.emit(trace.ActionSegmentAlloc, b, addr, size)
	return b
}

// freeSegment gives a free native segment back.
func (a *caching) freeSegment(b *block) {
	b.pool.drop(b)
	a.emit(trace.ActionSegmentFree, b, b.addr, b.size)
	a.recycle(b)
}
