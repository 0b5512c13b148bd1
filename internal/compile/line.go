package compile

import (
	"cmp"
	"errors"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// alignment is the granularity of PyTorch's own allocator and so of every plan,
// in bytes.
const alignment = packing.Bytes(trace.Granularity)

// line is a draft as a packing problem: its phases one after the other, in plan
// time. Residents live to the end of the line. A cell is one buffer, live from
// where a phase fills it to the end of that phase, and from the beginning of every
// body to where the body empties it. In between it has gaps, in which others can
// use its bytes. So the max load of the line is that of the circle on which the
// bodies repeat (docs/steady-state.md).
type line struct {
	problem packing.Problem
	uses    []packing.Use  // of each buffer of the problem
	base    []packing.Time // where each phase begins, and where the last one ends
}

// newLine makes the problem, and notes in each slot which buffer it is.
func newLine(d *draft) *line {
	l := &line{problem: packing.Problem{Alignment: alignment}, base: make([]packing.Time, 1, len(d.phases)+1)}
	for i := range d.phases {
		l.base = append(l.base, l.base[i]+d.phases[i].length)
	}
	for x := range d.phases {
		for i := range d.of(x) {
			s := &d.of(x)[i]
			s.buffer = noBuffer
			switch {
			case s.is(planfile.SlotShares):
				s.buffer = d.holder(s).buffer
			case s.cell == noCell && !s.is(planfile.SlotStray):
				s.buffer = l.addSlot(d, x, s)
			}
		}
	}
	l.addCells(d)
	return l
}

// last is the end of the line.
func (l *line) last() packing.Time { return l.base[len(l.base)-1] }

func (l *line) add(b packing.Buffer, u packing.Use) int32 {
	l.problem.Buffers, l.uses = append(l.problem.Buffers, b), append(l.uses, u)
	return int32(len(l.problem.Buffers) - 1)
}

// addSlot adds a slot of phase x that crosses no seam.
func (l *line) addSlot(d *draft, x int, s *slot) int32 {
	end := l.base[x] + min(d.until(s), d.phases[x].length)
	if s.is(planfile.SlotResident) {
		end = l.last()
	}
	return l.add(packing.Buffer{Start: l.base[x] + s.start, End: end, Size: s.size},
		packing.Use{Stream: s.stream, Settled: l.base[x] + s.settled()})
}

// stretch is a piece of plan time in which a cell is full.
type stretch struct{ from, to packing.Time }

// addCells adds one buffer for each cell. Its stream is that of what fills it in
// a body.
func (l *line) addCells(d *draft) {
	full, streams := make([][]stretch, len(d.cells)), make([]int32, len(d.cells))
	for x := range d.phases {
		from, to := l.base[x], l.base[x+1]
		if d.phases[x].kind == planfile.PhaseInterlude {
			for cell := range full {
				full[cell] = append(full[cell], stretch{from, to})
			}
		}
		for i := range d.of(x) {
			switch s := &d.of(x)[i]; {
			case s.is(planfile.SlotEntering):
				full[s.cell] = append(full[s.cell], stretch{from, from + min(d.until(s), d.phases[x].length)})
			case s.is(planfile.SlotLeaving):
				full[s.cell] = append(full[s.cell], stretch{from + s.start, to})
				if x > 0 {
					streams[s.cell] = s.stream
				}
			}
		}
	}
	buffers := make([]int32, len(d.cells))
	for cell, parts := range full {
		buffers[cell] = l.addCell(parts, d.cells[cell], streams[cell])
	}
	for i := range d.slots {
		if s := &d.slots[i]; s.cell != noCell {
			s.buffer = buffers[s.cell]
		}
	}
}

// addCell adds the buffer of a cell that is full in the given stretches, with
// gaps between them.
func (l *line) addCell(parts []stretch, size packing.Bytes, stream int32) int32 {
	slices.SortFunc(parts, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	b, end := len(l.problem.Buffers), parts[0].to
	for _, s := range parts[1:] {
		if s.from > end {
			l.problem.Gaps = append(l.problem.Gaps, packing.Gap{Buffer: b, From: end, To: s.from})
		}
		end = max(end, s.to)
	}
	return l.add(packing.Buffer{Start: parts[0].from, End: end, Size: size}, packing.Use{Stream: stream, Settled: end})
}

// streams is the stream of each buffer.
func (l *line) streams() []int32 {
	streams := make([]int32, len(l.uses))
	for i, u := range l.uses {
		streams[i] = u.Stream
	}
	return streams
}

// kept lists the buffers of slots that have one of these flags, in the order of their starts.
func (l *line) kept(d *draft, flags planfile.SlotFlags) []int32 {
	var list []int32
	for i := range d.slots {
		if s := &d.slots[i]; s.buffer != noBuffer && s.is(flags) {
			list = append(list, s.buffer)
		}
	}
	slices.SortFunc(list, func(a, b int32) int {
		return cmp.Or(cmp.Compare(l.problem.Buffers[a].Start, l.problem.Buffers[b].Start), cmp.Compare(a, b))
	})
	return slices.Compact(list)
}

// mostBelow divides the buffers into two classes for packing.Apart. Class 0 is the longest beginning of the list
// that can be kept apart from all other buffers within `most` bytes, and class 1 the others. Buffers that start late are left
// out first, since they may take over bytes of what has ended by then. nil if class 0 would be empty.
func (l *line) mostBelow(list []int32, most packing.Bytes) ([]int32, error) {
	classes := make([]int32, len(l.uses))
	var fault error
	divide := func(n int) []int32 {
		for i := range classes {
			classes[i] = 1
		}
		for _, b := range list[:n] {
			classes[b] = 0
		}
		return classes
	}
	n := sort.Search(len(list), func(n int) bool {
		least, err := packing.ApartLoad(&l.problem, divide(n+1))
		fault = errors.Join(fault, err)
		return err != nil || least > most
	})
	if fault != nil || n == 0 {
		return nil, fault
	}
	return divide(n), nil
}

// smallApart divides the buffers into three classes for packing.Apart: those of class 0 in classes, if that is not nil, those of
// at most `small` bytes, and the others.
func (l *line) smallApart(classes []int32, small packing.Bytes) []int32 {
	apart := make([]int32, len(l.uses))
	for i := range apart {
		switch {
		case classes != nil && classes[i] == 0:
		case l.problem.Buffers[i].Size <= small:
			apart[i] = 1
		default:
			apart[i] = 2
		}
	}
	return apart
}

// settle gives every slot the offset of its buffer.
func (d *draft) settle(pl packing.Placement) {
	for i := range d.slots {
		if s := &d.slots[i]; s.buffer != noBuffer {
			s.offset = pl.Offsets[s.buffer]
		}
	}
}
