package baseline

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/splitmix"
	"github.com/stplan/stplan/internal/trace"
)

// randomConfig draws settings that interact: small cards, small maximal split
// sizes, aggressive collection.
func randomConfig(r *rand.Rand) Config {
	c := Config{Expandable: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		c.LargeSegmentSize = trace.Bytes(12+2*r.IntN(10)) * mib
	}
	if r.IntN(2) == 0 {
		c.MaxSplitSize = c.largeSegment() + trace.Bytes(r.IntN(40))*mib
		if r.IntN(2) == 0 {
			c.MaxNonSplitRounding = c.largeSegment() + trace.Bytes(r.IntN(20))*mib
		}
	}
	if r.IntN(2) == 0 {
		for i := range c.Divisions {
			c.Divisions[i] = int64(1) << r.IntN(5)
		}
	}
	if r.IntN(2) == 0 {
		c.DeviceMemory = trace.Bytes(150+r.IntN(400)) * mib
		if r.IntN(2) == 0 {
			c.UsableMemory = c.DeviceMemory * 9 / 10
		}
		if r.IntN(2) == 0 {
			c.MemoryFraction = 0.5 + r.Float64()/2
			c.GCThreshold = r.Float64() * float64(r.IntN(2))
		}
	}
	return c
}

// player makes up a random program and keeps track of its live buffers.
type player struct {
	rand    *rand.Rand
	next    int32
	live    []int32
	waiting []int32
}

const playedBuffers = 4000

func randomRequest(r *rand.Rand) Request {
	sizes := []trace.Bytes{1 << 10, 64 << 10, mib, 3 * mib, 12 * mib, 40 * mib}
	q := Request{
		Size:   1 + trace.Bytes(r.Int64N(int64(sizes[r.IntN(len(sizes))]))),
		Stream: uint64(r.IntN(3)) * 7,
	}
	if r.IntN(10) == 0 {
		q.Pool = trace.PoolID{1 + r.Int64N(2), 0}
	}
	if r.IntN(4) == 0 {
		q.Size = sizes[r.IntN(len(sizes))] // exact sizes tie
	}
	return q
}

func (p *player) takeFrom(list *[]int32) int32 {
	i := p.rand.IntN(len(*list))
	b := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return b
}

// play does one random operation on both allocators and describes it.
func (p *player) play(t *testing.T, a *caching, b *naive) string {
	switch k := p.rand.IntN(100); {
	case k < 55 || len(p.live) == 0:
		q := randomRequest(p.rand)
		n := p.next
		p.next++
		addrA, okA := a.alloc(n, q)
		addrB, okB := b.alloc(n, q)
		if addrA != addrB || okA != okB {
			t.Fatalf("alloc %+v: 0x%x %t, reference 0x%x %t", q, addrA, okA, addrB, okB)
		}
		if okA {
			p.live = append(p.live, n)
		}
		return fmt.Sprintf("alloc %d %+v", n, q)
	case k < 90:
		n := p.takeFrom(&p.live)
		a.Free(n)
		b.free(n)
		if p.rand.IntN(4) > 0 {
			a.Complete(n)
			b.complete(n)
		} else {
			p.waiting = append(p.waiting, n)
		}
		return fmt.Sprintf("free %d", n)
	case k < 98 && len(p.waiting) > 0:
		n := p.takeFrom(&p.waiting)
		a.Complete(n)
		b.complete(n)
		return fmt.Sprintf("complete %d", n)
	case k == 99:
		var unused []trace.PoolID
		if p.rand.IntN(4) == 0 {
			unused = []trace.PoolID{{1, 0}}
		}
		a.EmptyCache(unused)
		b.emptyCache(unused)
		return "empty cache"
	}
	return ""
}

// TestAgainstReference runs random programs under random settings on caching and on
// naive. It expects the same addresses, segment events and counters after every
// operation, and a sound state. Expandable segments are switched on and off on the way
// unless there is a maximal split size: a segment that was split under one setting
// could be oversize under the other.
func TestAgainstReference(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := randomConfig(r)
		rules, err := c.rules()
		if err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, c, err)
		}
		var got, want []segmentEvent
		a := newCaching(rules, &ladder{}, playedBuffers, func(e segmentEvent) { got = append(got, e) })
		b := newNaive(c, &ladder{}, func(e segmentEvent) { want = append(want, e) })
		p := player{rand: r}
		for i := range 500 {
			if c.MaxSplitSize == 0 && r.IntN(50) == 0 {
				a.expandable = !a.expandable
				b.c.Expandable = a.expandable
			}
			act := p.play(t, a, b)
			if a.Stats().Usage != b.usage() || !slices.Equal(got, want) {
				t.Fatalf("seed %d, act %d, %s, under %+v:\n%+v %v\nreference:\n%+v %v", seed, i, act, c, a.Stats().Usage, got, b.usage(), want)
			}
			got, want = got[:0], want[:0]
			if i%16 == 0 {
				if err := sound(a); err != nil {
					t.Fatalf("seed %d, act %d, %s, under %+v: %v", seed, i, act, c, err)
				}
			}
		}
	}
}

// sound checks everything that must hold between operations.
func sound(a *caching) error {
	inSet := make(map[*block]bool)
	var heads []*block
	head := func(b *block) {
		for b.prev != nil {
			b = b.prev
		}
		heads = append(heads, b)
	}
	for _, p := range a.pools {
		for _, half := range []*pool{&p.large, &p.small} {
			for _, s := range []*set{&half.free, &half.unmapped} {
				blocks := s.blocks()
				for i, b := range blocks {
					if i > 0 && !blocks[i-1].key.less(b.key) {
						return fmt.Errorf("set out of order at 0x%x", b.addr)
					}
					if !b.idle() || b.unmapped != (s == &half.unmapped) || b.pool != half {
						return fmt.Errorf("block 0x%x is in the wrong set", b.addr)
					}
					inSet[b] = true
					head(b)
				}
			}
			if err := soundCache(half); err != nil {
				return err
			}
		}
	}
	for _, b := range a.live {
		if b != nil {
			head(b)
		}
	}
	slices.SortFunc(heads, func(x, y *block) int { return cmp.Compare(x.addr, y.addr) })
	return soundSegments(slices.Compact(heads), inSet, a.Stats().Usage)
}

// soundCache compares the garbage collector's figures with the free blocks.
func soundCache(p *pool) error {
	var want, got cache
	native := make(map[*block]bool)
	for _, b := range p.free.blocks() {
		if b.whole() {
			want.count++
			want.since += b.since
			native[b] = b.space == nil
		}
	}
	got.count, got.since = p.cache.count, p.cache.since
	if got != want {
		return fmt.Errorf("the collector counts %+v, expected %+v", got, want)
	}
	before := int64(0)
	for b := p.cache.native.first; b != nil; b = b.later {
		if !native[b] || b.since < before {
			return fmt.Errorf("the collector has block 0x%x in the wrong place", b.addr)
		}
		before = b.since
		delete(native, b)
	}
	for b, missing := range native {
		if missing {
			return fmt.Errorf("the collector lacks block 0x%x", b.addr)
		}
	}
	return nil
}

func soundSegments(heads []*block, inSet map[*block]bool, want Usage) error {
	var sum Usage
	end := uint64(0)
	for _, b := range heads {
		if b.addr < end {
			return fmt.Errorf("segment at 0x%x overlaps the one before", b.addr)
		}
		for ; b != nil; b = b.next {
			end = b.end()
			if n := b.next; n != nil {
				if n.prev != b || n.addr != end || n.pool != b.pool || n.stream != b.stream || n.space != b.space {
					return fmt.Errorf("blocks at 0x%x and 0x%x are not neighbours", b.addr, n.addr)
				}
				if b.idle() && n.idle() && b.unmapped == n.unmapped {
					return fmt.Errorf("idle blocks at 0x%x and 0x%x are not merged", b.addr, n.addr)
				}
			}
			if b.idle() != inSet[b] {
				return fmt.Errorf("block at 0x%x: idle %t, in a set %t", b.addr, b.idle(), inSet[b])
			}
			if b.size <= 0 || b.size%minBlock != 0 {
				return fmt.Errorf("block at 0x%x has %d B", b.addr, b.size)
			}
			if !b.unmapped {
				sum.Reserved += b.size
			}
			if b.used {
				sum.Allocated += b.size
			}
			if b.used || b.waiting {
				sum.Active += b.size
			}
		}
	}
	if sum != want || sum.Allocated > sum.Active || sum.Active > sum.Reserved {
		return fmt.Errorf("blocks add up to %+v, counted %+v", sum, want)
	}
	return nil
}

func TestSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s set
	var ranks uint64
	var all []*block
	probe := func() key {
		return key{stream: uint64(r.IntN(3)), size: trace.Bytes(r.IntN(8)), addr: uint64(r.IntN(40))}
	}
	for range 4000 {
		if r.IntN(2) == 0 || len(all) == 0 {
			b := &block{rank: splitmix.Next(&ranks)}
			s.insert(b, probe())
			all = append(all, b)
		} else {
			i := r.IntN(len(all))
			s.remove(all[i])
			all = slices.Delete(all, i, i+1)
		}
		slices.SortFunc(all, func(a, b *block) int {
			if a.key.less(b.key) {
				return -1
			}
			return 1
		})
		if got := s.blocks(); !slices.Equal(got, all) {
			t.Fatalf("set has %d blocks, or another order, expected %d", len(got), len(all))
		}
		k := probe()
		i := slices.IndexFunc(all, func(b *block) bool { return !b.key.less(k) })
		var ceiling, before *block
		if i >= 0 {
			ceiling = all[i]
		} else {
			i = len(all)
		}
		if i > 0 {
			before = all[i-1]
		}
		if s.ceiling(k) != ceiling || s.before(k) != before {
			t.Fatalf("neighbours of %+v are wrong", k)
		}
		if ceiling != nil && i+1 < len(all) && s.after(ceiling.key) != all[i+1] {
			t.Fatalf("successor of %+v is wrong", ceiling.key)
		}
	}
}
