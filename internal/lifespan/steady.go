package lifespan

import "github.com/stplan/stplan/internal/trace"

const (
	// compared is the number of later iterations that one is compared with. Iterations
	// alternate if every second or third step is followed by an evaluation, so the next
	// one alone may be of the other kind. More take time in proportion.
	compared = 4
	// keptShare is the share of the peak that a steady iteration may leave behind for
	// good. Logging keeps a few small tensors; the state of an optimizer is far more.
	keptShare = 1. / 1024
	// lasting is the number of further iterations that a buffer has to outlive to count
	// as left behind for good. Inputs fetched ahead and outputs held until the next ones
	// exist live through one or two.
	lasting = 3
	// asLike is the likeness to later iterations that an iteration needs to be steady,
	// as a share of the likeness that the next iteration has. It is below 1 because data
	// makes the likeness vary from one iteration to the next. At 0.97 a steady iteration
	// of llama-1b-generate is lost.
	asLike = 0.9
)

// firstSteady returns the index of the first steady iteration, or the number of
// iterations if none is steady. From the first steady one on, no iteration leaves memory
// behind, as the first iteration leaves the optimizer's state, and it is as much like
// later iterations as these are like each other. The last iteration has no later ones to
// show what it leaves behind, so it is steady only if the one before it is.
func firstSteady(tl *Timeline, s *sequence, starts []trace.Time) int {
	count := len(starts) - 1
	first := count - 1
	for first > 0 && float64(left(tl, starts, first-1)) <= keptShare*float64(tl.PeakAllocated.Bytes) {
		first--
	}
	if first == count-1 {
		return count
	}
	for first+2 < count && s.likenessAhead(tl, starts, first) < asLike*s.likenessAhead(tl, starts, first+1) {
		first++
	}
	return first
}

// left is the number of bytes that iteration i leaves behind: what it allocated that
// outlives the next lasting iterations. If the recording has fewer iterations after i,
// left looks at what outlives those. From that it takes the bytes that were still freed
// in time in the last iteration with lasting ones after it, such as inputs fetched ahead
// or outputs held until the next ones exist.
func left(tl *Timeline, starts []trace.Time, i int) trace.Bytes {
	last := len(starts) - 2
	ahead := min(lasting, last-i)
	sum := outliving(tl, starts, i, ahead)
	if shown := last - lasting; ahead < lasting && shown > 0 {
		sum -= min(sum, outliving(tl, starts, shown, ahead)-outliving(tl, starts, shown, lasting))
	}
	return sum
}

// outliving is the number of bytes allocated in iteration i that outlive the next n
// iterations.
func outliving(tl *Timeline, starts []trace.Time, i, n int) trace.Bytes {
	var sum trace.Bytes
	for _, b := range tl.Buffers[tl.bufferAt(starts[i]):tl.bufferAt(starts[i+1])] {
		if !b.Initial && b.RequestedEnd >= starts[i+1+n] {
			sum += b.Size
		}
	}
	return sum
}

// likenessAhead is the largest likeness of iteration i and one of the next few.
func (s *sequence) likenessAhead(tl *Timeline, starts []trace.Time, i int) float64 {
	most := 0.0
	a := s.iteration(tl, starts, i)
	for j := i + 1; j <= i+compared && j+1 < len(starts); j++ {
		most = max(most, s.likeness(a, s.iteration(tl, starts, j)))
	}
	return most
}

// meanLikeness is the mean of likenessAhead. The first iteration also builds the model,
// so it is left out if there are enough others.
func (s *sequence) meanLikeness(tl *Timeline, starts []trace.Time) float64 {
	sum, n := 0.0, 0
	for i := max(0, min(1, len(starts)-3)); i+2 < len(starts); i++ {
		sum += s.likenessAhead(tl, starts, i)
		n++
	}
	return sum / float64(max(1, n))
}

// likeness is the number of grams that two stretches share, divided by the number that
// either has (the Jaccard index): as multisets, or if that is more, as sets, so that a part
// may run any number of times, as the generation of a token does. It is 1 if both issue the
// same allocations with the same lifetimes in the same order; sizes do not matter.
func (s *sequence) likeness(a, b []int32) float64 {
	jaccard := func(shared, n int) float64 { return float64(shared) / float64(max(1, n-shared)) }
	kinds, others, both := different(a), different(b), 0
	for g := range kinds {
		if others[g] {
			both++
		}
	}
	return max(jaccard(s.shared(a, b), len(a)+len(b)), jaccard(both, len(kinds)+len(others)))
}

// different is the set of some grams.
func different(grams []int32) map[int32]bool {
	set := make(map[int32]bool, len(grams))
	for _, g := range grams {
		set[g] = true
	}
	return set
}

// shared counts the grams that two stretches share, as multisets.
func (s *sequence) shared(a, b []int32) int {
	for _, g := range a {
		s.count[g]++
	}
	shared := 0
	for _, g := range b {
		if s.count[g] > 0 {
			s.count[g]--
			shared++
		}
	}
	for _, g := range a {
		s.count[g] = 0
	}
	return shared
}

// span is the grams that begin at the positions [from, to).
func (s *sequence) span(from, to int32) []int32 {
	n := int32(len(s.grams))
	return s.grams[min(from, n):min(to, n)]
}

// iteration is the grams that begin in iteration i.
func (s *sequence) iteration(tl *Timeline, starts []trace.Time, i int) []int32 {
	position := func(t trace.Time) int32 { return int32(max(0, tl.bufferAt(t)-s.first)) }
	return s.span(position(starts[i]), position(starts[i+1]))
}
