package stalloc

import (
	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// given is what a request got of the arena.
type given struct {
	span
	lent bool
}

// server is the Model of STAlloc's runtime, with STALLOC_STATIC_FALLBACK=1 as in all of its
// published runs: what the plan does not serve, the caching allocator does.
type server struct {
	*plan
	tl    *lifespan.Timeline
	hooks *hooks // nil without hooks
	lend  bool   // the arena, to dynamic requests
	fits  bool   // the arena fits on the card
	rest  baseline.Model

	next   int // the timeline's buffer of the next request
	large  int // requests so far that are too large for the slab
	cursor int // the plan's line of the next static request
	// forgotten says that the request had a line that did not serve it.
	forgotten bool

	held    spans // in the arena, by requests with a line of the plan
	lent    spans // in the arena, by others
	refused spans // of lines whose place was lent when they were due; see serveLine
	given   map[int32]given
	closed  map[int32]spans // by dynamic slot: what the plan uses while it lives

	pieces int // of the slab that are free
	inSlab map[int32]bool
	took   trace.Bytes // all of the slab
	begun  bool        // there was a request, and the arena and the slab are there
	stats  baseline.Stats
	online trace.Bytes // the most that the caching allocator had, when last seen
}

func newServer(p *plan, tl *lifespan.Timeline, h *hooks, lend bool) *server {
	return &server{
		plan: p, tl: tl, hooks: h, lend: lend,
		given: make(map[int32]given), closed: make(map[int32]spans), inSlab: make(map[int32]bool),
	}
}

// What STAlloc's copy of PyTorch's caching allocator has otherwise, in bytes.
const (
	// segmentUnit is the unit of segments of 10 MiB and more (its kRoundLarge). PyTorch has
	// 2 MiB.
	segmentUnit trace.Bytes = 512
	// maxSplitSize is its default. PyTorch has no limit.
	maxSplitSize trace.Bytes = 128 << 20
)

// begin makes the caching allocator for what is not planned, with what the arena and the
// slab leave of the card.
func (s *server) begin(limits baseline.Config, p *baseline.Program) (err error) {
	usable, own := trace.Bytes(limits.Memory()), s.arena+s.slab
	if s.fits = usable == 0 || own < usable; s.fits && usable > 0 {
		limits.UsableMemory = usable - own
	}
	limits.MaxSplitSize = maxSplitSize
	s.rest, err = baseline.Fork(limits, segmentUnit).New(p)
	return err
}

func (s *server) Stats() baseline.Stats {
	t := s.rest.Stats()
	t.Allocated += s.stats.Allocated
	t.Active += s.stats.Allocated
	t.Reserved += s.own()
	t.PeakReserved = s.stats.PeakReserved
	return t
}

// own is what is taken besides the caching allocator: all of the arena and of the slab, from
// the first request on.
func (s *server) own() trace.Bytes {
	if !s.begun {
		return 0
	}
	return s.arena + s.took
}

// peak counts what is reserved, and what the caching allocator had for a while within a
// request.
func (s *server) peak() {
	now := s.rest.Stats()
	most := now.Reserved
	if now.PeakReserved > s.online {
		s.online, most = now.PeakReserved, now.PeakReserved
	}
	s.stats.PeakReserved = max(s.stats.PeakReserved, s.own()+most)
}

// Alloc forgets the pool: STAlloc has none.
func (s *server) Alloc(buffer int32, r baseline.Request) bool {
	if !s.fits {
		return false
	}
	if !s.begun {
		s.begun = true
		s.took = s.slab
		s.pieces = int(s.slab / slab)
	}
	defer s.peak()
	i := s.next
	s.next++
	b := &s.tl.Buffers[i]
	if b.Size <= slab {
		s.serveSmall(buffer)
		return true
	}
	s.large++
	role := roleStatic
	if s.hooks != nil {
		role = s.hooks.roles[i]
	}
	if at, ok := s.place(i, role); ok {
		s.given[buffer] = at
		if at.lent {
			s.lent.add(at.span)
		} else {
			s.held.add(at.span)
		}
		s.stats.Allocated += b.Size
		return true
	}
	return s.rest.Alloc(buffer, baseline.Request{Size: requested(b), Stream: s.stream(r.Stream)})
}

// serveSmall takes a piece of the slab, which doubles if there is none.
func (s *server) serveSmall(buffer int32) {
	if s.pieces == 0 {
		more := max(s.took, slab)
		s.pieces = int(more / slab)
		s.took += more
	}
	s.pieces--
	s.inSlab[buffer] = true
	s.stats.Allocated += slab
}

// advance returns the next line. After the last comes the first of those that repeat,
// whatever the program does.
func (s *server) advance() *line {
	l := &s.lines[s.cursor]
	if s.cursor++; s.cursor == len(s.lines) {
		s.cursor = s.again
	}
	return l
}

// place finds a place in the arena.
func (s *server) place(i int, r role) (at given, ok bool) {
	b := &s.tl.Buffers[i]
	s.forgotten = false
	switch {
	case s.plan.online[s.large-1]:
	case r == roleDynamic && s.lend:
		return s.serveDynamic(s.hooks.slots[i], b.Size)
	case r == roleOther && s.lend:
		return s.gap(b.Size)
	case r != roleStatic:
	case len(s.lines) > 0:
		return s.serveLine(s.advance(), b)
	}
	return at, false
}

// serveLine serves a request by a line if the sizes agree and the place is free. A line
// whose place is lent stays listed as in use, in STAlloc, although nobody has it: it is
// refused for the rest of the job.
func (s *server) serveLine(l *line, b *lifespan.Buffer) (at given, ok bool) {
	at.span = span{l.offset, l.offset + b.Size}
	if l.size != requested(b) || s.held.meets(at.span) || s.refused.meets(at.span) {
		s.forgotten = true
		return at, false
	}
	if s.lent.meets(at.span) || at.high > s.arena {
		s.refused.add(at.span)
		return at, false
	}
	return at, true
}

// stream is what the caching allocator hears of the stream of a request: nothing if the
// request had a line that did not serve.
func (s *server) stream(of uint64) uint64 {
	if s.forgotten {
		return 0
	}
	return of
}

// gap takes the smallest sufficient piece that is free now and in none of closed.
func (s *server) gap(size trace.Bytes, closed ...spans) (at given, ok bool) {
	low, ok := smallestGap(s.arena, size, append(closed, s.held, s.lent)...)
	return given{span{low, low + size}, true}, ok
}

// serveDynamic takes a gap that the plan does not use while the request lives.
func (s *server) serveDynamic(slot int32, size trace.Bytes) (at given, ok bool) {
	closed, ok := s.closed[slot]
	if !ok {
		closed = s.closedFor(slot)
		s.closed[slot] = closed
	}
	return s.gap(size, closed)
}

// closedFor is what the plan uses of the arena while a slot of the body lives.
func (s *server) closedFor(slot int32) spans {
	d := &s.hooks.body.Slots[slot]
	all := []span{{0, s.resident}}
	for i := range s.lines[s.again:] {
		l := &s.lines[s.again+i]
		at := s.hooks.slots[l.buffer]
		if at >= 0 {
			if o := &s.hooks.body.Slots[at]; o.Start >= max(d.RequestedEnd, d.Start+1) || o.RequestedEnd <= d.Start {
				continue
			}
		}
		all = append(all, span{l.offset, l.offset + trace.RoundUp(l.size)})
	}
	return union(all)
}

// Free makes memory free at once: STAlloc does not know of streams, and neither does its
// caching allocator.
func (s *server) Free(buffer int32) {
	if s.inSlab[buffer] {
		delete(s.inSlab, buffer)
		s.pieces++
		s.stats.Allocated -= slab
		return
	}
	at, ok := s.given[buffer]
	if !ok {
		s.rest.Free(buffer)
		s.rest.Complete(buffer)
		return
	}
	delete(s.given, buffer)
	if at.lent {
		s.lent.remove(at.span)
	} else {
		s.held.remove(at.span)
	}
	s.stats.Allocated -= at.high - at.low
}

// Complete does nothing, for the same reason.
func (s *server) Complete(int32) {}

func (s *server) Refuse(buffer int32, r baseline.Request) {
	s.rest.Refuse(buffer, baseline.Request{Size: r.Size})
	s.peak()
}

// EmptyCache does nothing: PyTorch has no way to ask an allocator that is plugged in.
func (s *server) EmptyCache([]trace.PoolID) {}
