package baseline

import "github.com/stplan/stplan/internal/trace"

// Keys of GMLake's rows.
const (
	KeyGMLake      = "gmlake"
	KeyGMLakePaper = "gmlake_paper"
)

// lakeChunkSize is the unit, in bytes, of GMLake's physical memory, of its addresses and
// of what it stitches: the granularity of CUDA's virtual memory.
const lakeChunkSize = 2 * mib

// lakeConfig are GMLake's settings. The names in parentheses are those of the environment
// variables that its code reads.
type lakeConfig struct {
	// fragLimit is the smallest request, in bytes, for which memory is stitched.
	fragLimit trace.Bytes
	// reuseLimit is how many times as large as the request a stitched block may be.
	reuseLimit trace.Bytes
	// defragLevel is when memory is stitched: 0 before new memory is taken, 1 if there is
	// none, 2 if releasing what is cached did not help.
	defragLevel int
	// autoGC is the stitched address space, in bytes, beyond which idle stitched blocks
	// are dropped.
	autoGC trace.Bytes
	// paper selects the policy of the paper in place of the code's.
	paper bool
}

// lakeCode are the defaults of GMLake's code. lakePaper is the policy of its paper, which
// stitches what is larger than a chunk.
var (
	lakeCode  = lakeConfig{fragLimit: 512 * mib, reuseLimit: 10, autoGC: 1000 << 30}
	lakePaper = lakeConfig{reuseLimit: 1, autoGC: 1000 << 30, paper: true}
)

// GMLake is the allocator of GMLake's code (github.com/intelligent-machine-learning/glake
// at 0274a9c, a fork of PyTorch 2.0's) under its default settings: PyTorch's native
// allocator that takes physical memory in chunks, and can map the chunks of several free
// blocks into one new range of addresses. Of recorded only the limits of the card and the
// rounding of sizes matter.
//
// On equal addresses it reserves what that code does, after each operation of a recording
// (docs/results/peers.md).
//
// Small blocks and private pools are the native allocator's. An event that GMLake would
// ask for whether the GPU is done with a block counts as finished once the free of the
// block is complete.
func GMLake(recorded Config) Allocator {
	return lakeAllocator(KeyGMLake, "GMLake", recorded, lakeCode)
}

// GMLakePaper is the policy of GMLake's paper (arXiv 2401.08156): an exact match first,
// stitched or not, and memory that is missing is taken and stitched to what is free.
func GMLakePaper(recorded Config) Allocator {
	return lakeAllocator(KeyGMLakePaper, "GMLake's paper", recorded, lakePaper)
}

func lakeAllocator(name, title string, recorded Config, settings lakeConfig) Allocator {
	c := Config{
		Divisions: recorded.Divisions, MemoryFraction: recorded.MemoryFraction,
		DeviceMemory: recorded.DeviceMemory, UsableMemory: recorded.UsableMemory,
	}
	return Allocator{
		Key: name, Title: title,
		New: func(p *Program) (Model, error) {
			r, err := c.rules()
			if err != nil {
				return nil, err
			}
			r.capacity = min(r.capacity, chunkedMemory)
			return newLake(r, settings, newCard(p.device), len(p.buffers)), nil
		},
		Within: func(usable, device trace.Bytes) Allocator {
			c.UsableMemory, c.DeviceMemory = usable, device
			return lakeAllocator(name, title, c, settings)
		},
	}
}

// lake is the Model of GMLake.
type lake struct {
	rules
	settings lakeConfig
	native   *caching // serves small blocks and private pools
	driver   driver
	full     bool // no memory at present

	segments map[*lakeSegment]struct{}
	free     shelf[*piece]    // pieces that nothing uses
	ready    shelf[*stitched] // idle stitched blocks whose chunks are all free
	blocks   []*stitched      // all of them, active ones too
	space    trace.Bytes      // address space of blocks

	live    []*lakeOwner // by buffer; nil if it is native, or not live
	waiting []int32      // buffers with a pending free, in the order of the frees

	stats Stats // of native and large blocks together
}

// lakeOwner is a large buffer's memory: a piece or a stitched block.
type lakeOwner struct {
	piece    *piece
	stitched *stitched
	size     trace.Bytes
	waiting  bool
}

func newLake(r rules, settings lakeConfig, d driver, buffers int) *lake {
	g := &lake{
		rules: r, settings: settings, driver: d,
		segments: make(map[*lakeSegment]struct{}), live: make([]*lakeOwner, buffers),
	}
	g.native = newCaching(r, d, buffers, func(e segmentEvent) {
		if e.action == trace.ActionSegmentFree {
			e.size = -e.size
		}
		g.stats.Reserve(e.size)
	})
	return g
}

func (g *lake) Stats() Stats {
	s := g.stats
	s.Allocated += g.native.stats.Allocated
	s.Active += g.native.stats.Active
	return s
}

func (g *lake) Alloc(buffer int32, r Request) bool {
	size := g.divisions.Round(r.Size)
	if small(size) || r.Pool != (trace.PoolID{}) {
		return g.allocNative(buffer, r, size)
	}
	size = align(size, lakeChunkSize)
	o := g.take(r.Stream, size)
	if o == nil {
		return false
	}
	o.size = size
	g.live[buffer] = o
	g.stats.Allocated += size
	g.stats.Active += size
	return true
}

// allocNative serves what is not stitched. It gives back large memory too if the card is
// full.
func (g *lake) allocNative(buffer int32, r Request, size trace.Bytes) bool {
	n := g.native
	p := n.pool(r.Pool).half(small(size))
	b := n.find(p, r.Stream, size)
	if b == nil {
		b = g.growNative(p, r.Stream, size)
	}
	if b == nil {
		g.stats.Retries++
		g.releaseAll()
		b = g.growNative(p, r.Stream, size)
	}
	if b == nil {
		return false
	}
	n.hold(buffer, n.front(b, size))
	return true
}

// growNative takes a native segment. The card's limits count large memory as well.
func (g *lake) growNative(p *pool, stream uint64, size trace.Bytes) *block {
	large := g.stats.Reserved - g.native.stats.Reserved
	g.native.capacity = g.capacity - large
	if g.allowed >= 0 {
		g.native.allowed = max(0, g.allowed-large)
	}
	return g.native.grow(p, stream, size)
}

// Refuse makes the attempt whose failure is recorded. A request that free memory can
// serve after all is freed again at once.
func (g *lake) Refuse(buffer int32, r Request) {
	g.full = true
	g.driver.refuse(true)
	if g.Alloc(buffer, r) {
		g.Free(buffer)
		g.Complete(buffer)
	}
	g.driver.refuse(false)
	g.full = false
}

// Free does nothing for a buffer that could not be served.
func (g *lake) Free(buffer int32) {
	o := g.live[buffer]
	if o == nil {
		g.native.Free(buffer)
		return
	}
	o.waiting = true
	g.stats.Allocated -= o.size
	g.waiting = append(g.waiting, buffer)
}

// Complete does nothing for a buffer whose completion releaseAll has waited for.
func (g *lake) Complete(buffer int32) {
	o := g.live[buffer]
	if o == nil {
		g.native.Complete(buffer)
		return
	}
	g.settle(buffer, o)
	for i, b := range g.waiting { // mostly the first or the last
		if b == buffer {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return
		}
	}
}

// settle makes a buffer's memory free.
func (g *lake) settle(buffer int32, o *lakeOwner) {
	g.live[buffer] = nil
	g.stats.Active -= o.size
	if o.stitched != nil {
		g.leave(o.stitched)
	} else {
		g.release(o.piece)
	}
}

// EmptyCache drops stitched blocks first, so that nothing maps what is given back.
func (g *lake) EmptyCache(unused []trace.PoolID) {
	g.settleAll()
	g.collectStitched()
	for _, id := range unused {
		g.native.pool(id).unused = true
	}
	g.releaseAll()
}

func (g *lake) settleAll() {
	for _, b := range g.waiting {
		g.settle(b, g.live[b])
	}
	g.waiting = g.waiting[:0]
}

// releaseAll waits for every pending free and gives back every free segment.
func (g *lake) releaseAll() {
	g.settleAll()
	for i := 0; i < len(g.free.items); {
		if p := g.free.items[i]; p.whole() {
			g.giveBack(p)
		} else {
			i++
		}
	}
	g.native.releaseAll()
}
