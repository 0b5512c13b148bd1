package baseline

import "github.com/stplan/stplan/internal/trace"

// take finds memory for a large request, nil if the card is full. size is in whole chunks.
func (g *lake) take(stream uint64, size trace.Bytes) *lakeOwner {
	if g.settings.paper {
		return g.takePaper(stream, size)
	}
	if p := g.takeFree(stream, size); p != nil {
		return &lakeOwner{piece: p}
	}
	if s := g.takeReady(stream, size); s != nil {
		return &lakeOwner{stitched: s}
	}
	if s := g.stitch(stream, size, 0); s != nil {
		return &lakeOwner{stitched: s}
	}
	if p := g.grow(stream, size); p != nil {
		return &lakeOwner{piece: p}
	}
	if s := g.stitch(stream, size, 1); s != nil {
		return &lakeOwner{stitched: s}
	}
	g.stats.Retries++
	g.releaseAll()
	if p := g.grow(stream, size); p != nil {
		return &lakeOwner{piece: p}
	}
	if s := g.stitch(stream, size, 2); s != nil {
		return &lakeOwner{stitched: s}
	}
	return nil
}

// takePaper follows the states S1 to S5 of the paper.
func (g *lake) takePaper(stream uint64, size trace.Bytes) *lakeOwner {
	if i, ok := g.free.smallest(key{stream: stream, size: size}); !ok || g.free.keys[i].size > size {
		if s := g.takeReady(stream, size); s != nil { // S1: a stitched block of this size
			return &lakeOwner{stitched: s}
		}
	}
	if p := g.takeFree(stream, size); p != nil { // S1 or S2
		return &lakeOwner{piece: p}
	}
	if s := g.stitch(stream, size, 0); s != nil { // S3
		return &lakeOwner{stitched: s}
	}
	if o := g.complete(stream, size); o != nil { // S4
		return o
	}
	g.stats.Retries++
	g.releaseAll()
	return g.complete(stream, size) // nil is S5
}

// complete takes from the driver what the free pieces lack, and stitches it to them.
func (g *lake) complete(stream uint64, size trace.Bytes) *lakeOwner {
	missing := size
	low, high := g.free.ofStream(stream)
	for i := low; i < high; i++ {
		missing -= g.free.keys[i].size
	}
	if missing <= 0 { // releaseAll waited for memory that is enough
		return &lakeOwner{stitched: g.stitchFrom(stream, size)}
	}
	p := g.newPiece(stream, missing)
	if p == nil {
		return nil
	}
	if missing == size {
		g.use(p)
		return &lakeOwner{piece: p}
	}
	g.shelve(p)
	return &lakeOwner{stitched: g.stitchFrom(stream, size)}
}

// takeFree takes the smallest free piece that is large enough, and cuts off what is left.
func (g *lake) takeFree(stream uint64, size trace.Bytes) *piece {
	i, ok := g.free.smallest(key{stream: stream, size: size})
	if !ok {
		return nil
	}
	return g.useFront(g.free.items[i], size)
}

// useFront takes the front of a free piece into use.
func (g *lake) useFront(p *piece, size trace.Bytes) *piece {
	g.unshelve(p)
	if p.size() > size {
		g.shelve(g.cut(p, p.low+int(size/lakeChunkSize)))
	}
	g.use(p)
	return p
}

// grow takes new memory for a request: a segment of the native allocator's size.
func (g *lake) grow(stream uint64, size trace.Bytes) *piece {
	p := g.newPiece(stream, g.segment(size))
	if p == nil {
		return nil
	}
	g.shelve(p)
	return g.useFront(p, size)
}
