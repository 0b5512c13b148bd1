package stalloc

import (
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// line is one line of a plan.
type line struct {
	size   trace.Bytes // as requested: STAlloc compares these
	offset trace.Bytes
	buffer int // that it was traced from
}

// plan is what STAlloc's planner makes of a Trace.
type plan struct {
	// lines are served once, from the first on, until the lines from again on are repeated for
	// ever.
	lines []line
	again int
	// arena is the size of all that lines are in, resident the part of it that is never free.
	arena, resident trace.Bytes
	// slab is the size of the memory for requests that are too small for a line.
	slab trace.Bytes
	// online are the numbers of the requests that live from before the loop into it, counted
	// from 0 without those too small for a line. They are not planned.
	online map[int]bool
}

// tensor is a buffer as the planner sees it.
type tensor struct {
	item
	requested trace.Bytes
	buffer    int
	from, to  int // iterations in which it begins and ends
}

// newPlan plans a trace. why says why STAlloc's planner stops, "" if it does not.
func newPlan(t *Trace) (p *plan, why string) {
	p = &plan{online: make(map[int]bool)}
	static := p.read(t)
	if why := consistent(static); why != "" {
		return nil, why
	}
	// What the first iteration leaves for ever lies behind what came before it and stays.
	weights, states := lasting(static, head), lasting(static, 0)
	if len(weights) == 0 {
		return nil, "nothing lives from before the first iteration to the end"
	}
	endOfWeights := layOut(weights, 0)
	p.resident = layOut(states, endOfWeights)
	var before, loop []*item
	begin, end := never, 0 // of the second iteration
	for _, s := range static {
		switch {
		case s.from == head && s.to == head:
			before = append(before, &s.item)
		case s.from == 1, s.from == 0 && s.to != tail:
			loop = append(loop, &s.item)
			if s.from == 1 {
				begin = min(begin, s.start)
			}
			if s.to == 1 {
				end = max(end, s.end)
			}
		}
	}
	if begin == never || end == 0 {
		return nil, "the second iteration asks for nothing"
	}
	// What comes and goes before the loop may use all but the weights.
	if size := layOut(before, endOfWeights) - endOfWeights; size >= load(static)-endOfWeights {
		pack(before, never, 0)
		move(before, endOfWeights)
	}
	p.arena = p.resident + pack(loop, begin, end-begin)
	move(loop, p.resident)
	for _, s := range static {
		if s.from <= 1 {
			p.lines = append(p.lines, line{size: s.requested, offset: s.offset, buffer: s.buffer})
		}
		if s.from <= 0 {
			p.again = len(p.lines)
		}
	}
	return p, ""
}

// never is after all lines of any trace.
const never = 1 << 60

// read makes tensors of the trace's lines. static are those to be packed, by start.
func (p *plan) read(t *Trace) (static []*tensor) {
	of := make(map[int]*tensor)
	var large, small []*tensor
	for at, l := range t.lines() {
		if l.free {
			s := of[l.buffer]
			s.end, s.to = at, t.iteration(l.at)
			continue
		}
		b := &t.tl.Buffers[l.buffer]
		s := &tensor{buffer: l.buffer, requested: requested(b), from: t.iteration(l.at)}
		s.start, s.size = at, trace.RoundUp(s.requested)
		of[l.buffer] = s
		if s.size <= slab {
			small = append(small, s)
		} else {
			large = append(large, s)
		}
	}
	p.slab = 2 * load(small)
	for n, s := range large {
		switch {
		case t.Hooked(s.buffer):
		case s.from == head && s.to != head && s.to != tail:
			p.online[n] = true
		default:
			static = append(static, s)
		}
	}
	return static
}

func lasting(static []*tensor, from int) (items []*item) {
	for _, s := range static {
		if s.from == from && s.to == tail {
			items = append(items, &s.item)
		}
	}
	return items
}

// consistent compares the third iteration with the second, request by request. It may end
// sooner.
func consistent(static []*tensor) (why string) {
	var second, third []trace.Bytes
	for _, s := range static {
		switch s.from {
		case 1:
			second = append(second, s.requested)
		case 2:
			third = append(third, s.requested)
		}
	}
	for i, size := range third {
		if i >= len(second) {
			return fmt.Sprintf("the third iteration has %d requests, the second %d", len(third), len(second))
		}
		if second[i] != size {
			return fmt.Sprintf("request %d of the third iteration has %d B, that of the second %d B", i, size, second[i])
		}
	}
	return ""
}

// load is the most aligned bytes of the tensors that live at once.
func load(of []*tensor) (most trace.Bytes) {
	changes := make(map[int]trace.Bytes) // each line has one
	lines := make([]int, 0, 2*len(of))
	for _, s := range of {
		changes[s.start], changes[s.end] = s.size, -s.size
		lines = append(lines, s.start, s.end)
	}
	slices.Sort(lines)
	now := trace.Bytes(0)
	for _, at := range lines {
		now += changes[at]
		most = max(most, now)
	}
	return most
}

// layOut places items end to end from an offset on, and returns where they end.
func layOut(items []*item, from trace.Bytes) (end trace.Bytes) {
	for _, it := range items {
		it.offset = from
		from += it.size
	}
	return from
}

func move(items []*item, by trace.Bytes) {
	for _, it := range items {
		it.offset += by
	}
}
