package stalloc

import (
	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/trace"
)

// server is the Model of STAlloc's runtime, with STALLOC_STATIC_FALLBACK=1 as in all of its
// published runs: what the plan does not serve, the caching allocator does.
type server struct {
	*program
	arena trace.Bytes
	fits  bool // the arena fits on the card
	rest  baseline.Model

	next    int   // the timeline's buffer of the next request
	cursor  int   // the iteration's line of the next static request
	live    spans // in the arena
	refused spans // of lines that were taken when they were due; see serveLine
	given   map[int32]span
	closed  map[int32]spans // by dynamic slot: what the plan uses while it lives

	allocated trace.Bytes // in the arena
	started   bool
}

func newServer(p *program, arena trace.Bytes, fits bool, rest baseline.Model) *server {
	return &server{program: p, arena: arena, fits: fits, rest: rest, given: make(map[int32]span), closed: make(map[int32]spans)}
}

func (s *server) Stats() baseline.Stats {
	t := s.rest.Stats()
	t.Allocated += s.allocated
	t.Active += s.allocated
	if s.started {
		t.Reserved += s.arena
		t.PeakReserved += s.arena
	}
	return t
}

// Alloc forgets the stream, as STAlloc does, and the pool: it has none.
func (s *server) Alloc(buffer int32, r baseline.Request) bool {
	if s.started = s.fits; !s.fits {
		return false
	}
	i := s.next
	s.next++
	if at, ok := s.place(i); ok {
		s.hold(buffer, at)
		return true
	}
	return s.rest.Alloc(buffer, baseline.Request{Size: r.Size})
}

// place serves a request from the arena.
func (s *server) place(i int) (span, bool) {
	size := s.tl.Buffers[i].Size
	switch s.roles[i] {
	case roleOnline:
		return span{}, false
	case rolePrologue:
		return s.serveLine(&s.prologue[i], size)
	case roleStatic:
		return s.serveLine(s.advance(), size)
	case roleDynamic:
		return s.serveDynamic(s.slots[i], size)
	case roleOther:
		at, ok := smallestGap(s.arena, size, s.live, s.refused)
		return span{at, at + size}, ok
	}
	return span{}, false
}

// advance returns the next line. After the last comes the first again, whatever the program
// does.
func (s *server) advance() *line {
	if len(s.iteration) == 0 {
		return &line{offset: -1}
	}
	l := &s.iteration[s.cursor]
	s.cursor = (s.cursor + 1) % len(s.iteration)
	return l
}

// serveLine serves a request by a line if the sizes agree and the place is free. A place
// that is not free stays listed as in use, in STAlloc, although nobody has it: it is refused
// for the rest of the job.
func (s *server) serveLine(l *line, size trace.Bytes) (span, bool) {
	at := span{l.offset, l.offset + size}
	if l.offset < 0 || l.size != size {
		return at, false
	}
	if s.live.meets(at) || s.refused.meets(at) {
		s.refused.cover(at)
		return at, false
	}
	return at, true
}

// serveDynamic takes the smallest sufficient piece that is free and that the plan does not
// use while the request lives.
func (s *server) serveDynamic(slot int32, size trace.Bytes) (span, bool) {
	closed, ok := s.closed[slot]
	if !ok {
		closed = s.closedFor(slot)
		s.closed[slot] = closed
	}
	at, ok := smallestGap(s.arena, size, closed, s.live, s.refused)
	return span{at, at + size}, ok
}

// closedFor is what the plan uses of the arena while a slot of the body lives.
func (s *server) closedFor(slot int32) spans {
	d := &s.body.Slots[slot]
	all := []span{{0, s.resident}}
	for i := range s.iteration {
		l := &s.iteration[i]
		if o := &s.body.Slots[l.slot]; l.offset >= 0 && o.Start < max(d.RequestedEnd, d.Start+1) && o.RequestedEnd > d.Start {
			all = append(all, span{l.offset, l.offset + l.size})
		}
	}
	return union(all)
}

func (s *server) hold(buffer int32, at span) {
	s.given[buffer] = at
	s.live.add(at)
	s.allocated += at.high - at.low
}

// Free makes memory free at once: STAlloc does not know of streams, and neither does its
// caching allocator.
func (s *server) Free(buffer int32) {
	at, ok := s.given[buffer]
	if !ok {
		s.rest.Free(buffer)
		s.rest.Complete(buffer)
		return
	}
	delete(s.given, buffer)
	s.live.remove(at)
	s.allocated -= at.high - at.low
}

// Complete does nothing, for the same reason.
func (s *server) Complete(int32) {}

func (s *server) Refuse(buffer int32, r baseline.Request) {
	s.rest.Refuse(buffer, baseline.Request{Size: r.Size})
}

func (s *server) EmptyCache(unused []trace.PoolID) { s.rest.EmptyCache(unused) }
