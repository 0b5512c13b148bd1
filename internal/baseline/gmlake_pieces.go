package baseline

import "github.com/stplan/stplan/internal/trace"

// lakeSegment is physical memory that was taken from the driver at once, mapped to one
// range of addresses.
type lakeSegment struct {
	addr   uint64
	chunks []lakeChunk
}

// lakeChunk is one chunk of physical memory.
type lakeChunk struct {
	index int         // in its segment
	piece *piece      // which it is part of
	maps  []*stitched // in which it is mapped a second time
}

// piece is a run of chunks of one segment (GMLake's pBlock). All of its chunks are in use,
// by one buffer, or none is. The pieces of a segment cover it.
type piece struct {
	segment    *lakeSegment
	low, high  int    // its chunks
	prev, next *piece // by address
	stream     uint64
	used       bool
}

func (p *piece) addr() uint64 { return p.segment.addr + uint64(p.low)*uint64(lakeChunkSize) }

func (p *piece) size() trace.Bytes { return trace.Bytes(p.high-p.low) * lakeChunkSize }

func (p *piece) key() key { return key{stream: p.stream, size: p.size(), addr: p.addr()} }

// whole says that the piece is its whole segment.
func (p *piece) whole() bool { return p.prev == nil && p.next == nil }

// shelve lists a piece that is not in use. unshelve is its inverse.
func (g *lake) shelve(p *piece)   { g.free.insert(p.key(), p) }
func (g *lake) unshelve(p *piece) { g.free.remove(p.key()) }

// newPiece takes a segment from the driver, as a piece that is not in use and not listed,
// nil if the card is full.
func (g *lake) newPiece(stream uint64, size trace.Bytes) *piece {
	total := g.stats.Reserved + size
	if g.full || total > g.capacity || g.allowed >= 0 && total > g.allowed {
		return nil
	}
	addr, ok := g.driver.reserve(size)
	if !ok {
		return nil
	}
	n := int(size / lakeChunkSize)
	s := &lakeSegment{addr: addr, chunks: make([]lakeChunk, n)}
	p := &piece{segment: s, high: n, stream: stream}
	for i := range s.chunks {
		s.chunks[i] = lakeChunk{index: i, piece: p}
	}
	g.segments[s] = struct{}{}
	g.stats.Reserve(size)
	return p
}

// giveBack returns a free piece that is a whole segment to the driver. Nothing may be left
// that maps its chunks: an active stitched block that does not use them goes when it is
// freed.
func (g *lake) giveBack(p *piece) {
	g.unshelve(p)
	for i := range p.segment.chunks {
		c := &p.segment.chunks[i]
		for len(c.maps) > 0 {
			s := c.maps[len(c.maps)-1]
			if s.used == 0 {
				g.drop(s)
			} else {
				s.doomed = true
				c.maps = c.maps[:len(c.maps)-1]
			}
		}
	}
	delete(g.segments, p.segment)
	g.stats.Reserve(-p.size())
}

// own makes the piece the one that these of its chunks are part of.
func (p *piece) own(low, high int) {
	for i := low; i < high; i++ {
		p.segment.chunks[i].piece = p
	}
}

// cut makes the chunks of p from at on a piece of their own, and returns it.
func (g *lake) cut(p *piece, at int) (tail *piece) {
	tail = &piece{segment: p.segment, low: at, high: p.high, prev: p, next: p.next, stream: p.stream, used: p.used}
	if p.next != nil {
		p.next.prev = tail
	}
	p.next, p.high = tail, at
	tail.own(tail.low, tail.high)
	return tail
}

// use marks the chunks of a piece as used. Stitched blocks that map one are not ready then.
func (g *lake) use(p *piece) {
	p.used = true
	for i := p.low; i < p.high; i++ {
		for _, s := range p.segment.chunks[i].maps {
			if s.busy == 0 && s.used == 0 {
				g.ready.remove(s.key())
			}
			s.busy++
		}
	}
}

// release marks the chunks of a piece as free, joins it with its free neighbours and lists
// it. Stitched blocks that now map free chunks only are ready.
func (g *lake) release(p *piece) {
	p.used = false
	for i := p.low; i < p.high; i++ {
		for _, s := range p.segment.chunks[i].maps {
			if s.busy--; s.busy == 0 && s.used == 0 {
				g.ready.insert(s.key(), s)
			}
		}
	}
	if n := p.prev; n != nil && !n.used {
		g.unshelve(n)
		n.absorbNext()
		p = n
	}
	if n := p.next; n != nil && !n.used {
		g.unshelve(n)
		p.absorbNext()
	}
	g.shelve(p)
}

// absorbNext joins the next piece to p.
func (p *piece) absorbNext() {
	n := p.next
	p.high, p.next = n.high, n.next
	if p.next != nil {
		p.next.prev = p
	}
	p.own(n.low, n.high)
}
