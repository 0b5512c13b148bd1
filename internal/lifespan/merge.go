package lifespan

import (
	"math"
	"slices"

	"github.com/stplan/stplan/internal/splitmix"
)

// token is what allocations are compared by.
type token struct {
	stream uint64
	log    int64  // log2 of the aligned size, times octave; readRatios has that of a ratio
	class  uint8  // lifetime class
	weight int64  // cost of its bytes; of an element in merged, of the largest that matched
	strong uint64 // hash of stream, size and class
	weak   uint64 // hash of stream and class: sizes may vary from pass to pass
	// context is the hash of the weak hashes of the gram that begins with it. Only inContext
	// sets it.
	context uint64
}

// merged is one sequence that every merged iteration is a subsequence of. Its elements
// are numbered in the order in which they were found.
type merged struct {
	starts []int32 // iteration i allocates buffers [starts[i], starts[i+1])
	order  []int32 // the elements in the order of the sequence
	tokens []token // by element: the latest allocation that was matched
	counts []int32 // by element: the number of iterations that have it
	// element is the element of each allocation, from buffer starts[0] on.
	element   []int32
	varieties []*variety
}

// iterations is the number of merged iterations.
func (m *merged) iterations() int { return len(m.starts) - 1 }

// at is the element of a buffer.
func (m *merged) at(buffer int32) int32 { return m.element[buffer-m.starts[0]] }

// mergeIterations merges the steady iterations one after the other, in a given order: it aligns each with
// the sequence so far, or with what its variety has of it, and adds what is new.
func mergeIterations(tl *Timeline, it Iterations, w way, order mergeOrder) *merged {
	m := &merged{starts: it.steadyStarts(tl)}
	tokens := w.read(tl, m.starts)
	m.element = make([]int32, len(tokens))
	for _, i := range order(m.starts) {
		from, to := m.starts[i]-m.starts[0], m.starts[i+1]-m.starts[0]
		m.add(tokens[from:to], m.element[from:to], w.align)
	}
	return m
}

// steadyStarts are the first buffers of the steady iterations, and that behind the last one.
func (it Iterations) steadyStarts(tl *Timeline) (starts []int32) {
	for _, t := range it.Starts[it.Count-it.SteadyCount:] {
		starts = append(starts, int32(tl.bufferAt(max(t, 0))))
	}
	starts[0] = max(starts[0], int32(tl.initial()))
	return starts
}

// mergeOrder is the order in which iterations are merged, of which iteration i allocates buffers [starts[i], starts[i+1]).
type mergeOrder func(starts []int32) []int

// asRecorded merges them as they were recorded.
func asRecorded(starts []int32) []int {
	order := make([]int, len(starts)-1)
	for i := range order {
		order[i] = i
	}
	return order
}

// episodesLast merges those last that have an episode beside the shortest one. An evaluation has much in common with a step. A step of a
// new variety that comes behind it would be matched with parts of both.
func episodesLast(starts []int32) []int {
	length := func(i int) int { return int(starts[i+1] - starts[i]) }
	order := asRecorded(starts)
	shortest := length(slices.MinFunc(order, func(i, k int) int { return length(i) - length(k) }))
	long := func(i int) bool { return length(i)-shortest > episode(shortest) }
	return append(slices.DeleteFunc(slices.Clone(order), long), slices.DeleteFunc(order, func(i int) bool { return !long(i) })...)
}

// add merges one more iteration and fills in the element of each of its allocations.
func (m *merged) add(tokens []token, element []int32, align aligner) {
	v := m.varietyOf(tokens)
	places := v.among(m.order)
	have := make([]token, len(places))
	for i, p := range places {
		have[i] = m.tokens[m.order[p]]
	}
	order := make([]int32, 0, len(m.order)+len(tokens)/8)
	i := 0
	for j, at := range align(have, tokens) {
		if at < 0 {
			at = m.grow()
			order = append(order, at)
		} else {
			place := int(places[at])
			order = append(order, m.order[i:place+1]...)
			i = place + 1
			at = m.order[place]
		}
		element[j] = at
		weight := max(m.tokens[at].weight, tokens[j].weight)
		m.tokens[at] = tokens[j]
		m.tokens[at].weight = weight
		m.counts[at]++
	}
	m.order = append(order, m.order[i:]...)
	v.note(element)
}

// grow makes a new element.
func (m *merged) grow() int32 {
	m.tokens = append(m.tokens, token{})
	m.counts = append(m.counts, 0)
	return int32(len(m.tokens) - 1)
}

// The weight of an allocation is its part in the costs of an alignment. It is
// proportional to the size. Allocations that are freed within the exact lifetime classes
// weigh nothing: few of them are live at the same time, and they make no peak.
const (
	// meanWeight is the weight of an allocation of the mean size, in the unit of
	// openGap. At 0, when only classes and sizes count, the envelope of moe16-pp2-N
	// costs 1.033 instead of 1.017. At four times the value it costs no less there, and
	// there are 60 % more optional slots.
	meanWeight = 64
	// maxWeight bounds one weight, in the unit of openGap, so that sums stay far below
	// never. No shared recording depends on it from 2^12 on.
	maxWeight = 1 << 16
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
			weak: weak, strong: splitmix.Mix(weak ^ uint64(b.Size)),
		}
		if class == forever || class > exactClasses {
			out[i].weight = int64(min(maxWeight, meanWeight*float64(b.Size)/mean))
		}
	}
	return out
}

// reader gives the tokens of iterations, of which iteration i allocates buffers [starts[i], starts[i+1]).
type reader func(tl *Timeline, starts []int32) []token

// whole reads buffers from the first iteration to the last, whatever iteration they are of.
func whole(read func(tl *Timeline, from, to int) []token) reader {
	return func(tl *Timeline, starts []int32) []token {
		return read(tl, int(starts[0]), int(starts[len(starts)-1]))
	}
}

// nearPeak is the part of the way from the least to the largest load of an iteration from which on what is live
// weighs, from nothing up to its full weight at the peak. docs/steady-state.md has what other values do.
const nearPeak = 1. / 2

// readNearPeak describes buffers as tokenize does, but what is live only far from the peak of its iteration weighs
// nothing. What an evaluation of a large batch keeps for a layer or two is larger than an activation of the step
// behind it. With full weights it is cheapest to take it for that, and to give the step slots of its own, which all make the peak.
func readNearPeak(tl *Timeline, starts []int32) []token {
	out, load := whole(tokenize)(tl, starts), tl.Load(EndRequested)
	for i := range len(starts) - 1 {
		buffers := tl.Buffers[starts[i]:starts[i+1]]
		if len(buffers) == 0 {
			continue
		}
		most := load.mostDuring(buffers, EndRequested)
		low, peak := slices.Min(load[buffers[0].Start:buffers[len(buffers)-1].Start+1]), slices.Max(most)
		for k, m := range most {
			t := &out[int(starts[i]-starts[0])+k]
			t.weight = int64(float64(t.weight) * max(0, float64(m-low)/float64(max(1, peak-low))-nearPeak) / (1 - nearPeak))
		}
	}
	return out
}

// ratioWeight is the divisor of the weights of tokens that are read by ratios. Slots of experts share places, so that what
// they take one by one hardly matters; of other slots it does. What other values do is in docs/steady-state.md.
const ratioWeight = 16

// readRatios describes buffers as tokenize does, but for their sizes: it has the ratio of what is requested to what the buffer before
// requested. All buffers of an expert are in proportion to its tokens, so that these ratios are the same for any two experts.
func readRatios(tl *Timeline, from, to int) []token {
	out := tokenize(tl, from, to)
	log := func(i int) int64 { return int64(octave * math.Log2(float64(max(1, tl.Buffers[i].Requested)))) }
	for i := range out {
		out[i].log = log(from+i) - log(max(0, from+i-1))
		out[i].weight /= ratioWeight
	}
	return out
}

// initial is the number of buffers that were live before recording began.
func (tl *Timeline) initial() int {
	n := 0
	for n < len(tl.Buffers) && tl.Buffers[n].Initial {
		n++
	}
	return n
}
