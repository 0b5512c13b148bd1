package compile

import (
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// A plan for more than was recorded (Options.MaxScale): each slot whose size varies is as
// large as its law says for MaxScale times the largest recorded value of the quantity that it
// follows. Requests stay those of the recording, so the certificate does too, and what the plan
// takes above it is the room that was asked for.

// quantityShare is the share of the bytes that follow the quantity with the most that another
// one has to have to be one. It bounds how many each slot is compared with, to a hundred.
const quantityShare = 0.01

// leastVaried is the number of bytes that a size has to vary by. Less is rounding.
const leastVaried = trace.Granularity

// mostScaled bounds what a law gives for one slot, in bytes: more than any device has.
const mostScaled = 1 << 44

// scaling finds the laws of a draft's bodies.
type scaling struct {
	c      *compiler
	d      *draft
	factor float64
	result report.Scaled
}

// scale gives the slots of a draft their sizes for Options.MaxScale; sizes are those of compiler.sizes.
// It returns nil if that is not asked for.
func (c *compiler) scale(d *draft, sizes [][][]float64) *report.Scaled {
	if c.MaxScale <= 1 {
		return nil
	}
	s := &scaling{c: c, d: d, factor: c.MaxScale, result: report.Scaled{MaxScale: c.MaxScale}}
	if c.periodic != nil {
		for x := range c.periodic.Bodies {
			s.body(x, sizes[x])
		}
		d.fitCells()
	}
	return &s.result
}

// believe grows the slots of a draft to what lifespan.Body.Believed says of their sizes. Not with
// NoCrossStream: the bound of what was recorded is of all streams together, and verify proves streams
// apart by theirs.
func (c *compiler) believe(d *draft, sizes [][][]float64) {
	c.believed = 0
	if c.periodic == nil || c.NoCrossStream {
		return
	}
	for x := range c.periodic.Bodies {
		body := &c.periodic.Bodies[x]
		first := d.phases[x+1].first + len(body.Entering)
		for i, bytes := range body.Believed(sizes[x]) {
			if slot := &d.slots[first+i]; bytes > 0 && !slot.is(planfile.SlotStray) && slot.cell == noCell && !slot.shared() {
				slot.grow(bytes)
				c.believed++
			}
		}
	}
	c.believePrologue(d)
}

// believePrologue grows the slots of the prologue that data decide: the first iteration was recorded once, and may take as
// much there as a later one.
func (c *compiler) believePrologue(d *draft) {
	body := &c.periodic.Bodies[c.periodic.Passes[0].Body]
	for i, s := range c.periodic.Prologue {
		if s.Like >= 0 && body.Slots[s.Like].Requested > d.slots[i].requested {
			d.slots[i].grow(float64(body.Slots[s.Like].Requested))
			c.believed++
		}
	}
}

// sizes are the requested bytes by body, slot and pass of the body; 0 in a pass that lacks the
// slot. nil if the plan is not periodic.
func (c *compiler) sizes() [][][]float64 {
	per := c.periodic
	if per == nil {
		return nil
	}
	out := make([][][]float64, len(per.Bodies))
	for x := range out {
		out[x] = make([][]float64, per.Bodies[x].Length)
		for i := range out[x] {
			out[x][i] = make([]float64, per.Bodies[x].Occurrences)
		}
	}
	pass := make([]int, len(per.Bodies)) // of each body, so far
	c.eachPass(func(p *lifespan.Pass, first int) {
		for k, slot := range p.Slots() {
			out[p.Body][slot][pass[p.Body]] = float64(c.timeline.Buffers[first+k].Requested)
		}
		pass[p.Body]++
	})
	return out
}

// eachPass calls back with each pass and its first buffer.
func (c *compiler) eachPass(call func(p *lifespan.Pass, first int)) {
	for i := range c.periodic.Passes {
		p := &c.periodic.Passes[i]
		call(p, c.bufferAt(p.First))
	}
}

// bufferAt is the index of the first buffer that is allocated at t or later.
func (c *compiler) bufferAt(t trace.Time) int {
	b := c.timeline.Buffers
	return sort.Search(len(b), func(i int) bool { return !b[i].Initial && b[i].Start >= t })
}

// law is what a slot's size follows, if that is known.
type law struct {
	lifespan.SizeLaw
	quantity int // index in quantities
}

// quantities are what the sizes of a body follow.
type quantities struct {
	slots  []int       // whose size stands for each
	values [][]float64 // of each, by pass
}

// most is the largest recorded value of a quantity.
func (q *quantities) most(i int) float64 { return slices.Max(q.values[i]) }

// quantitiesOf are those of a body: the ones with many bytes, but for those that follow from
// others with more.
func quantitiesOf(sizes [][]float64) *quantities {
	found, out := lifespan.Quantities(sizes), &quantities{}
	for _, f := range found {
		if f.Bytes < quantityShare*found[0].Bytes {
			break
		}
		values := sizes[f.Slot]
		if lifespan.Distinct(values) > 2 { // two values are on a line with any others
			if _, _, follows := lifespan.LawOver(values, out.values); follows {
				continue
			}
		}
		out.slots, out.values = append(out.slots, f.Slot), append(out.values, values)
	}
	return out
}

// body scales the slots of body x, and those of the prologue that are the same.
func (s *scaling) body(x int, sizes [][]float64) {
	q := quantitiesOf(sizes)
	s.result.Quantities += len(q.slots)
	laws := make([]*law, len(sizes))
	first := s.d.phases[x+1].first + len(s.c.periodic.Bodies[x].Entering)
	for i := range sizes {
		slot := &s.d.slots[first+i]
		if slot.is(planfile.SlotStray) || slot.shared() || slot.requested-slot.least < leastVaried {
			continue
		}
		s.result.Varied++
		s.result.VariedBytes += int64(slot.size)
		found, of, ok := lifespan.LawOver(sizes[i], q.values)
		if !ok {
			s.result.Lawless++
			s.result.LawlessBytes += int64(slot.size)
			continue
		}
		laws[i] = &law{found, of}
		slot.grow(s.at(laws[i], q))
	}
	if x == 0 {
		s.prologue(sizes, laws, q)
	}
}

// at is what a law says for the largest quantity that is planned for.
func (s *scaling) at(l *law, q *quantities) float64 { return l.At(s.factor * q.most(l.quantity)) }

// grow makes a slot large enough for a request of this size.
func (s *slot) grow(bytes float64) {
	s.size = max(s.size, packing.Bytes(trace.RoundUp(trace.Bytes(min(bytes, mostScaled)+0.5))))
}

// prologue scales what the prologue's own iterations have in common with the first body: what
// they allocated there was recorded at one length each.
func (s *scaling) prologue(sizes [][]float64, laws []*law, q *quantities) {
	if len(q.slots) == 0 {
		return
	}
	from, slots := s.c.longest(0)
	it := &s.c.iterations
	for k := 0; k < it.Count && it.Starts[k] < s.c.periodic.Cut; k++ {
		begin := s.c.bufferAt(it.Starts[k])
		end := s.c.bufferAt(min(it.Starts[k+1], s.c.periodic.Cut))
		s.iteration(s.c.part(from, from+len(slots)), s.c.part(begin, end), begin, func(at int32) int { return slots[at] }, laws, q)
	}
}

// longest is the first buffer of the pass of a body that has the most allocations, and their slots.
func (c *compiler) longest(body int) (from int, slots []int) {
	c.eachPass(func(p *lifespan.Pass, first int) {
		if of := p.Slots(); p.Body == body && len(of) > len(slots) {
			from, slots = first, of
		}
	})
	return from, slots
}

// part is a stretch of the recording.
func (c *compiler) part(begin, end int) *lifespan.Timeline {
	return &lifespan.Timeline{Events: c.timeline.Events, Buffers: c.timeline.Buffers[begin:end]}
}

// iteration scales the buffers of an iteration of the prologue whose size is what the law of
// their slot says for the quantity that the iteration had.
func (s *scaling) iteration(base, part *lifespan.Timeline, begin int, slotOf func(int32) int, laws []*law, q *quantities) {
	match := lifespan.Match(base, part)
	value := make([]float64, len(q.slots)) // of each quantity, 0 if the iteration does not show it
	for i, at := range match {
		if at >= 0 {
			if k := slices.Index(q.slots, slotOf(at)); k >= 0 {
				value[k] = float64(part.Buffers[i].Requested)
			}
		}
	}
	for i, at := range match {
		if at < 0 || laws[slotOf(at)] == nil {
			continue
		}
		l, b := laws[slotOf(at)], &part.Buffers[i]
		if x := value[l.quantity]; x > 0 && l.Near(x, float64(b.Requested)) && !s.d.slots[begin+i].is(planfile.SlotResident) && !s.d.slots[begin+i].shared() {
			s.d.slots[begin+i].grow(s.at(l, q)) // slot i of a prologue is buffer i
			s.result.Prologue++
		}
	}
}

// fitCells makes cells as large as the slots in them, and gives these one size.
func (d *draft) fitCells() {
	for i := range d.slots {
		if s := &d.slots[i]; s.cell != noCell {
			d.cells[s.cell] = max(d.cells[s.cell], s.size)
		}
	}
	for i := range d.slots {
		if s := &d.slots[i]; s.cell != noCell {
			s.size = d.cells[s.cell]
		}
	}
}

// recordedBound makes the certificate of a plan for more than was recorded, asked for or believed: the
// load of the recorded requests, as no plan of the recording takes less.
func recordedBound(dev *planfile.Device) {
	base := uint64(0)
	c := planfile.Certificate{Kind: planfile.BoundLoad}
	for x := range dev.Phases {
		if p := &dev.Phases[x]; x == 0 || p.LowerBound > c.LowerBound {
			c.LowerBound, c.At = p.LowerBound, base+p.BoundAt
		}
		base += dev.Phases[x].Length
	}
	c.Gap = dev.ArenaBytes - c.LowerBound
	dev.Certificate = c
}
