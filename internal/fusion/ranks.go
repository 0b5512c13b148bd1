package fusion

// ranked is a problem with time counted in starts: buffer i is the i-th to start and is
// live in [i, end[i]); end[i] buffers start before it ends. Two buffers overlap in time
// exactly if these ranges do, and the load is largest right after a start. So nothing
// else of time matters to packing.
type ranked struct {
	origin []int32 // of each buffer: its index in the problem
	size   []Bytes
	end    []int32
}

// rank sorts by (start, end, size), so that the order of the problem does not matter.
func rank(buffers []Buffer) *ranked {
	n := len(buffers)
	r := &ranked{origin: make([]int32, n), size: make([]Bytes, n), end: make([]int32, n)}
	for i := range r.origin {
		r.origin[i] = int32(i)
	}
	sorter := newSorter(n)
	sorter.sort(r.origin, func(i int32) int64 { return int64(buffers[i].Size) })
	sorter.sort(r.origin, func(i int32) int64 { return int64(buffers[i].End) })
	byEnd := append([]int32(nil), r.origin...)
	sorter.sort(r.origin, func(i int32) int64 { return int64(buffers[i].Start) })
	place := make([]int32, n) // of each buffer of the problem: its rank
	for k, o := range r.origin {
		place[o] = int32(k)
		r.size[k] = buffers[o].Size
	}
	started := 0
	for _, o := range byEnd {
		for started < n && buffers[r.origin[started]].Start < buffers[o].End {
			started++
		}
		r.end[place[o]] = int32(started)
	}
	return r
}

// sorter is a stable radix sort, from the least digit up: it sorts indices by numbers
// of at least 0, in time that is linear in their number.
type sorter struct {
	keys, otherKeys []int64
	other           []int32
}

// digitBits is the size of a radix-sort digit, in bits: the 2,048 counters of a digit
// fit in the first-level cache, and a key of 64 bits takes at most six passes.
const digitBits = 11

// digits is the number of values of a digit.
const digits = 1 << digitBits

func newSorter(n int) *sorter {
	return &sorter{keys: make([]int64, n), otherKeys: make([]int64, n), other: make([]int32, n)}
}

func (s *sorter) sort(list []int32, key func(int32) int64) {
	sorted, most := true, int64(0)
	for i, x := range list {
		s.keys[i] = key(x)
		most = max(most, s.keys[i])
		sorted = sorted && (i == 0 || s.keys[i-1] <= s.keys[i])
	}
	if sorted {
		return
	}
	from, to := list, s.other
	for shift := 0; shift < 64 && most>>shift > 0; shift += digitBits {
		var next [digits]int
		for _, k := range s.keys[:len(list)] {
			next[k>>shift%digits]++
		}
		sum := 0
		for d, count := range next {
			next[d] = sum
			sum += count
		}
		for i, x := range from {
			d := s.keys[i] >> shift % digits
			to[next[d]], s.otherKeys[next[d]] = x, s.keys[i]
			next[d]++
		}
		from, to = to, from
		s.keys, s.otherKeys = s.otherKeys, s.keys
	}
	if len(list) > 0 && &from[0] != &list[0] {
		copy(list, from)
	}
}
