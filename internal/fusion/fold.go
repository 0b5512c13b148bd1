package fusion

// Fold leaves out repetitions. A *seam* is an instant right before a start; a
// *segment* lies between two seams at which the very same buffers are live.
// These live throughout it, and everything that starts in it ends in it: a
// segment is a problem of its own above a fixed set of others. Two segments
// beside the same set that hold the same sizes and live ranges in the same
// order therefore have the same answers, wherever they are, and only the first
// is kept. Segments nest; a kept one is searched for repetitions within.
//
// Folding costs nothing: the offsets that Expand gives to a repetition are
// those of the segment it repeats, and every makespan of the folded problem is
// one of the original. Time and memory are linear in the number of buffers.
//
// It returns an error for buffers without a size or a life.
func Fold(buffers []Buffer) (*Reduced, error) {
	if err := check(buffers); err != nil {
		return nil, err
	}
	r := rank(buffers)
	from := make([]int32, len(r.size)) // whose layout buffer i takes
	for i := range from {
		from[i] = int32(i)
	}
	for _, s := range r.repeats() {
		for k := s.lo; k < s.hi; k++ {
			from[k] = from[s.first+k-s.lo]
		}
	}
	return r.keep(buffers, from), nil
}

// keep is the problem of the buffers that take their own layout.
func (r *ranked) keep(buffers []Buffer, from []int32) *Reduced {
	kept := make([]int32, len(from)+1) // those before buffer i
	for i, f := range from {
		kept[i+1] = kept[i]
		if int(f) == i {
			kept[i+1]++
		}
	}
	out := &Reduced{home: make([]home, len(from)), Buffers: make([]Buffer, 0, kept[len(from)])}
	for i, f := range from {
		if int(f) == i {
			out.Buffers = append(out.Buffers, buffers[r.origin[i]])
			out.first = append(out.first, r.origin[i])
		}
		out.home[r.origin[i]] = home{object: kept[f]}
	}
	return out
}

// segment is the buffers [lo, hi), beside the set number class.
type segment struct {
	lo, hi, class int32
}

// segments finds every segment between a seam and the next one with the same
// live buffers, in the order of their ends, the inner before the outer.
//
// seams is a stack of those that may still come back: their live buffers are
// all live now, so the number of these tells whether no other is.
func (r *ranked) segments() []segment {
	type seam struct{ at, live, class int32 }
	var out []segment
	var seams []seam
	ends := r.byEnd()
	live, classes := int32(0), int32(0)
	n := int32(len(r.size))
	for k := int32(0); k < n; k++ {
		for ; len(ends) > 0 && r.end[ends[0]] == k; ends = ends[1:] {
			live--
			for len(seams) > 0 && seams[len(seams)-1].at > ends[0] {
				seams = seams[:len(seams)-1]
			}
		}
		if top := len(seams) - 1; top >= 0 && seams[top].live == live {
			out = append(out, segment{seams[top].at, k, seams[top].class})
			seams[top].at = k
		} else {
			seams = append(seams, seam{k, live, classes})
			classes++
		}
		live++
	}
	// Whatever starts after a seam that may still come back has ended by the
	// time of the end, and what lives at the seam lives to the end.
	for top := len(seams) - 1; top >= 0; top-- {
		out = append(out, segment{seams[top].at, n, seams[top].class})
	}
	return out
}

// byEnd lists the buffers in the order of their ends, by counting.
func (r *ranked) byEnd() []int32 {
	next := make([]int32, len(r.end)+2)
	for _, e := range r.end {
		next[e+1]++
	}
	for e := range r.end {
		next[e+1] += next[e]
	}
	out := make([]int32, len(r.end))
	for i, e := range r.end {
		out[next[e]] = int32(i)
		next[e]++
	}
	return out
}

// repeat is a segment [lo, hi) that equals the one that begins at first.
type repeat struct {
	lo, hi, first int32
}

// repeats finds the segments that equal an earlier one beside the same live
// buffers, the outermost only, in the order of time.
func (r *ranked) repeats() []repeat {
	segments := r.segments()
	hash := r.hashes()
	type content struct {
		class, length int32
		hash          uint64
	}
	first := make(map[content]int32, len(segments)/2)
	again := make([]int32, len(segments)) // where its first equal begins, -1 for none
	for i, s := range segments {
		c := content{s.class, s.hi - s.lo, hash.of(s.lo, s.hi)}
		if lo, ok := first[c]; ok {
			again[i] = lo
			continue
		}
		first[c], again[i] = s.lo, -1
	}
	var out []repeat
	before := int32(len(r.size)) // where the repeat found last begins
	for i := len(segments) - 1; i >= 0; i-- {
		if s := segments[i]; again[i] >= 0 && s.hi <= before && r.equal(again[i], s.lo, s.hi-s.lo) {
			out = append(out, repeat{s.lo, s.hi, again[i]})
			before = s.lo
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// equal compares n buffers from x with n from y.
func (r *ranked) equal(x, y, n int32) bool {
	for k := range n {
		if r.size[x+k] != r.size[y+k] || r.end[x+k]-x != r.end[y+k]-y {
			return false
		}
	}
	return true
}

// hashes are polynomial hashes of all prefixes; equal decides where two agree.
type hashes struct {
	prefix, power []uint64
}

const hashBase = 0x9e3779b97f4a7c15 // odd, with bits everywhere

func (r *ranked) hashes() hashes {
	h := hashes{make([]uint64, len(r.size)+1), make([]uint64, len(r.size)+1)}
	h.power[0] = 1
	for i, size := range r.size {
		life := uint64(r.end[i] - int32(i))
		token := (uint64(size)*hashBase ^ life) * hashBase
		h.prefix[i+1] = h.prefix[i]*hashBase + (token ^ token>>29)
		h.power[i+1] = h.power[i] * hashBase
	}
	return h
}

func (h hashes) of(lo, hi int32) uint64 { return h.prefix[hi] - h.prefix[lo]*h.power[hi-lo] }
