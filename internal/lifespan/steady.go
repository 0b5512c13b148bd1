package lifespan

import "github.com/stplan/stplan/internal/trace"

const (
	// compared is how many later iterations one is compared with: bodies
	// alternate where every second or third step is followed by an evaluation.
	compared = 4
	// keptShare is how much an iteration may leave behind, of the peak: logging
	// keeps a few tensors.
	keptShare = 1. / 1024
	// lasting is for how many iterations something has to stay to be left behind
	// for good.
	lasting = 3
	// asLike is how much less an iteration may be like later ones than the next
	// one is.
	asLike = 0.9
)

// firstSteady is the first iteration from which on none leaves memory behind,
// as the first one leaves the optimizer's state, and which is as like later
// ones as they are to each other. It is the number of iterations where there is
// none; of the last one nothing can be said, so it is steady only if the one
// before is.
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

// left is how many bytes iteration i leaves behind: what it allocated and what
// outlives the next lasting iterations. Where fewer are left in the recording,
// as much of what outlives these will be gone as it was in the last iteration
// that shows it: inputs that are fetched ahead, or outputs that are held until
// the next ones exist.
func left(tl *Timeline, starts []trace.Time, i int) trace.Bytes {
	last := len(starts) - 2
	ahead := min(lasting, last-i)
	sum := outliving(tl, starts, i, ahead)
	if shown := last - lasting; ahead < lasting && shown > 0 {
		sum -= min(sum, outliving(tl, starts, shown, ahead)-outliving(tl, starts, shown, lasting))
	}
	return sum
}

// outliving is how many bytes of what iteration i allocated outlive the next n
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

// likenessAhead is how like iteration i is to the one of the next few that is
// most like it: the grams they share over the grams either has, as multisets.
// It is 1 where they issue the same allocations with the same lifetimes in the
// same order, whatever their sizes.
func (s *sequence) likenessAhead(tl *Timeline, starts []trace.Time, i int) float64 {
	most := 0.0
	a := s.iteration(tl, starts, i)
	for j := i + 1; j <= i+compared && j+1 < len(starts); j++ {
		b := s.iteration(tl, starts, j)
		shared := s.shared(a, b)
		most = max(most, float64(shared)/float64(max(1, len(a)+len(b)-shared)))
	}
	return most
}

// meanLikeness is the mean of likenessAhead. The first iteration has the
// building of the model and is left out where there are others.
func (s *sequence) meanLikeness(tl *Timeline, starts []trace.Time) float64 {
	sum, n := 0.0, 0
	for i := max(0, min(1, len(starts)-3)); i+2 < len(starts); i++ {
		sum += s.likenessAhead(tl, starts, i)
		n++
	}
	return sum / float64(max(1, n))
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
