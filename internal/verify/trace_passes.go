package verify

import (
	"fmt"
	"sort"

	"github.com/stplan/stplan/internal/planfile"
)

// passage compares a periodic plan with a recording, pass by pass.
type passage struct {
	*comparison
	buffers []buffer
	first   []int      // the first buffer of each pass, and of what comes after the last
	ordinal []int      // by buffer from first[0] on: its allocation slot of its body, from 0
	seen    []observed // by slot
	// enters has, for each pass, what lies in the cells when it begins.
	enters []map[uint32]*buffer
	// held has what the members of shared places take in the current pass, by holder.
	held   map[int][]interval
	shared []bool // by slot: whether it is such a member
	// shown has the cells that some pass found filled and its body has no entering slot
	// for.
	shown map[phaseCell]bool
}

type phaseCell struct {
	phase int
	cell  uint32
}

// observed is what the recording shows of a slot.
type observed struct {
	occurrences  uint32
	most, least  uint64
	requestedEnd uint64
	// The completed end is known exactly, or as a range if another body came next, since
	// the plan does not relate its times to those of this body.
	completed, completedMost uint64
}

// after is the pass that stands for everything behind the last one.
func (p *passage) after() int { return len(p.d.Passes) }

// periodic compares a device's periodic plan with its recorded buffers.
func (c *comparison) periodic(buffers []buffer) {
	records := &judge{d: c.d, results: &results{}}
	if !records.records() {
		c.violated(RuleTrace, none, none, "not compared with the trace, because the plan is wrong by itself: %s", records.list[0].Message)
		return
	}
	c.stages = records.stages
	p := &passage{comparison: c, buffers: buffers, seen: make([]observed, len(c.d.Slots)),
		enters: make([]map[uint32]*buffer, len(c.d.Passes)), shown: map[phaseCell]bool{},
		held: map[int][]interval{}, shared: c.d.Shared()}
	for i := range p.enters {
		p.enters[i] = map[uint32]*buffer{}
		p.first = append(p.first, p.bufferAt(c.d.Passes[i].FirstEvent))
	}
	p.first = append(p.first, p.bufferAt(c.d.SteadyEnd))
	p.peaks()
	if !p.place() {
		return
	}
	c.pair(0, c.stages[0].end, buffers[:p.first[0]], p.prologueSlot)
	p.fit("in the prologue")
	for i := range c.d.Passes {
		p.enter(i)
		p.allocate(i)
		p.fit(fmt.Sprintf("in pass %d", i))
	}
	p.envelopes()
	p.unseen()
	p.strayBytes()
}

// bufferAt is the index of the first buffer that is allocated at event t or later.
func (p *passage) bufferAt(t uint64) int {
	return sort.Search(len(p.buffers), func(i int) bool { return p.buffers[i].key() >= int64(t) })
}

// place fills in the slot of each allocation of the passes: the i-th allocation is the
// slot of the i-th presence bit. It returns whether every pass has as many bits as
// allocations.
func (p *passage) place() bool {
	before := p.found
	for i := range p.d.Passes {
		pass := &p.d.Passes[i]
		eachBit(pass.Present, func(k int) { p.ordinal = append(p.ordinal, k) })
		if planned, recorded := len(p.ordinal), p.first[i+1]-p.first[0]; planned != recorded {
			p.violated(RulePass, none, none, "pass %d has %d slots of %s, but %d allocations in the trace", i,
				planned-(p.first[i]-p.first[0]), p.stages[pass.Phase].name, p.first[i+1]-p.first[i])
			break
		}
	}
	return p.found == before
}

// heir is the pass that finds what pass i leaves in cells: the next one that is not an
// interlude.
func (p *passage) heir(i int) int {
	for i++; i < p.after() && p.stageOfPass(i).interlude; i++ {
	}
	return i
}

// passOf is the pass that a time lies in: after its first event, up to the first event of
// the next one. A free that the recording does not show lies after the last pass.
func (p *passage) passOf(t int64) int {
	if t > int64(p.d.SteadyEnd) || t >= int64(p.d.Events) {
		return p.after()
	}
	return sort.Search(len(p.d.Passes), func(i int) bool { return int64(p.d.Passes[i].FirstEvent) >= t }) - 1
}

// within translates a time of the recording that lies in a pass into the time of its
// body: the time after the last allocation before it.
func (p *passage) within(pass int, t int64) uint64 {
	last := p.bufferAt(uint64(t)) - 1
	if last < p.first[pass] {
		return 0
	}
	return uint64(p.ordinal[last-p.first[0]] + 1)
}

// timeIn translates a time of the recording into the time of pass i, or of the prologue
// if i is -1. The result is the range that the plan may have.
func (p *passage) timeIn(i int, t int64) (least, most uint64) {
	st, of := &p.stages[0], p.passOf(t)
	if i >= 0 {
		st = p.stageOfPass(i)
	}
	switch {
	case of < i:
		return 0, 0
	case of == i && i < 0:
		return uint64(t), uint64(t)
	case of == i:
		least = p.within(of, t)
		return least, least
	case of == p.after() && i == of-1:
		return st.length, st.length
	case i >= 0 && p.heir(i) > i+1 && of <= p.heir(i):
		return st.length, st.length + st.carry // an interlude has no place in the body's time
	case of > i+1:
		return st.length + st.carry, st.length + st.carry
	case i >= 0 && p.d.Passes[i].Phase != p.d.Passes[of].Phase:
		return st.length, st.length + st.carry
	}
	least = st.length + p.within(of, t)
	return least, least
}

func (p *passage) stageOfPass(i int) *stage { return &p.stages[p.d.Passes[i].Phase] }

// end is the end of a buffer's live range, of the kind that the plan is made for.
func (p *passage) end(b *buffer) int64 {
	if p.d.End == planfile.EndCompleted {
		return b.completedEnd
	}
	return b.requestedEnd
}

// observe adds a buffer to what is seen of slot i in a pass.
func (p *passage) observe(i, pass int, b *buffer) {
	o, s := &p.seen[i], &p.d.Slots[i]
	if size := uint64(b.requested); o.occurrences == 0 || size < o.least {
		o.least = size
	}
	o.most = max(o.most, uint64(b.requested))
	o.occurrences++
	length := p.stageOf(i).length
	requested, _ := p.timeIn(pass, b.requestedEnd)
	least, most := p.timeIn(pass, b.completedEnd)
	if s.Flags&planfile.SlotLeaving != 0 {
		requested, least, most = length, max(length, least), max(length, most)
	}
	o.requestedEnd = max(o.requestedEnd, min(length, requested))
	o.completed, o.completedMost = max(o.completed, least), max(o.completedMost, most)
	p.onStream(i, b)
}

// prologueSlot compares slot i of the prologue with the buffer it is for.
func (p *passage) prologueSlot(i int, b *buffer) {
	s, freed := &p.d.Slots[i], p.passOf(p.end(b))
	p.observe(i, -1, b)
	p.hold(i, b)
	switch {
	case s.Flags&planfile.SlotResident != 0:
		if freed < 0 {
			p.differs(i, b, "resident, freed", "never", at(p.end(b)))
		}
		length := p.stages[0].length
		p.seen[i].requestedEnd, p.seen[i].completed, p.seen[i].completedMost = length, length, length
	case s.Flags&planfile.SlotLeaving != 0:
		if freed != 0 {
			p.differs(i, b, inCell(s.Cell), "in the first pass", at(p.end(b)))
			return
		}
		p.enters[0][s.Cell] = b
	case freed >= 0:
		p.differs(i, b, "ordinary, freed", "in the prologue", at(p.end(b)))
	}
}

// allocate checks the allocations of a pass.
func (p *passage) allocate(pass int) {
	st := p.stageOfPass(pass)
	for k := p.first[pass]; k < p.first[pass+1]; k++ {
		b := &p.buffers[k]
		i := st.first + st.entering + p.ordinal[k-p.first[0]]
		p.observe(i, pass, b)
		p.hold(i, b)
		s, freed := &p.d.Slots[i], p.passOf(p.end(b))
		switch {
		case freed == pass || p.heir(pass) == p.after() || s.Flags&planfile.SlotStray != 0:
			// What outlives the last body may still be freed in time.
		case s.Flags&planfile.SlotLeaving == 0:
			p.differs(i, b, "ordinary, freed", fmt.Sprintf("in pass %d", pass), at(p.end(b)))
		case freed > p.heir(pass):
			p.differs(i, b, inCell(s.Cell), fmt.Sprintf("in pass %d", p.heir(pass)), at(p.end(b)))
		case freed == p.heir(pass):
			p.enters[freed][s.Cell] = b
		}
	}
}

func at(t int64) string         { return fmt.Sprintf("at event %d", t) }
func inCell(cell uint32) string { return fmt.Sprintf("in cell %d, freed", cell) }
