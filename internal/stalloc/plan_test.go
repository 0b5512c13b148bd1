package stalloc

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

func randomItems(r *rand.Rand, n int) []item {
	items := make([]item, n)
	for i := range items {
		start := trace.Time(r.IntN(3 * n))
		items[i] = item{start: start, end: start + 1 + trace.Time(r.IntN(1+r.IntN(n))), size: 512 * trace.Bytes(1+r.IntN(1+r.IntN(60))), line: &line{}}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.start, b.start) })
	return items
}

func meet(a, b *item) bool { return a.start < b.end && b.start < a.end }

// naiveOffsets places items as packer describes, looking at every item and every border each
// time: at the lowest multiple of 512 at which nothing is in the way.
func naiveOffsets(items []item, layered bool) (offsets []trace.Bytes, top trace.Bytes) {
	offsets = make([]trace.Bytes, len(items))
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(items[b].size, items[a].size) })
	borders := map[trace.Bytes]bool{}
	for n, i := range order {
		free := func(at trace.Bytes) bool {
			for _, j := range order[:n] {
				if meet(&items[i], &items[j]) && at < offsets[j]+items[j].size && offsets[j] < at+items[i].size {
					return false
				}
			}
			for b := range borders {
				if layered && at < b && b < at+items[i].size {
					return false
				}
			}
			return true
		}
		for !free(offsets[i]) {
			offsets[i] += 512
		}
		if end := offsets[i] + items[i].size; end > top {
			top = end
			borders[top] = true
		}
	}
	return offsets, top
}

// TestPackerIsTheNaiveOne compares the offsets, and checks what must hold of any packing:
// nothing overlaps, and nothing is below the load.
func TestPackerIsTheNaiveOne(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		items := randomItems(r, 1+r.IntN(60))
		for _, layered := range []bool{false, true} {
			k := newPacker(items, layered)
			want, top := naiveOffsets(items, layered)
			if k.top != top || k.top < maxLoad(items) {
				t.Fatalf("seed %d, layered %t: %d B, reference %d, load %d", seed, layered, k.top, top, maxLoad(items))
			}
			for i := range k.items {
				if k.items[i].offset != want[i] {
					t.Fatalf("seed %d, layered %t, item %d: at %d, reference %d", seed, layered, i, k.items[i].offset, want[i])
				}
				for j := range i {
					if meet(&items[i], &items[j]) && (spans{k.items[j].at()}).meets(k.items[i].at()) {
						t.Fatalf("seed %d: items %d and %d overlap", seed, i, j)
					}
				}
			}
		}
	}
}

// TestMaxLoad compares the load with a count at each time.
func TestMaxLoad(t *testing.T) {
	for seed := range uint64(50) {
		items := randomItems(rand.New(rand.NewPCG(seed, 2)), 40)
		most := trace.Bytes(0)
		for at := range trace.Time(200) {
			load := trace.Bytes(0)
			for i := range items {
				if items[i].start <= at && at < items[i].end {
					load += items[i].size
				}
			}
			most = max(most, load)
		}
		if got := maxLoad(items); got != most {
			t.Fatalf("seed %d: %d, expected %d", seed, got, most)
		}
	}
}

// TestSpans compares the lists of an arena with an array of its bytes.
func TestSpans(t *testing.T) {
	const end = 60
	r := rand.New(rand.NewPCG(4, 4))
	random := func() span {
		low := trace.Bytes(r.IntN(end))
		return span{low, low + 1 + trace.Bytes(r.IntN(int(min(12, end-low))))}
	}
	for range 400 {
		var live, covered spans
		var all []span
		var isLive, isCovered [end]bool
		fill := func(of *[end]bool, s span) {
			for i := s.low; i < s.high; i++ {
				of[i] = true
			}
		}
		for range r.IntN(8) {
			if s := random(); !live.meets(s) {
				live.add(s)
				fill(&isLive, s)
			}
			s := random()
			covered.cover(s)
			all = append(all, s)
			fill(&isCovered, s)
		}
		if len(live) > 1 && r.IntN(2) == 0 {
			s := live[r.IntN(len(live))]
			live.remove(s)
			for i := s.low; i < s.high; i++ {
				isLive[i] = false
			}
		}
		var taken [end]bool
		for i := range taken {
			at := span{trace.Bytes(i), trace.Bytes(i) + 1}
			if live.meets(at) != isLive[i] || covered.meets(at) != isCovered[i] || union(slices.Clone(all)).meets(at) != isCovered[i] {
				t.Fatalf("byte %d: live %v, covered %v of %v", i, live, covered, all)
			}
			taken[i] = isLive[i] || isCovered[i]
		}
		size := trace.Bytes(1 + r.IntN(6))
		at, ok := smallestGap(end, size, live, covered)
		if wantAt, wantOk := naiveGap(taken[:], int(size)); ok != wantOk || ok && int(at) != wantAt {
			t.Fatalf("a gap of %d in %v and %v: at %d %t, expected %d %t", size, live, covered, at, ok, wantAt, wantOk)
		}
	}
}

func naiveGap(taken []bool, size int) (at int, ok bool) {
	best := len(taken) + 1
	for i := 0; i < len(taken); i++ {
		n := 0
		for i+n < len(taken) && !taken[i+n] {
			n++
		}
		if n >= size && n < best {
			best, at = n, i
		}
		i += n
	}
	return at, best <= len(taken)
}
