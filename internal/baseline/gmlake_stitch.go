package baseline

import (
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// stitched is a range of addresses over the chunks of several pieces (GMLake's sBlock). It
// is active while a buffer has its first chunks, and else idle. Its other chunks are free
// for the pieces that own them.
type stitched struct {
	addr   uint64
	stream uint64
	chunks []*lakeChunk
	used   int // chunks that its buffer uses, 0 if it is idle
	busy   int // chunks that are in use, by its own buffer or by others
	// doomed says that a chunk was given back to the driver. The block goes when its
	// buffer is freed.
	doomed bool
}

func (s *stitched) size() trace.Bytes { return trace.Bytes(len(s.chunks)) * lakeChunkSize }

func (s *stitched) key() key { return key{stream: s.stream, size: s.size(), addr: s.addr} }

// takeReady takes the smallest stitched block that is large enough and has no chunk in
// use, unless it is too large.
func (g *lake) takeReady(stream uint64, size trace.Bytes) *stitched {
	i, ok := g.ready.smallest(key{stream: stream, size: size})
	if !ok || g.ready.keys[i].size > size*g.settings.reuseLimit {
		return nil
	}
	s := g.ready.items[i]
	g.ready.remove(s.key())
	s.used = int(size / lakeChunkSize)
	for i := 0; i < s.used; {
		i += g.useRun(s.chunks[i:s.used])
	}
	return s
}

// useRun takes the first of these chunks into use, and those after it that also follow it in
// its piece. It cuts the piece around them, and returns their number.
func (g *lake) useRun(chunks []*lakeChunk) int {
	p, at, n := chunks[0].piece, chunks[0].index, 1
	for n < len(chunks) && at+n < p.high && &p.segment.chunks[at+n] == chunks[n] {
		n++
	}
	g.unshelve(p)
	if at+n < p.high {
		g.shelve(g.cut(p, at+n))
	}
	if at > p.low {
		front := p
		p = g.cut(p, at)
		g.shelve(front)
	}
	g.use(p)
	return n
}

// stitch makes a block of free pieces of the stream, nil if that is not to be done at this
// level, or if they are not enough.
func (g *lake) stitch(stream uint64, size trace.Bytes, level int) *stitched {
	low, high := g.free.ofStream(stream)
	if level < g.settings.defragLevel || size < g.settings.fragLimit || high-low < 2 {
		return nil
	}
	sum := trace.Bytes(0)
	for i := low; i < high; i++ {
		sum += g.free.keys[i].size
	}
	if sum < size {
		return nil
	}
	return g.stitchFrom(stream, size)
}

// stitchFrom makes a block of free pieces of the stream, the largest first. There must be
// enough. No physical memory is taken.
func (g *lake) stitchFrom(stream uint64, size trace.Bytes) *stitched {
	n := int(size / lakeChunkSize)
	s := &stitched{stream: stream, used: n}
	for len(s.chunks) < n {
		_, high := g.free.ofStream(stream)
		p := g.free.items[high-1]
		p = g.useFront(p, min(p.size(), size-s.size()))
		for i := p.low; i < p.high; i++ {
			s.chunks = append(s.chunks, &p.segment.chunks[i])
		}
	}
	for _, c := range s.chunks {
		c.maps = append(c.maps, s)
	}
	s.busy = n
	// Address space is not scarce: 2^56 B of it.
	s.addr, _ = g.driver.reserve(size)
	g.blocks = append(g.blocks, s)
	if g.space += size; g.space > g.settings.autoGC {
		g.collectStitched()
	}
	return s
}

// leave makes an active block idle.
func (g *lake) leave(s *stitched) {
	used := s.used
	s.used = 0
	for _, c := range s.chunks[:used] {
		if c.piece.used {
			g.release(c.piece)
		}
	}
	if s.doomed {
		g.drop(s)
	}
}

// drop unmaps an idle block.
func (g *lake) drop(s *stitched) {
	if s.busy == 0 {
		g.ready.remove(s.key())
	}
	s.unmap()
	g.blocks = slices.DeleteFunc(g.blocks, func(b *stitched) bool { return b == s })
	g.space -= s.size()
}

func (s *stitched) unmap() {
	for _, c := range s.chunks {
		c.maps = slices.DeleteFunc(c.maps, func(b *stitched) bool { return b == s })
	}
}

// collectStitched drops every idle block (GMLake's StitchFree at its highest level, the
// only one that a simulation comes to: lower ones are for address space that runs out).
func (g *lake) collectStitched() {
	for _, s := range slices.Clone(g.blocks) {
		if s.used == 0 {
			g.drop(s)
		}
	}
}
