package baseline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// lakeChunks are the addresses of a buffer's chunks, in its order.
func lakeChunks(o *lakeOwner) (all []uint64) {
	if o.piece != nil {
		for i := o.piece.low; i < o.piece.high; i++ {
			all = append(all, o.piece.segment.addr+uint64(i)*uint64(lakeChunkSize))
		}
		return all
	}
	for _, c := range o.stitched.chunks[:o.stitched.used] {
		all = append(all, c.piece.segment.addr+uint64(c.index)*uint64(lakeChunkSize))
	}
	return all
}

// checkLake checks what holds between two operations: pieces cover their segments, free
// ones are listed and have no free neighbour, each chunk in use has one buffer, the
// counts of stitched blocks are true, and what is reserved is what was taken.
func checkLake(g *lake) error {
	physical, listed := g.native.stats.Reserved, 0
	for s := range g.segments {
		physical += trace.Bytes(len(s.chunks)) * lakeChunkSize
		for i := 0; i < len(s.chunks); {
			p := s.chunks[i].piece
			if p.segment != s || p.low != i || p.high <= i || (p.prev == nil) != (i == 0) || (p.next == nil) != (p.high == len(s.chunks)) {
				return fmt.Errorf("chunk %d is in a piece from %d to %d", i, p.low, p.high)
			}
			for ; i < p.high; i++ {
				if s.chunks[i].piece != p || s.chunks[i].index != i {
					return fmt.Errorf("chunk %d is not its piece's", i)
				}
			}
			if p.used {
				continue
			}
			listed++
			if k := g.free.ceiling(p.key()); k == len(g.free.items) || g.free.items[k] != p {
				return fmt.Errorf("a free piece at chunk %d is not listed", p.low)
			}
			if p.next != nil && !p.next.used {
				return fmt.Errorf("two free pieces at chunk %d", p.high)
			}
		}
	}
	if listed != len(g.free.items) || physical != g.stats.Reserved {
		return fmt.Errorf("%d free pieces, %d listed; %d B reserved, expected %d", listed, len(g.free.items), g.stats.Reserved, physical)
	}
	return checkLakeBlocks(g)
}

func checkLakeBlocks(g *lake) error {
	users, used := map[uint64]int{}, trace.Bytes(0)
	for b, o := range g.live {
		if o == nil {
			continue
		}
		for _, c := range lakeChunks(o) {
			if other, taken := users[c]; taken {
				return fmt.Errorf("buffers %d and %d have the chunk at %#x", other, b, c)
			}
			users[c] = b
			used += lakeChunkSize
		}
	}
	if used != g.stats.Active {
		return fmt.Errorf("%d B in use, %d counted", used, g.stats.Active)
	}
	ready, space := 0, trace.Bytes(0)
	for _, s := range g.blocks {
		busy := 0
		for _, c := range s.chunks {
			if c.piece.used {
				busy++
			}
		}
		if !s.doomed && busy != s.busy {
			return fmt.Errorf("a stitched block has %d chunks in use, %d counted", busy, s.busy)
		}
		space += s.size()
		if s.used == 0 && busy == 0 {
			ready++
		}
		if s.used == 0 && s.doomed {
			return fmt.Errorf("a doomed block is idle")
		}
	}
	if ready != len(g.ready.items) || space != g.space {
		return fmt.Errorf("%d blocks are ready, %d listed; %d B stitched, %d counted", ready, len(g.ready.items), space, g.space)
	}
	return nil
}

// randomLake draws settings and a card that are small enough to be felt.
func randomLake(r *rand.Rand) (rules, lakeConfig) {
	c := lakeConfig{
		fragLimit: trace.Bytes(r.IntN(12)) * mib, reuseLimit: trace.Bytes(1 + r.IntN(4)),
		defragLevel: r.IntN(3), autoGC: trace.Bytes(40+r.IntN(400)) * mib,
	}
	if r.IntN(3) == 0 {
		c = lakePaper
		c.autoGC = trace.Bytes(40+r.IntN(4000)) * mib
	}
	return rules{maxSplit: unlimited, largeUnit: roundLarge, nonSplit: defaultLargeSegment, largeSegment: defaultLargeSegment,
		allowed: -1, capacity: trace.Bytes(60+r.IntN(200)) * mib}, c
}

// TestLakeIsTheNaiveOne plays random programs on small cards on both implementations, and
// expects the same chunks in the same order, the same retries and what checkLake checks.
func TestLakeIsTheNaiveOne(t *testing.T) {
	var stitches, reuses, failures int
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 3))
		rules, c := randomLake(r)
		g := newLake(rules, c, &ladder{}, 400)
		l := &naiveLake{settings: c, capacity: int(rules.capacity / lakeChunkSize), live: map[int32]naiveHold{}}
		var live []int32
		for n := range int32(400) {
			switch k := r.IntN(100); {
			case k < 60 || len(live) == 0:
				chunks, stream := 1+r.IntN(1<<r.IntN(6)), uint64(r.IntN(2))
				size := trace.Bytes(chunks)*lakeChunkSize - trace.Bytes(r.IntN(int(mib)-1))
				before := len(l.stitched)
				ok, okNaive := g.Alloc(n, Request{Size: size, Stream: stream}), l.alloc(n, chunks, stream)
				if ok != okNaive || ok && !slices.Equal(lakeChunks(g.live[n]), l.live[n].chunks) {
					t.Fatalf("seed %d: request %d of %d chunks: %t, reference %t", seed, n, chunks, ok, okNaive)
				}
				switch {
				case !ok:
					failures++
				case l.joined:
					stitches++
				case l.live[n].stitched != nil && before == len(l.stitched):
					reuses++
				}
				if ok {
					live = append(live, n)
				}
			case k < 99:
				i := r.IntN(len(live))
				g.Free(live[i])
				g.Complete(live[i])
				l.free(live[i])
				live = slices.Delete(live, i, i+1)
			default:
				g.EmptyCache(nil)
				l.emptyCache()
			}
			if err := checkLake(g); err != nil {
				t.Fatalf("seed %d, operation %d: %v", seed, n, err)
			}
			if want := trace.Bytes(l.reserved()) * lakeChunkSize; g.stats.Reserved != want || g.stats.Retries != l.retries {
				t.Fatalf("seed %d, operation %d: %d B reserved, %d retries, reference %d and %d", seed, n, g.stats.Reserved, g.stats.Retries, want, l.retries)
			}
		}
	}
	if stitches < 100 || reuses < 100 || failures < 100 {
		t.Errorf("%d stitched, %d reused, %d failed: this tests little", stitches, reuses, failures)
	}
}

// TestLakeWithSmallBlocks mixes in small requests, private pools and delayed frees, on cards
// that are too small, and expects what checkLake checks after each operation and that
// reserved memory stays within the card.
func TestLakeWithSmallBlocks(t *testing.T) {
	retries := 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 5))
		rules, c := randomLake(r)
		g := newLake(rules, c, &ladder{}, 600)
		p := lakePlayer{player{rand: r}, g}
		for i := range 600 {
			p.play()
			if err := checkLake(g); err != nil {
				t.Fatalf("seed %d, operation %d: %v", seed, i, err)
			}
			if s := g.Stats(); s.Allocated > s.Active || s.Active > s.Reserved || s.Reserved > rules.capacity {
				t.Fatalf("seed %d, operation %d: %+v on a card of %d B", seed, i, s, rules.capacity)
			}
		}
		retries += g.stats.Retries
	}
	if retries == 0 {
		t.Error("no retries: this tests little")
	}
}

// lakePlayer makes up a random program for one lake.
type lakePlayer struct {
	player
	g *lake
}

func (p *lakePlayer) play() {
	switch k := p.rand.IntN(100); {
	case k < 60 || len(p.live) == 0:
		if p.g.Alloc(p.next, randomRequest(p.rand)) {
			p.live = append(p.live, p.next)
		}
		p.next++
	case k < 90:
		n := p.takeFrom(&p.live)
		p.g.Free(n)
		if p.rand.IntN(3) > 0 {
			p.g.Complete(n)
		} else {
			p.waiting = append(p.waiting, n)
		}
	case k < 97 && len(p.waiting) > 0:
		p.g.Complete(p.takeFrom(&p.waiting))
	case k == 97:
		p.g.Refuse(p.next, Request{Size: 64 * mib})
		p.next++
	case k == 98:
		p.g.EmptyCache(nil)
	}
}

// lakeScript drives a lake by hand, on a card without limits. Buffers are named by letters.
type lakeScript struct {
	t *testing.T
	g *lake
}

func newLakeScript(t *testing.T, c lakeConfig) *lakeScript {
	t.Helper()
	r, err := Config{}.rules()
	if err != nil {
		t.Fatal(err)
	}
	return &lakeScript{t, newLake(r, c, &ladder{}, 256)}
}

// alloc expects what is reserved afterwards, in MiB, and the first MiB of each run of
// chunks that the buffer has, from the first address on.
func (s *lakeScript) alloc(name byte, size trace.Bytes, reserved trace.Bytes, runs ...uint64) {
	s.t.Helper()
	if !s.g.Alloc(int32(name), Request{Size: size}) {
		s.t.Fatalf("%c: out of memory", name)
	}
	if got := s.g.stats.Reserved; got != reserved*mib {
		s.t.Errorf("%c: %d MiB reserved, expected %d", name, got/mib, reserved)
	}
	var got []uint64
	if o := s.g.live[name]; o != nil {
		for i, c := range lakeChunks(o) {
			if all := lakeChunks(o); i == 0 || all[i-1]+uint64(lakeChunkSize) != c {
				got = append(got, (c-1<<32)>>20)
			}
		}
	}
	if !slices.Equal(got, runs) {
		s.t.Errorf("%c: runs at %d MiB, expected %d", name, got, runs)
	}
}

func (s *lakeScript) free(names string) {
	for _, n := range names {
		s.g.Free(n)
		s.g.Complete(n)
	}
}

// TestLakeRounding: what is larger than 1 MiB is rounded to chunks, in segments of the
// native allocator's sizes.
func TestLakeRounding(t *testing.T) {
	s := newLakeScript(t, lakeCode)
	s.alloc('a', mib+1, 20, 0)       // 2 MiB of a 20 MiB segment
	s.alloc('b', 18*mib, 20, 2)      // all of the rest
	s.alloc('c', 30*mib+1, 52, 20)   // 32 MiB
	s.alloc('d', mib, 54)            // small: a native segment of 2 MiB
	s.alloc('e', 9*mib, 64, 54)      // 10 MiB, and so a segment of its own
	s.alloc('f', 8*mib, 84, 64)      // 8 MiB of 20
	s.alloc('g', 10*mib-511, 84, 72) // 10 MiB of the rest
	if s.g.Stats().Allocated != 2*mib+18*mib+32*mib+mib+10*mib+8*mib+10*mib {
		t.Errorf("allocated %d", s.g.Stats().Allocated)
	}
}

// TestLakeStitches: pieces that are too small alone are stitched from 512 MiB on, the
// largest first, and no memory is taken for that.
func TestLakeStitches(t *testing.T) {
	s := newLakeScript(t, lakeCode)
	s.alloc('a', 300*mib, 300, 0)
	s.alloc('x', 100*mib, 400, 300)
	s.alloc('b', 400*mib, 800, 400)
	s.free("ab")
	s.alloc('c', 500*mib, 1300, 800) // below the limit: new memory
	s.free("c")
	s.alloc('d', 700*mib, 1300, 800, 400) // 500 and 200 of b's 400
	s.free("d")
	// Stitched again to another size: d's block is too small, and pieces are merged again.
	s.alloc('e', 1000*mib, 1300, 800, 400, 0)
	s.free("e")
	s.alloc('f', 450*mib, 1300, 800)    // a piece, although stitched blocks are ready
	s.alloc('g', 600*mib, 1300, 400, 0) // neither block is ready, since f has some of their chunks
	s.free("f")
	s.alloc('h', 700*mib, 2000, 1300+700+1000+600) // 600 are free; behind three stitched ranges
}

// TestLakeReuses: a ready stitched block serves a request that no piece can, also with some
// of its chunks only. Its other chunks stay free for others.
func TestLakeReuses(t *testing.T) {
	s := newLakeScript(t, lakeCode)
	s.alloc('a', 300*mib, 300, 0)
	s.alloc('x', 100*mib, 400, 300)
	s.alloc('b', 300*mib, 700, 400)
	s.free("ab")
	s.alloc('c', 600*mib, 700, 400, 0) // of the same size the higher is the larger
	s.free("c")
	s.alloc('d', 400*mib, 700, 400, 0) // below the limit, by c's block
	s.alloc('e', 200*mib, 700, 100)    // what is left of a
	s.free("d")
	s.alloc('f', 350*mib, 1050, 1300) // e has chunks of c's block
	s.free("e")
	s.alloc('g', 600*mib, 1050, 400, 0) // and now it is ready
}

// TestLakePolicies: the code prefers a larger piece to a stitched block of the very size, the
// paper the reverse. If memory is missing, the code takes all of it, the paper the rest.
func TestLakePolicies(t *testing.T) {
	for _, tc := range []struct {
		settings lakeConfig
		exact    []uint64 // of a request of 600 MiB
		reserved trace.Bytes
		missing  []uint64 // of one of 1600 MiB, if 800 are free
	}{
		{lakeCode, []uint64{1300}, 3100, []uint64{2100}},
		{lakePaper, []uint64{400, 0}, 2300, []uint64{2100, 1300}},
	} {
		s := newLakeScript(t, tc.settings)
		s.alloc('a', 300*mib, 300, 0)
		s.alloc('x', 100*mib, 400, 300)
		s.alloc('b', 300*mib, 700, 400)
		s.free("ab")
		s.alloc('c', 600*mib, 700, 400, 0)
		s.alloc('d', 800*mib, 1500, 700+600) // behind c's stitched range
		s.free("cd")
		s.alloc('e', 600*mib, 1500, tc.exact...)
		s.alloc('f', 1600*mib, tc.reserved, tc.missing...)
	}
}

// TestLakeCollects: more stitched addresses than the limit drop every idle stitched block,
// so that the next request is stitched anew.
func TestLakeCollects(t *testing.T) {
	settings := lakeCode
	settings.autoGC = 1100 * mib
	s := newLakeScript(t, settings)
	s.alloc('a', 300*mib, 300, 0)
	s.alloc('x', 100*mib, 400, 300)
	s.alloc('b', 300*mib, 700, 400)
	s.free("ab")
	s.alloc('c', 600*mib, 700, 400, 0)
	s.free("c")
	if s.g.space != 600*mib || len(s.g.ready.items) != 1 {
		t.Errorf("%d B stitched, %d ready", s.g.space, len(s.g.ready.items))
	}
	s.alloc('y', 2*mib, 700, 0)
	s.alloc('d', 520*mib, 700, 400, 2) // c's block is busy; 1120 MiB are too much
	if s.g.space != 520*mib || len(s.g.blocks) != 1 {
		t.Errorf("%d B stitched in %d blocks", s.g.space, len(s.g.blocks))
	}
}

// TestPeersWithin: with one byte less than what an allocator takes, it runs out of memory or
// gets by with less, and never takes more than there is.
func TestPeersWithin(t *testing.T) {
	d, c := readFixture(t, "default", "")
	p, err := ReadProgram(d, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range append(Allocators(c), Peers(c)...) {
		whole, err := Simulate(p, a, nil)
		if err != nil || whole.OOM != nil {
			t.Fatalf("%s: %+v, %v", a.Title, whole, err)
		}
		for _, usable := range []trace.Bytes{whole.PeakReserved, whole.PeakReserved - 1, whole.PeakActive - 1} {
			r, err := Simulate(p, a.Within(usable, usable), nil)
			ranOut := r.OOM != nil
			if err != nil || r.PeakReserved > usable || usable == whole.PeakReserved && (ranOut || r.Retries > 0) || usable < whole.PeakActive && !ranOut {
				t.Errorf("%s with %d B of %d: %+v, %v", a.Title, usable, whole.PeakReserved, r, err)
			}
		}
	}
}
