package stalloc

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// randomItems are items of few sizes, so that many share a layer, by start. No two events
// are at the same line.
func randomItems(r *rand.Rand, n int) (items []*item, lines int) {
	at := r.Perm(2 * n)
	for i := range n {
		start, end := min(at[2*i], at[2*i+1]), max(at[2*i], at[2*i+1])
		items = append(items, &item{start: 1 + start, end: 1 + end, size: 512 * trace.Bytes(1<<r.IntN(5)+r.IntN(2))})
	}
	slices.SortFunc(items, func(a, b *item) int { return cmp.Compare(a.start, b.start) })
	return items, 2*n + 1
}

// table is a skyline as an array of heights.
type table []trace.Bytes

func (t table) highest(from, to int) trace.Bytes { return slices.Max(t[from : to+1]) }

func (t table) set(from, to int, h trace.Bytes) {
	for i := from; i <= to; i++ {
		t[i] = h
	}
}

// TestSkylineIsTheTable compares the heights of a skyline with an array of them.
func TestSkylineIsTheTable(t *testing.T) {
	const end = 40
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var s skyline
		want := make(table, end+2)
		for range 30 {
			from := r.IntN(end)
			to := from + r.IntN(end-from)
			if got := s.highest(from, to); got != want.highest(from, to) {
				t.Fatalf("seed %d: %d in [%d, %d], expected %d", seed, got, from, to, want.highest(from, to))
			}
			h := trace.Bytes(r.IntN(9))
			s.set(from, to, h)
			want.set(from, to, h)
		}
	}
}

// TestPackingOverlapsOnlyAtTheSeam: items that live at once lie apart, and items of one
// size do too one iteration later.
func TestPackingOverlapsOnlyAtTheSeam(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		items, lines := randomItems(r, 1+r.IntN(60))
		period := lines / 2
		top := pack(items, lines-period, period)
		most := trace.Bytes(0)
		for i, a := range items {
			if a.offset < 0 || a.offset%512 != 0 || a.offset+a.size > top {
				t.Fatalf("seed %d: item %d at %d of %d B in %d", seed, i, a.offset, a.size, top)
			}
			live := trace.Bytes(0)
			for _, b := range items[:i] {
				apart := a.offset+a.size <= b.offset || b.offset+b.size <= a.offset
				if a.start < b.end && !apart {
					t.Fatalf("seed %d: %+v and %+v overlap", seed, *a, *b)
				}
			}
			for _, b := range items {
				if b.start <= a.start && a.start < b.end {
					live += b.size
				}
			}
			most = max(most, live)
		}
		if top < most {
			t.Fatalf("seed %d: %d B for %d B that live at once", seed, top, most)
		}
	}
}
