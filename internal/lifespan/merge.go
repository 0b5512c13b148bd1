package lifespan

import "math"

// token is what an allocation is recognised by.
type token struct {
	stream uint64
	log    int64  // log2 of the aligned size, in parts of an octave
	class  uint8  // of the lifetime
	weight int64  // cost of its bytes, and in merged of the largest matched
	strong uint64 // hash of stream, size and class
	weak   uint64 // hash of stream and class: sizes may vary from pass to pass
}

// merged is one sequence that the iterations are subsequences of. Its elements
// are numbered as they were found; order has them in order.
type merged struct {
	starts []int32 // iteration i allocates buffers [starts[i], starts[i+1])
	order  []int32
	tokens []token // by element, of the latest allocation that was matched
	counts []int32 // by element, iterations that have it
	// element is that of each allocation, from buffer starts[0] on.
	element []int32
}

// iterations is how many were merged.
func (m *merged) iterations() int { return len(m.starts) - 1 }

// at is the element of a buffer.
func (m *merged) at(buffer int32) int32 { return m.element[buffer-m.starts[0]] }

// mergeIterations aligns the steady iterations one after the other with what
// the earlier ones have in common, and adds what is new.
func mergeIterations(tl *Timeline, it Iterations) *merged {
	m := &merged{}
	for _, t := range it.Starts[it.Count-it.SteadyCount:] {
		m.starts = append(m.starts, int32(tl.bufferAt(max(t, 0))))
	}
	m.starts[0] = max(m.starts[0], int32(tl.initial()))
	tokens := tokenize(tl, int(m.starts[0]), int(m.starts[m.iterations()]))
	m.element = make([]int32, len(tokens))
	for i := range m.iterations() {
		from, to := m.starts[i]-m.starts[0], m.starts[i+1]-m.starts[0]
		m.add(tokens[from:to], m.element[from:to])
	}
	return m
}

// add merges one more iteration and writes which elements its allocations are.
func (m *merged) add(tokens []token, element []int32) {
	have := make([]token, len(m.order))
	for i, e := range m.order {
		have[i] = m.tokens[e]
	}
	order := make([]int32, 0, len(have)+len(tokens)/8)
	i := 0
	for j, at := range align(have, tokens) {
		if at < 0 {
			at = m.grow()
			order = append(order, at)
		} else {
			order = append(order, m.order[i:at+1]...)
			i = int(at) + 1
			at = order[len(order)-1]
		}
		element[j] = at
		weight := max(m.tokens[at].weight, tokens[j].weight)
		m.tokens[at] = tokens[j]
		m.tokens[at].weight = weight
		m.counts[at]++
	}
	m.order = append(order, m.order[i:]...)
}

func (m *merged) grow() int32 {
	m.tokens = append(m.tokens, token{})
	m.counts = append(m.counts, 0)
	return int32(len(m.tokens) - 1)
}

// An allocation of mean size weighs meanWeight, in the costs of an alignment,
// and none more than maxWeight. One that is freed again within the exact
// lifetime classes weighs nothing: few of those live at the same time, and they
// make no peak.
const (
	meanWeight = 64
	maxWeight  = 1 << 16
)

// tokenize describes the allocations of buffers [from, to).
func tokenize(tl *Timeline, from, to int) []token {
	first := tl.initial()
	lives := lifetimeClasses(tl, first)[from-first : to-first]
	var sum float64
	for i := range lives {
		sum += float64(tl.Buffers[from+i].Size)
	}
	mean := sum / float64(max(1, len(lives)))
	out := make([]token, len(lives))
	for i, class := range lives {
		b := &tl.Buffers[from+i]
		weak := weakHash(b.Stream, class)
		out[i] = token{
			stream: b.Stream, class: uint8(class),
			log:  int64(octave * math.Log2(float64(b.Size))),
			weak: weak, strong: mix(weak ^ uint64(b.Size)),
		}
		if class == forever || class > exactClasses {
			out[i].weight = int64(min(maxWeight, meanWeight*float64(b.Size)/mean))
		}
	}
	return out
}

// initial is how many buffers lived before recording began.
func (tl *Timeline) initial() int {
	n := 0
	for n < len(tl.Buffers) && tl.Buffers[n].Initial {
		n++
	}
	return n
}
