package stalloc

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// span is the bytes [low, high) of the arena.
type span struct{ low, high trace.Bytes }

// spans are disjoint and ascending.
type spans []span

// from is the index of the first span that ends above at.
func (s spans) from(at trace.Bytes) int {
	i, _ := slices.BinarySearchFunc(s, at, func(r span, at trace.Bytes) int {
		if r.high <= at {
			return -1
		}
		return 1
	})
	return i
}

func (s spans) meets(r span) bool {
	i := s.from(r.low)
	return i < len(s) && s[i].low < r.high
}

// add adds a span that meets none.
func (s *spans) add(r span) { *s = slices.Insert(*s, s.from(r.low), r) }

// remove takes out a span that was added.
func (s *spans) remove(r span) {
	i := s.from(r.low)
	*s = slices.Delete(*s, i, i+1)
}

// cover adds a span that may meet others, and joins them.
func (s *spans) cover(r span) {
	i := s.from(r.low)
	j := i
	for ; j < len(*s) && (*s)[j].low < r.high; j++ {
		r.low, r.high = min(r.low, (*s)[j].low), max(r.high, (*s)[j].high)
	}
	*s = slices.Replace(*s, i, j, r)
}

// union joins spans that may meet.
func union(all []span) spans {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.low, b.low) })
	var u spans
	for _, r := range all {
		if n := len(u); n > 0 && r.low <= u[n-1].high {
			u[n-1].high = max(u[n-1].high, r.high)
		} else {
			u = append(u, r)
		}
	}
	return u
}

// smallestGap is the smallest piece of [0, end) of at least size bytes that is in none of
// the lists, the lowest of those. ok is false if there is none.
func smallestGap(end, size trace.Bytes, lists ...spans) (at trace.Bytes, ok bool) {
	best, free := trace.Bytes(-1), trace.Bytes(0)
	for free < end {
		taken := span{end, end} // the next that is taken, from free on
		for i := range lists {
			for len(lists[i]) > 0 && lists[i][0].high <= free {
				lists[i] = lists[i][1:]
			}
			if len(lists[i]) > 0 && lists[i][0].low < taken.low {
				taken = lists[i][0]
			}
		}
		if n := taken.low - free; n >= size && (best < 0 || n < best) {
			best, at = n, free
		}
		free = taken.high
	}
	return at, best >= 0
}
