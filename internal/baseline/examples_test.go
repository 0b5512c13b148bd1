package baseline

import (
	"testing"
	"time"

	"github.com/stplan/stplan/internal/trace"
)

// script drives an allocator by hand. Buffers are named by letters.
type script struct {
	t      *testing.T
	a      *caching
	base   uint64 // of the first segment
	events []segmentEvent
}

func newScript(t *testing.T, c Config) *script {
	t.Helper()
	r, err := c.rules()
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t: t}
	s.a = newCaching(r, &ladder{}, 256, func(e segmentEvent) {
		if s.base == 0 {
			s.base = e.addr
		}
		s.events = append(s.events, e)
	})
	return s
}

// alloc expects the buffer at an offset from the first segment, and this many bytes
// reserved afterwards.
func (s *script) alloc(name byte, size trace.Bytes, stream uint64, offset uint64, reserved trace.Bytes) {
	s.t.Helper()
	addr, ok := s.a.alloc(int32(name), Request{Size: size, Stream: stream})
	if !ok {
		s.t.Fatalf("%c: out of memory", name)
	}
	if got := addr - s.base; got != offset {
		s.t.Errorf("%c: offset %d, expected %d", name, got, offset)
	}
	s.reserved(reserved)
}

func (s *script) free(names string) {
	for _, n := range names {
		s.a.Free(n)
		s.a.Complete(n)
	}
}

func (s *script) reserved(want trace.Bytes) {
	s.t.Helper()
	if got := s.a.Stats().Usage.Reserved; got != want {
		s.t.Errorf("reserved %d, expected %d", got, want)
	}
}

func (s *script) allocated(want trace.Bytes) {
	s.t.Helper()
	if got := s.a.Stats().Usage.Allocated; got != want {
		s.t.Errorf("allocated %d, expected %d", got, want)
	}
}

func (s *script) last(want segmentEvent) {
	s.t.Helper()
	want.addr += s.base
	if got := s.events[len(s.events)-1]; got != want {
		s.t.Errorf("last dealing with the driver: %v, expected %v", got, want)
	}
}

// The expected offsets and sizes of these examples were derived by hand from
// PyTorch's source and confirmed by running it. Segments lie one above the other.
func TestRoundingAndClasses(t *testing.T) {
	s := newScript(t, Config{})
	s.alloc('A', 203, 0, 0, 2*mib)
	s.allocated(512)
	s.alloc('B', mib, 0, 0x200, 2*mib)
	s.alloc('C', mib+1, 0, 2<<20, 22*mib)
	s.allocated(512 + mib + mib + 512)
	s.alloc('D', 10*mib-1, 0, 3<<20+512, 22*mib)
	s.alloc('E', 10*mib-511, 0, 22<<20, 32*mib)
	s.alloc('F', 10*mib, 0, 32<<20, 42*mib)
	s.alloc('G', 30*mib+1, 0, 42<<20, 74*mib)
	s.allocated(512 + mib + mib + 512 + 3*10*mib + 30*mib + 512)
}

func TestUnsplitSlack(t *testing.T) {
	s := newScript(t, Config{})
	s.alloc('A', 30*mib, 0, 0, 30*mib)
	s.free("A")
	s.alloc('B', 29*mib, 0, 0, 30*mib)
	s.allocated(30 * mib)
	s.free("B")
	s.alloc('C', 29*mib-512, 0, 0, 30*mib)
	s.allocated(29*mib - 512)
	s.alloc('D', mib, 0, 30<<20, 32*mib)
}

func TestCoalescing(t *testing.T) {
	s := newScript(t, Config{})
	s.alloc('A', 40*mib, 0, 0, 40*mib)
	s.free("A")
	s.alloc('B', 10*mib, 0, 0, 40*mib)
	s.alloc('C', 10*mib, 0, 10<<20, 40*mib)
	s.free("B")
	s.alloc('D', 12*mib, 0, 20<<20, 40*mib)
	s.alloc('E', 9*mib, 0, 0, 40*mib)
	s.allocated(10*mib + 10*mib + 12*mib)
	s.free("CDE")
	s.a.EmptyCache(nil)
	s.last(segmentEvent{trace.ActionSegmentFree, 0, 40 * mib, 0})
	s.reserved(0)
}

func TestStreamsShareNothing(t *testing.T) {
	s := newScript(t, Config{})
	s.alloc('A', 40*mib, 0, 0, 40*mib)
	s.free("A")
	s.alloc('B', mib+512, 1, 40<<20, 60*mib)
	s.alloc('C', 100, 0, 60<<20, 62*mib)
}

func TestExpandableSegments(t *testing.T) {
	s := newScript(t, Config{Expandable: true})
	s.alloc('A', 30*mib, 0, 0, 40*mib)
	s.last(segmentEvent{trace.ActionSegmentMap, 0, 40 * mib, 0})
	s.alloc('B', 5*mib, 0, 30<<20, 40*mib)
	s.free("A")
	s.alloc('C', 50*mib, 0, 35<<20, 100*mib)
	s.last(segmentEvent{trace.ActionSegmentMap, 40 << 20, 60 * mib, 0})
	s.free("B")
	s.alloc('D', 31*mib, 0, 0, 100*mib)
	s.free("CD")
	s.a.EmptyCache(nil)
	s.last(segmentEvent{trace.ActionSegmentUnmap, 0, 100 * mib, 0})
	s.reserved(0)
	if p := &s.a.pools[0].large; p.free.root != nil || p.unmapped.root != nil {
		t.Error("the empty address space is still there")
	}
}

func TestMaxSplitSize(t *testing.T) {
	s := newScript(t, Config{MaxSplitSize: 64 * mib})
	s.alloc('A', 100*mib, 0, 0, 100*mib)
	s.free("A")
	s.alloc('B', 50*mib, 0, 100<<20, 150*mib)
	s.alloc('C', 90*mib, 0, 0, 150*mib)
	s.allocated(150 * mib)
	s.free("C")
	s.alloc('D', 75*mib, 0, 150<<20, 226*mib)
}

func TestDivisions(t *testing.T) {
	c, err := Config{}.Apply("roundup_power2_divisions:4")
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.rules()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ requested, want trace.Bytes }{
		{1200, 1536}, {5*mib + 1, 6 * mib}, {2049, 2560}, {2048, 2048}, {0, 512}, {511, 512}, {512, 512}, {4096, 4096},
	} {
		if got := r.divisions.Round(tc.requested); got != tc.want {
			t.Errorf("round(%d) = %d, expected %d", tc.requested, got, tc.want)
		}
	}
}

// crowd makes an allocator with n idle segments that has reached the threshold of
// the garbage collector: from now on every miss runs it.
func crowd(t testing.TB, n int) *caching {
	t.Helper()
	c := Config{DeviceMemory: trace.Bytes(n) * 48 * mib, MemoryFraction: 0.5, GCThreshold: 0.5}
	r, err := c.rules()
	if err != nil {
		t.Fatal(err)
	}
	a := newCaching(r, &ladder{}, 4*n, func(segmentEvent) {})
	for i := range int32(n) {
		a.alloc(i, Request{Size: 12 * mib})
	}
	for i := range int32(n) {
		a.Free(i)
		a.Complete(i)
		// A hit makes the rest older.
		a.alloc(int32(n)+i, Request{Size: 12 * mib})
		a.Free(int32(n) + i)
		a.Complete(int32(n) + i)
	}
	return a
}

// miss makes n requests that no idle segment can serve.
func miss(t testing.TB, a *caching, n int) {
	t.Helper()
	for i := range n {
		if _, ok := a.alloc(int32(2*n+i), Request{Size: 14 * mib, Stream: 7}); !ok {
			t.Fatal("out of memory")
		}
	}
}

// TestCrowdedCollector makes sure that the collector does not look at every idle
// segment at every miss, which would take minutes here.
func TestCrowdedCollector(t *testing.T) {
	const n = 30_000
	a := crowd(t, n)
	begin := time.Now()
	miss(t, a, n)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("%d misses among %d idle segments took %v", n, n, took)
	}
	if err := sound(a); err != nil {
		t.Error(err)
	}
}
