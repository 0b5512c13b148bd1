package lifespan

// interlude looks for an interlude at the end of a recording: what a program does between
// two steps, such as an evaluation. It may come after any step, or never again. One that
// recurs among the steady iterations is part of them. So what is left to find is one that
// follows the last of them.
type interlude struct {
	tl    *Timeline
	r     *rotation
	lives []int // by buffer: its lifetime in allocations
}

// addInterlude makes what follows the last pass of r one more pass, unless it is
// another step or too short. It returns whether it did. The new pass ends at the first
// place where another step begins, or with the recording.
func addInterlude(tl *Timeline, r *rotation) bool {
	n := r.passes()
	f := &interlude{tl: tl, r: r}
	from, to := r.first[n], int32(len(tl.Buffers))
	if to-from <= f.least() {
		return false
	}
	f.lives = tl.lifetimes()
	if f.isStep(from, to) {
		return false
	}
	to = f.nextStep(from, to)
	for at := from; at < to; at++ {
		r.rank = append(r.rank, int32(r.width))
		r.width++
	}
	r.first = append(r.first, to)
	r.end, r.interlude = tl.eventOf(to), true
	return true
}

// least is the number of allocations that an interlude has to exceed: that of an episode.
func (f *interlude) least() int32 {
	shortest := f.r.first[1] - f.r.first[0]
	for j := range f.r.passes() {
		shortest = min(shortest, f.r.first[j+1]-f.r.first[j])
	}
	return int32(episode(int(shortest)))
}

// isStep says whether the allocations [from, to) are a step or the beginning of one:
// whether they share most grams with the beginning of some pass, as far as both go. The
// recording may end anywhere, so a buffer that outlives the shorter of the two counts as
// never freed in both.
func (f *interlude) isStep(from, to int32) bool {
	for j := range f.r.passes() {
		first := f.r.first[j]
		n := min(to-from, f.r.first[j+1]-first)
		if f.alike(f.grams(first, n), f.grams(from, n)) {
			return true
		}
	}
	return false
}

// nextStep is the first allocation in [from, to) that another step begins with, or to if
// there is none. It leaves at least the length of an interlude before it.
func (f *interlude) nextStep(from, to int32) int32 {
	begins := map[uint64]bool{}
	for j := range f.r.passes() {
		begins[f.opening(f.r.first[j])] = true
	}
	for at := from + f.least(); at+maxGram <= to; at++ {
		if begins[f.opening(at)] && f.isStep(at, to) {
			return at
		}
	}
	return to
}

// opening is a hash of the first maxGram allocations from one on. All lifetimes above
// exactClasses count as one, because the end of the recording may change them.
func (f *interlude) opening(from int32) uint64 {
	tokens := make([]uint64, 0, maxGram)
	for at := from; at < min(from+maxGram, int32(len(f.tl.Buffers))); at++ {
		class := uint64(forever)
		if f.lives[at] <= exactClasses {
			class = lifetimeClass(f.lives[at])
		}
		tokens = append(tokens, weakHash(f.tl.Buffers[at].Stream, class))
	}
	return rolling(tokens, len(tokens))[0]
}

// grams are the hashes of all grams among the n allocations from one on, with the
// lifetimes that a recording which ends after these allocations would have.
func (f *interlude) grams(from, n int32) []uint64 {
	tokens := make([]uint64, n)
	for i := range tokens {
		class := uint64(forever)
		if life := f.lives[from+int32(i)]; i+life < int(n) {
			class = lifetimeClass(life)
		}
		tokens[i] = weakHash(f.tl.Buffers[from+int32(i)].Stream, class)
	}
	return rolling(tokens, min(maxGram, int(n)))
}

// alike says whether b has at least half of the grams of a.
func (f *interlude) alike(a, b []uint64) bool {
	count := map[uint64]int{}
	for _, g := range a {
		count[g]++
	}
	shared := 0
	for _, g := range b {
		if count[g] > 0 {
			count[g]--
			shared++
		}
	}
	return 2*shared >= len(a)
}
