package packing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// instance is a problem in canonical form, which the heuristics work on. Buffers are
// renumbered by (start, end, size), so that equal problems in another order are the
// same instance. Sizes and offsets count units of the alignment. Time is cut into
// sections.
//
// A section is the one of minimalloc's sweeper: a new one begins at the first start
// after an end (google/minimalloc, src/sweeper.h). All buffers of a section are live
// together at its last start. So two buffers overlap in time exactly if their section
// ranges [lo, hi) do, and the load of a section is the largest within it.
type instance struct {
	n      int
	unit   Bytes   // the alignment
	origin []int32 // of each buffer: its index in the problem
	start  []Time
	end    []Time
	size   []int64
	byEnd  []int32 // buffers by (end, number)

	lo, hi   []int32 // of each buffer: the sections in which it is live, [lo, hi)
	sections int
	load     []int64 // of each section
	instant  []Time  // of each section: its last start, when it has that load
	bound    int64   // max load
	peak     int32   // first section with the max load
	crest    []int64 // of each buffer: the largest load during its life

	buffers int       // number of buffers in the problem; n counts pieces if there are gaps
	mates   [][]int32 // of each piece of a buffer with gaps: all its pieces; nil without gaps
}

// layout is an offset for every buffer of an instance, in units.
type layout struct {
	off       []int64
	makespan  int64
	heuristic string
}

// maxBuffers keeps buffer numbers within int32, with room for doubling them.
const maxBuffers = math.MaxInt32 / 4

func newInstance(p *Problem) (*instance, error) {
	unit := p.Alignment
	if unit == 0 {
		unit = 1
	}
	if unit < 0 {
		return nil, &InputError{Where: "alignment", Problem: "expected at least 1 byte, found " + itoa(unit)}
	}
	if len(p.Buffers) > maxBuffers {
		return nil, &InputError{Where: "buffers", Problem: fmt.Sprintf("expected at most %d, found %d", maxBuffers, len(p.Buffers))}
	}
	if err := checkBuffers(p.Buffers, unit); err != nil {
		return nil, err
	}
	buffers, of, err := splitAtGaps(p)
	if err != nil {
		return nil, err
	}
	in := &instance{n: len(buffers), unit: unit, buffers: len(p.Buffers)}
	in.renumber(buffers)
	in.setMates(of)
	in.cutSections()
	in.setCrests()
	return in, nil
}

// checkBuffers refuses buffers that cannot be placed. The sum of all rounded sizes has
// to fit an int64: then no offset can overflow in any heuristic.
func checkBuffers(buffers []Buffer, unit Bytes) error {
	var total Bytes
	for i, b := range buffers {
		problem := ""
		switch {
		case b.Size <= 0:
			problem = fmt.Sprintf("expected a size above 0 bytes, found %d", b.Size)
		case b.Start < 0:
			problem = fmt.Sprintf("expected a start of 0 or later, found %d", b.Start)
		case b.End <= b.Start:
			problem = fmt.Sprintf("expected an end after the start %d, found %d", b.Start, b.End)
		case b.Size > math.MaxInt64-unit+1 || total > math.MaxInt64-roundUp(b.Size, unit):
			problem = fmt.Sprintf("size %d bytes: expected all sizes to add up to at most %d bytes", b.Size, int64(math.MaxInt64))
		}
		if problem != "" {
			return &InputError{Where: fmt.Sprintf("buffer %d", i), Problem: problem}
		}
		total += roundUp(b.Size, unit)
	}
	return nil
}

func roundUp(size, unit Bytes) Bytes { return (size + unit - 1) / unit * unit }

func (in *instance) renumber(buffers []Buffer) {
	in.origin = make([]int32, in.n)
	for i := range in.origin {
		in.origin[i] = int32(i)
	}
	slices.SortFunc(in.origin, func(x, y int32) int {
		a, b := &buffers[x], &buffers[y]
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), cmp.Compare(a.Size, b.Size), cmp.Compare(x, y))
	})
	in.start, in.end = make([]Time, in.n), make([]Time, in.n)
	in.size, in.byEnd = make([]int64, in.n), make([]int32, in.n)
	for i, o := range in.origin {
		b := &buffers[o]
		in.start[i], in.end[i] = b.Start, b.End
		in.size[i] = int64((b.Size + in.unit - 1) / in.unit)
		in.byEnd[i] = int32(i)
	}
	in.sortEnds()
}

func (in *instance) sortEnds() {
	slices.SortFunc(in.byEnd, func(x, y int32) int {
		return cmp.Or(cmp.Compare(in.end[x], in.end[y]), cmp.Compare(x, y))
	})
}

// cutSections cuts time into sections. Ends come before starts at the same instant:
// live ranges are half-open.
func (in *instance) cutSections() {
	in.lo, in.hi = make([]int32, in.n), make([]int32, in.n)
	var live int64
	ended, fresh := 0, true
	for b := range in.n {
		for ; ended < in.n && in.end[in.byEnd[ended]] <= in.start[b]; ended++ {
			e := in.byEnd[ended]
			in.hi[e] = int32(in.sections)
			live -= in.size[e]
			fresh = true
		}
		if fresh {
			in.load = append(in.load, 0)
			in.instant = append(in.instant, 0)
			in.sections++
			fresh = false
		}
		live += in.size[b]
		in.lo[b] = int32(in.sections - 1)
		in.load[in.sections-1], in.instant[in.sections-1] = live, in.start[b]
	}
	for _, e := range in.byEnd[ended:] {
		in.hi[e] = int32(in.sections)
	}
	for s, l := range in.load {
		if l > in.bound {
			in.bound, in.peak = l, int32(s)
		}
	}
}

func (in *instance) setCrests() {
	loads := newRangeMax(in.sections)
	for s, l := range in.load {
		loads.raise(int32(s), int32(s)+1, l)
	}
	in.crest = make([]int64, in.n)
	for b := range in.n {
		in.crest[b] = loads.max(in.lo[b], in.hi[b])
	}
}

func (in *instance) maxLoad() Bound {
	if in.n == 0 {
		return Bound{}
	}
	return Bound{Load: Bytes(in.bound) * in.unit, At: in.instant[in.peak]}
}

// life is the length of buffer b's life, in sections.
func (in *instance) life(b int32) int64 { return int64(in.hi[b] - in.lo[b]) }

// resident reports whether buffer b lives to the end of the last section.
func (in *instance) resident(b int32) bool { return int(in.hi[b]) == in.sections }

func (in *instance) placement(l layout) Placement {
	pl := Placement{Offsets: make([]Bytes, in.buffers), Makespan: Bytes(l.makespan) * in.unit, Heuristic: l.heuristic}
	for i, o := range in.origin {
		pl.Offsets[o] = Bytes(l.off[i]) * in.unit
	}
	return pl
}
