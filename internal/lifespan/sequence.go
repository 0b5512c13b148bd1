package lifespan

import (
	"cmp"
	"math/bits"
	"slices"
)

// sequence is the order of a timeline's allocations with everything that
// differs from one repetition to the next left out: addresses and sizes, which
// follow the data. What is left of a buffer is its stream and its lifetime
// class. Even that repeats by chance, so it is compared in context: the gram
// of an allocation is the classes of the allocations from it on.
type sequence struct {
	first int // index of the first buffer that is not initial
	gram  int // allocations per gram
	// grams names the gram that begins at each allocation, but for the last
	// few, by a number below distinct.
	grams    []int32
	distinct int
	// order lists the positions in grams by gram, and then by position.
	order []int32
	count []int32 // scratch for shared: all 0, one per distinct gram
}

// A gram is a sixteenth of the recording in short ones, so that a few
// repetitions fit in, and otherwise long enough that chance repetitions are
// rare: of the grams of one iteration of a mixture-of-experts job, whose
// classes vary most, nearly all recur in the next at 16 and few by chance.
const (
	minGram = 4
	maxGram = 16
)

func newSequence(tl *Timeline) *sequence {
	s := &sequence{first: tl.initial()}
	n := len(tl.Buffers) - s.first
	s.gram = min(maxGram, max(minGram, n/16))
	if n < s.gram {
		return s
	}
	hashes := rolling(classes(tl, s.first), s.gram)
	s.number(hashes)
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

// lifetimes is how many allocations there are from each buffer's own until its
// free, itself included. What lived before the recording has none.
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

// forever is the class of what is never freed, and up to exactClasses a class
// is one lifetime.
const (
	forever      = 0
	exactClasses = 12
	classCount   = 64
)

// lifetimeClass coarsens how many allocations there are from a buffer's own
// until its free: exact to 12, and then in buckets that widen by a factor of
// 4, because the distance over which a long-lived buffer lives varies with
// what lies between.
func lifetimeClass(allocations int) uint64 {
	if allocations <= exactClasses {
		return uint64(allocations)
	}
	return exactClasses + 1 + uint64(bits.Len(uint(allocations-1)/exactClasses)-1)/2
}

// weakHash is the hash of a stream and a lifetime class.
func weakHash(stream, class uint64) uint64 { return mix(stream*classCount + class) }

// mix spreads x over 64 bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// rolling hashes every run of n tokens (Karp and Rabin, modulo 2^64).
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

// number replaces hashes by small numbers.
func (s *sequence) number(hashes []uint64) {
	s.order = make([]int32, len(hashes))
	for i := range s.order {
		s.order[i] = int32(i)
	}
	slices.SortFunc(s.order, func(x, y int32) int {
		return cmp.Or(cmp.Compare(hashes[x], hashes[y]), cmp.Compare(x, y))
	})
	s.grams = make([]int32, len(hashes))
	for i, at := range s.order {
		if i > 0 && hashes[at] != hashes[s.order[i-1]] {
			s.distinct++
		}
		s.grams[at] = int32(s.distinct)
	}
	s.distinct++
	s.count = make([]int32, s.distinct)
}

// occurrences calls yield for each gram with the positions it occurs at.
func (s *sequence) occurrences(yield func(at []int32)) {
	from := 0
	for i := 1; i <= len(s.order); i++ {
		if i == len(s.order) || s.grams[s.order[i]] != s.grams[s.order[from]] {
			yield(s.order[from:i])
			from = i
		}
	}
}
