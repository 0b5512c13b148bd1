package fusion

// Fold leaves out repetitions. A seam is an instant right before a start. A
// segment is the time between two seams at which the very same buffers are live.
// These live throughout the segment, and every buffer that starts in it ends in
// it. So a segment is a problem of its own beside a fixed set of buffers. Two
// segments beside the same set, with the same sizes and live ranges in the same
// order, have the same answers, and only the first is kept. Segments nest; a kept
// one is searched for repetitions within.
//
// Folding costs nothing in the result: Expand gives a repetition the offsets of the
// segment that it repeats, and a placement of the folded problem becomes one of the
// original with the same makespan. Time and memory are linear in the number of buffers.
//
// It returns an error if a buffer has no size or no life, or the sizes overflow.
func Fold(buffers []Buffer) (*Reduced, error) {
	if err := check(buffers); err != nil {
		return nil, err
	}
	r := rank(buffers)
	from := make([]int32, len(r.size)) // of each buffer: the buffer whose offset it takes
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

// keep is the problem of the buffers that take no other buffer's offset.
func (r *ranked) keep(buffers []Buffer, from []int32) *Reduced {
	kept := make([]int32, len(from)+1) // of each buffer: the number kept before it
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

// segment is the buffers that start in a segment, [lo, hi) in the order of starts.
// class is the number of the set of buffers that live throughout it.
type segment struct {
	lo, hi, class int32
}

// segments finds every segment between a seam and the next one with the same live
// buffers, in the order of their ends, inner ones before outer ones.
//
// seams is a stack of the seams that may still begin a segment: all their live buffers
// are still live. So the live buffers now are the same if their number is the same.
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
	// At the end of time too: buffers that start after a seam on the stack have ended
	// by then, and the live buffers of the seam live to the end.
	for top := len(seams) - 1; top >= 0; top-- {
		out = append(out, segment{seams[top].at, n, seams[top].class})
	}
	return out
}

// byEnd lists the buffers in the order of their ends, by counting sort.
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

// repeat is a segment [lo, hi) that equals the one beginning at buffer first.
type repeat struct {
	lo, hi, first int32
}

// repeats finds the segments that equal an earlier one beside the same live buffers, in
// the order of time. Of nested ones it takes the outermost only.
func (r *ranked) repeats() []repeat {
	segments := r.segments()
	hash := r.hashes()
	type content struct {
		class, length int32
		hash          uint64
	}
	first := make(map[content]int32, len(segments)/2)
	again := make([]int32, len(segments)) // of each segment: the begin of its first equal, or -1
	for i, s := range segments {
		c := content{s.class, s.hi - s.lo, hash.of(s.lo, s.hi)}
		if lo, ok := first[c]; ok {
			again[i] = lo
			continue
		}
		first[c], again[i] = s.lo, -1
	}
	var out []repeat
	before := int32(len(r.size)) // begin of the repeat found last
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

// equal reports whether the n buffers from x on equal the n from y on.
func (r *ranked) equal(x, y, n int32) bool {
	for k := range n {
		if r.size[x+k] != r.size[y+k] || r.end[x+k]-x != r.end[y+k]-y {
			return false
		}
	}
	return true
}

// hashes are polynomial rolling hashes of all prefixes. If two segments have the same
// hash, equal decides.
type hashes struct {
	prefix, power []uint64
}

// hashBase is odd and has its bits spread, so that products keep all bits of the input:
// 2^64 divided by the golden ratio.
const hashBase = 0x9e3779b97f4a7c15

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
