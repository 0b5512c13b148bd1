package lifespan

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/stplan/stplan/internal/splitmix"
)

// sequence is the order of a timeline's allocations without what differs from one
// repetition to the next: addresses, and sizes, which follow the data. Of a buffer only
// the stream and the lifetime class are left. Because those repeat by chance too,
// allocations are compared in context: the gram of an allocation is the run of streams
// and classes that begins with it.
type sequence struct {
	first int // index of the first buffer that is not initial
	gram  int // allocations per gram
	// grams has the number of the gram that begins at each allocation, below distinct.
	// At the last gram-1 allocations none begins.
	grams    []int32
	distinct int
	// news has, for each position and for the end, the news before it. A position is news of
	// 1/n if its gram occurs n times. So what recurs often is hardly any, and an iteration
	// that runs an inner loop twice as often as another, to generate twice the tokens, is
	// hardly longer.
	news []float64
	// order lists the positions in grams by gram, and then by position. Those of gram g are
	// order[begin[g]:begin[g+1]].
	order, begin []int32
	count        []int32 // scratch for shared: all 0, one per distinct gram
}

const (
	// gramShare makes a gram 1/16 of a short recording, so that a few repetitions of the
	// loop fit in.
	gramShare = 16
	// minGram is the shortest gram, in allocations. Shorter ones recur by chance all
	// over.
	minGram = 4
	// maxGram is the longest gram, in allocations. A longer one recurs less often by
	// chance, but also breaks at every difference between two iterations. At 16, nearly
	// all grams of an iteration recur in the next one even in a mixture of experts, where
	// classes vary most, and few recur by chance.
	maxGram = 16
)

func newSequence(tl *Timeline) *sequence {
	s := &sequence{first: tl.initial()}
	n := len(tl.Buffers) - s.first
	s.gram = min(maxGram, max(minGram, n/gramShare))
	if n < s.gram {
		return s
	}
	hashes := rolling(classes(tl, s.first), s.gram)
	s.number(hashes)
	s.countNews()
	return s
}

// classes gives every allocation a hash of its stream and lifetime class.
func classes(tl *Timeline, first int) []uint64 {
	out := lifetimeClasses(tl, first)
	for i, class := range out {
		out[i] = weakHash(tl.Buffers[first+i].Stream, class)
	}
	return out
}

// lifetimeClasses gives every allocation its lifetime class.
func lifetimeClasses(tl *Timeline, first int) []uint64 {
	out := make([]uint64, len(tl.Buffers)-first)
	for i, life := range tl.lifetimes()[first:] {
		if !tl.Buffers[first+i].Resident {
			out[i] = lifetimeClass(life)
		} else {
			out[i] = forever
		}
	}
	return out
}

// lifetimes counts, for each buffer, the allocations from its own, which is included,
// to its free. It is 0 for initial buffers.
func (tl *Timeline) lifetimes() []int {
	// before[t] counts the allocations before event t.
	before := make([]int32, tl.Events+1)
	first := tl.initial()
	for _, b := range tl.Buffers[first:] {
		before[b.Start+1] = 1
	}
	for t := range before[1:] {
		before[t+1] += before[t]
	}
	out := make([]int, len(tl.Buffers))
	for i := first; i < len(out); i++ {
		out[i] = int(before[tl.Buffers[i].RequestedEnd]) - (i - first)
	}
	return out
}

const (
	// forever is the class of a buffer that is never freed.
	forever = 0
	// exactClasses is the longest lifetime with a class of its own, in allocations. A
	// smaller value tells fewer allocations apart; a larger one gives the same allocation
	// different classes in different iterations. At half or twice the value the
	// allocation sequence of qwen3-moe-eager alone shows 5 iterations instead of its 4.
	exactClasses = 12
	// classCount is above every class: forever, 12 exact ones and at most 30 buckets.
	classCount = 64
)

// lifetimeClass is the class of a lifetime, which is counted in allocations. Up to
// exactClasses each lifetime has a class of its own. Beyond it a class is a bucket, and
// each bucket is 4 times as wide as the one before it, because the lifetime of a
// long-lived buffer varies with what is allocated meanwhile.
func lifetimeClass(allocations int) uint64 {
	if allocations <= exactClasses {
		return uint64(allocations)
	}
	return exactClasses + 1 + uint64(bits.Len(uint(allocations-1)/exactClasses)-1)/2
}

// weakHash is the hash of a stream and a lifetime class.
func weakHash(stream, class uint64) uint64 { return splitmix.Mix(stream*classCount + class) }

// rolling hashes every run of n tokens with a rolling hash modulo 2^64 (Karp and Rabin,
// Efficient Randomized Pattern-Matching Algorithms, 1987).
func rolling(tokens []uint64, n int) []uint64 {
	const base = 0x2545f4914f6cdd1d
	out := make([]uint64, len(tokens)-n+1)
	var h, leaving uint64 = 0, 1
	for i, t := range tokens {
		h = h*base + t
		if i < n {
			leaving *= base
		} else {
			h -= tokens[i-n] * leaving
		}
		if i >= n-1 {
			out[i-n+1] = h
		}
	}
	return out
}

// number replaces hashes by numbers from 0 to distinct-1.
func (s *sequence) number(hashes []uint64) {
	s.order = make([]int32, len(hashes))
	for i := range s.order {
		s.order[i] = int32(i)
	}
	slices.SortFunc(s.order, func(x, y int32) int {
		if hx, hy := hashes[x], hashes[y]; hx != hy {
			return cmp.Compare(hx, hy)
		}
		return cmp.Compare(x, y)
	})
	s.grams = make([]int32, len(hashes))
	for i, at := range s.order {
		if i == 0 || hashes[at] != hashes[s.order[i-1]] {
			s.begin = append(s.begin, int32(i))
		}
		s.grams[at] = int32(len(s.begin) - 1)
	}
	s.distinct = len(s.begin)
	s.begin = append(s.begin, int32(len(s.order)))
	s.count = make([]int32, s.distinct)
}

// places are the positions of a gram, ascending.
func (s *sequence) places(gram int32) []int32 { return s.order[s.begin[gram]:s.begin[gram+1]] }

// occurrences calls yield for each gram with its positions, ascending.
func (s *sequence) occurrences(yield func(at []int32)) {
	for g := range s.distinct {
		yield(s.places(int32(g)))
	}
}
