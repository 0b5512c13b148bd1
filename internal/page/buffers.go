package page

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/callstack"
	"github.com/stplan/stplan/internal/export"
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// nowhere is the place of a buffer that has none.
const nowhere = 1<<32 - 1

// Parts of buffers.kind, by the bit that each begins at.
const (
	kindCategory = 0  // 4 bits: index into Names.Categories
	kindSure     = 4  // the recording shows the category
	kindInitial  = 5  // allocated before recording began
	kindResident = 6  // never freed in the recording
	kindBinds    = 7  // of the witness that proves the bound
	kindPart     = 8  // 4 bits: index into Names.Parts
	kindStream   = 12 // 8 bits: index into Names.Streams
)

// buffers are the columns of what is drawn, by start.
type buffers struct {
	start, freed, reusable []uint32 // events: allocated, freed by the program, reusable by the allocator
	units, spare           []uint32 // size; bytes that were not asked for
	place, recorded        []uint32 // address in the plan and in what was recorded, or nowhere
	stack, kind, iteration []uint32 // iteration: plus 1
}

// gather makes the columns of the buffers and of the flame graph, with the stacks of both.
func (d *Device) gather(in Input, slots []int32, l *layout) {
	d.nameKinds()
	g := gathering{d: d, in: in, slots: slots, shared: in.Plan.Shared(), addresses: inShared(in.Plan, in.Recording.Timeline, slots), layout: l, stacks: newStacks(d, in.Recording), streams: map[uint64]uint32{}}
	d.Counts.Buffers = len(in.Recording.Timeline.Buffers)
	for _, i := range d.chosen(in.Recording) {
		g.add(i)
	}
	b := &d.buffers
	d.Counts.Shown = len(b.start)
	d.columns = append(d.columns,
		column{"start", rising, b.start}, column{"life", plain, minus(b.freed, b.start)},
		column{"late", plain, minus(b.reusable, b.freed)}, column{"units", plain, b.units},
		column{"spare", plain, b.spare}, column{"place", plain, b.place}, column{"recorded", plain, b.recorded},
		column{"stack", plain, b.stack}, column{"kind", plain, b.kind}, column{"iteration", rising, b.iteration})
	d.addFlames(in, g.stacks)
}

func (d *Device) nameKinds() {
	for _, c := range peak.Categories() {
		d.Names.Categories = append(d.Names.Categories, c.String())
	}
	d.Names.Categories = append(d.Names.Categories, export.FailedRequest)
	d.Names.Parts = callstack.Parts()
}

// gathering adds one buffer after the other to the columns.
type gathering struct {
	d     *Device
	in    Input
	slots []int32
	// shared says of each slot of the plan whether its place is shared; addresses are those of
	// the buffers there, see inShared.
	shared    []bool
	addresses map[int]uint64
	layout    *layout
	stacks    *stacks
	streams   map[uint64]uint32
}

func (g *gathering) add(i int) {
	live := g.in.Recording.Buffer(i)
	u, b := live.Buffer, &g.d.buffers
	b.start = append(b.start, uint32(u.Start))
	b.freed = append(b.freed, uint32(u.RequestedEnd))
	b.reusable = append(b.reusable, uint32(u.CompletedEnd))
	b.units = append(b.units, units(u.Size))
	b.spare = append(b.spare, uint32(u.Size-u.Requested))
	b.place = append(b.place, g.place(i))
	b.recorded = append(b.recorded, g.layout.of(i))
	b.stack = append(b.stack, g.stacks.index(live.Stack))
	b.kind = append(b.kind, kindOf(&live)|g.stream(u.Stream)<<kindStream|bit(g.d.Bound.has(g.slots[i]), kindBinds))
	b.iteration = append(b.iteration, uint32(live.Phase.Iteration+1))
}

// place is a buffer's address in the plan.
func (g *gathering) place(i int) uint32 {
	address, placed := g.addresses[i]
	if k := g.slots[i]; k >= 0 && !g.shared[k] && g.in.Plan.Slots[k].Flags&planfile.SlotStray == 0 {
		address, placed = g.in.Plan.Slots[k].Offset, true
	}
	if !placed {
		g.d.Counts.OffPlan++
		return nowhere
	}
	return uint32(address / uint64(trace.Granularity))
}

// stream numbers the streams. The last number is for all streams that have none.
func (g *gathering) stream(raw uint64) uint32 {
	const last = 255
	k, known := g.streams[raw]
	if known {
		return k
	}
	k = min(uint32(len(g.streams)), last)
	g.streams[raw] = k
	names := &g.d.Names.Streams
	switch {
	case k < last:
		*names = append(*names, streamName(raw))
	case len(*names) == last:
		*names = append(*names, "another")
	}
	return k
}

// chosen are the buffers to show: all, or the maxBuffers with the most bytes times events.
func (d *Device) chosen(r *peak.Recording) []int {
	all := make([]int, 0, len(r.Timeline.Buffers))
	for i := range r.Timeline.Buffers {
		if fits(r.Timeline.Buffers[i].Size) {
			all = append(all, i)
		}
	}
	if len(all) > maxBuffers {
		area := func(i int) float64 {
			b := &r.Timeline.Buffers[i]
			return float64(b.Size) * float64(b.RequestedEnd-b.Start)
		}
		slices.SortStableFunc(all, func(i, j int) int { return cmp.Compare(area(j), area(i)) })
		all = all[:maxBuffers]
		slices.Sort(all)
	}
	if n := len(r.Timeline.Buffers) - len(all); n > 0 {
		d.note("%d buffers are not drawn, those with the fewest bytes times events; every figure counts them", n)
	}
	return all
}

func kindOf(l *peak.Live) uint32 {
	category := uint32(l.Category)
	if l.Buffer.Failed {
		category = uint32(len(peak.Categories()))
	}
	return category<<kindCategory | bit(l.Sure, kindSure) | bit(l.Buffer.Initial, kindInitial) |
		bit(l.Buffer.Resident, kindResident) | uint32(l.Phase.Part)<<kindPart
}

func bit(set bool, at int) uint32 {
	if set {
		return 1 << at
	}
	return 0
}

func minus(a, b []uint32) []uint32 {
	out := make([]uint32, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

// addFlames adds what was allocated at the instant that peak looks at, by category and
// stack: what the flame graph is made of.
func (d *Device) addFlames(in Input, s *stacks) {
	type key struct {
		category peak.Category
		stack    uint32
	}
	sums := map[key]uint64{}
	var order []key
	for i := range in.At.Live {
		l := &in.At.Live[i]
		if l.Pending {
			continue
		}
		k := key{l.Category, s.index(l.Stack)}
		if _, known := sums[k]; !known {
			order = append(order, k)
		}
		sums[k] += uint64(l.Buffer.Size / trace.Granularity)
	}
	var category, stack, low, high []uint32
	for _, k := range order {
		category, stack = append(category, uint32(k.category)), append(stack, k.stack)
		low, high = append(low, uint32(sums[k])), append(high, uint32(sums[k]>>32))
	}
	d.columns = append(d.columns, column{"flame_category", plain, category}, column{"flame_stack", plain, stack},
		column{"flame_low", plain, low}, column{"flame_high", plain, high})
}

// stacks numbers the stacks that a page has, in the order of their first use.
type stacks struct {
	d      *Device
	r      *peak.Recording
	known  map[int32]uint32
	lines  map[peak.Line]int
	frames map[string]int
	count  int // of frames of all stacks
}

func newStacks(d *Device, r *peak.Recording) *stacks {
	return &stacks{d: d, r: r, known: map[int32]uint32{}, lines: map[peak.Line]int{}, frames: map[string]int{}}
}

func (s *stacks) index(stack int32) uint32 {
	if i, ok := s.known[stack]; ok {
		return i
	}
	i := uint32(len(s.d.Stacks))
	s.known[stack] = i
	line := s.r.Line(stack)
	line.File = "" // the page does not show it
	at, ok := s.lines[line]
	if !ok {
		at = len(s.d.Lines)
		s.lines[line] = at
		s.d.Lines = append(s.d.Lines, Line{line.Label, line.From})
	}
	out := Stack{Line: at, Frames: []int{}}
	if labels := s.r.Stack(stack); s.count+len(labels) <= maxFrames {
		s.count += len(labels)
		for _, label := range labels {
			out.Frames = append(out.Frames, s.frame(label))
		}
	} else if s.count < maxFrames {
		s.count = maxFrames
		s.d.note("some stacks are left out, and only their lines are shown: there are more than %d frames", maxFrames)
	}
	s.d.Stacks = append(s.d.Stacks, out)
	return i
}

func (s *stacks) frame(label string) int {
	i, ok := s.frames[label]
	if !ok {
		i = len(s.d.Frames)
		s.frames[label] = i
		s.d.Frames = append(s.d.Frames, label)
	}
	return i
}
