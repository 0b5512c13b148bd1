package stalloc

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

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
