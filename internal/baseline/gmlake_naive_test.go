package baseline

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// naiveLake is GMLake by its description, with nothing kept but which buffer has which
// chunk. Free pieces are the longest runs of free chunks, found by looking at all of them,
// and a stitched block is ready if a look at its chunks says so. It knows large requests of
// the default pool only.
type naiveLake struct {
	settings lakeConfig
	capacity int // chunks
	driver   ladder
	segments []naiveSegment
	stitched []*naiveStitched
	live     map[int32]naiveHold
	retries  int
	joined   bool // the request at work made a stitched block
}

type naiveSegment struct {
	addr   uint64
	stream uint64
	owner  []int32 // by chunk: the buffer that uses it, -1 for none
}

type naiveStitched struct {
	addr, stream uint64
	chunks       []uint64 // addresses
	buffer       int32    // -1 if idle
	doomed       bool
}

// naiveHold is what a buffer has: its chunks, by address, in its order.
type naiveHold struct {
	chunks   []uint64
	stitched *naiveStitched
}

// naiveRun is a free piece.
type naiveRun struct {
	addr uint64
	n    int
}

func (l *naiveLake) chunk(addr uint64) *int32 {
	for i := range l.segments {
		s := &l.segments[i]
		if at := int64(addr-s.addr) / int64(lakeChunkSize); addr >= s.addr && at < int64(len(s.owner)) {
			return &s.owner[at]
		}
	}
	return nil
}

// runs lists the free pieces of a stream, the smallest first.
func (l *naiveLake) runs(stream uint64) []naiveRun {
	var all []naiveRun
	for _, s := range l.segments {
		if s.stream != stream {
			continue
		}
		for i := 0; i < len(s.owner); i++ {
			n := 0
			for i+n < len(s.owner) && s.owner[i+n] < 0 {
				n++
			}
			if n > 0 {
				all = append(all, naiveRun{s.addr + uint64(i)*uint64(lakeChunkSize), n})
			}
			i += n
		}
	}
	slices.SortFunc(all, func(a, b naiveRun) int { return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.addr, b.addr)) })
	return all
}

func (l *naiveLake) isReady(s *naiveStitched) bool {
	return s.buffer < 0 && !slices.ContainsFunc(s.chunks, func(c uint64) bool { return *l.chunk(c) >= 0 })
}

func (l *naiveLake) reserved() (chunks int) {
	for _, s := range l.segments {
		chunks += len(s.owner)
	}
	return chunks
}

func (r naiveRun) chunks(n int) (c []uint64) {
	for i := range n {
		c = append(c, r.addr+uint64(i)*uint64(lakeChunkSize))
	}
	return c
}

func (l *naiveLake) alloc(buffer int32, n int, stream uint64) bool {
	l.joined = false
	h, ok := l.find(n, stream)
	if !ok {
		return false
	}
	for _, c := range h.chunks {
		*l.chunk(c) = buffer
	}
	if h.stitched != nil {
		h.stitched.buffer = buffer
	}
	l.live[buffer] = h
	if l.joined {
		l.collectIfMuch()
	}
	return true
}

func (l *naiveLake) find(n int, stream uint64) (naiveHold, bool) {
	steps := []func(int, uint64) (naiveHold, bool){
		l.fromPiece, l.fromReady, l.level(0), l.fresh, l.level(1), l.retry(l.fresh), l.level(2),
	}
	if l.settings.paper {
		steps = []func(int, uint64) (naiveHold, bool){
			l.exactReady, l.fromPiece, l.level(0), l.completed, l.retry(l.completed),
		}
	}
	for _, step := range steps {
		if h, ok := step(n, stream); ok {
			return h, true
		}
	}
	return naiveHold{}, false
}

func (l *naiveLake) fromPiece(n int, stream uint64) (naiveHold, bool) {
	for _, r := range l.runs(stream) {
		if r.n >= n {
			return naiveHold{chunks: r.chunks(n)}, true
		}
	}
	return naiveHold{}, false
}

func (l *naiveLake) fromReady(n int, stream uint64) (naiveHold, bool) {
	var best *naiveStitched
	for _, s := range l.stitched {
		if s.stream == stream && len(s.chunks) >= n && l.isReady(s) &&
			(best == nil || cmp.Or(cmp.Compare(len(s.chunks), len(best.chunks)), cmp.Compare(s.addr, best.addr)) < 0) {
			best = s
		}
	}
	if best == nil || len(best.chunks) > n*int(l.settings.reuseLimit) {
		return naiveHold{}, false
	}
	return naiveHold{best.chunks[:n], best}, true
}

// exactReady prefers a piece that fits exactly.
func (l *naiveLake) exactReady(n int, stream uint64) (naiveHold, bool) {
	if slices.ContainsFunc(l.runs(stream), func(r naiveRun) bool { return r.n == n }) {
		return l.fromPiece(n, stream)
	}
	return l.fromReady(n, stream)
}

func (l *naiveLake) level(level int) func(int, uint64) (naiveHold, bool) {
	return func(n int, stream uint64) (naiveHold, bool) {
		runs := l.runs(stream)
		if level < l.settings.defragLevel || trace.Bytes(n)*lakeChunkSize < l.settings.fragLimit || len(runs) < 2 {
			return naiveHold{}, false
		}
		return l.join(runs, n, stream)
	}
}

// join stitches the largest pieces.
func (l *naiveLake) join(runs []naiveRun, n int, stream uint64) (naiveHold, bool) {
	var chunks []uint64
	for _, r := range slices.Backward(runs) {
		chunks = append(chunks, r.chunks(min(r.n, n-len(chunks)))...)
	}
	if len(chunks) < n {
		return naiveHold{}, false
	}
	s := &naiveStitched{stream: stream, chunks: chunks, buffer: -1}
	s.addr, _ = l.driver.reserve(trace.Bytes(n) * lakeChunkSize)
	l.stitched, l.joined = append(l.stitched, s), true
	return naiveHold{chunks, s}, true
}

func (l *naiveLake) segment(n int, stream uint64) (naiveRun, bool) {
	if l.reserved()+n > l.capacity {
		return naiveRun{}, false
	}
	s := naiveSegment{stream: stream, owner: slices.Repeat([]int32{-1}, n)}
	s.addr, _ = l.driver.reserve(trace.Bytes(n) * lakeChunkSize)
	l.segments = append(l.segments, s)
	return naiveRun{s.addr, n}, true
}

func (l *naiveLake) fresh(n int, stream uint64) (naiveHold, bool) {
	class := n
	if n < 5 { // less than 10 MiB
		class = 10
	}
	r, ok := l.segment(class, stream)
	return naiveHold{chunks: r.chunks(min(n, r.n))}, ok
}

func (l *naiveLake) completed(n int, stream uint64) (naiveHold, bool) {
	runs, free := l.runs(stream), 0
	for _, r := range runs {
		free += r.n
	}
	if free >= n {
		return l.join(runs, n, stream)
	}
	r, ok := l.segment(n-free, stream)
	if !ok || free == 0 {
		return naiveHold{chunks: r.chunks(r.n)}, ok
	}
	return l.join(l.runs(stream), n, stream)
}

func (l *naiveLake) retry(then func(int, uint64) (naiveHold, bool)) func(int, uint64) (naiveHold, bool) {
	return func(n int, stream uint64) (naiveHold, bool) {
		l.retries++
		l.giveBack()
		return then(n, stream)
	}
}

// giveBack returns the segments that nothing uses, and drops what maps them.
func (l *naiveLake) giveBack() {
	gone := func(s naiveSegment) bool {
		return !slices.ContainsFunc(s.owner, func(b int32) bool { return b >= 0 })
	}
	for _, s := range l.segments {
		if !gone(s) {
			continue
		}
		for _, q := range l.stitched {
			q.doomed = q.doomed || slices.ContainsFunc(q.chunks, func(c uint64) bool {
				return c >= s.addr && c < s.addr+uint64(len(s.owner))*uint64(lakeChunkSize)
			})
		}
	}
	l.stitched = slices.DeleteFunc(l.stitched, func(q *naiveStitched) bool { return q.doomed && q.buffer < 0 })
	l.segments = slices.DeleteFunc(l.segments, gone)
}

func (l *naiveLake) free(buffer int32) {
	h := l.live[buffer]
	delete(l.live, buffer)
	for _, c := range h.chunks {
		*l.chunk(c) = -1
	}
	if q := h.stitched; q != nil {
		q.buffer = -1
		if q.doomed {
			l.stitched = slices.DeleteFunc(l.stitched, func(o *naiveStitched) bool { return o == q })
		}
	}
}

func (l *naiveLake) dropIdle() {
	l.stitched = slices.DeleteFunc(l.stitched, func(q *naiveStitched) bool { return q.buffer < 0 })
}

func (l *naiveLake) emptyCache() {
	l.dropIdle()
	l.giveBack()
}

// collectIfMuch drops idle stitched blocks if too much is stitched.
func (l *naiveLake) collectIfMuch() {
	sum := 0
	for _, q := range l.stitched {
		sum += len(q.chunks)
	}
	if trace.Bytes(sum)*lakeChunkSize > l.settings.autoGC {
		l.dropIdle()
	}
}
