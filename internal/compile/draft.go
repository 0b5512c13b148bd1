package compile

import (
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// draft is one device's plan in the making: everything that can be allocated, as
// slots in phases. A plan of the recorded process is one phase.
type draft struct {
	end     lifespan.End // that the plan is made for
	streams streamTable  // in the order of their first slot
	slots   []slot       // phase by phase
	phases  []phase      // the prologue first; docs/steady-state.md has the model
	cells   []packing.Bytes
	waits   []wait
}

// slot is one place. Times count from the beginning of its phase: events in the
// prologue, allocations in a body.
type slot struct {
	start, requestedEnd, completedEnd packing.Time

	size             packing.Bytes // aligned; of a cell in every slot that uses it
	requested, least trace.Bytes   // bytes the program asked for: the most and the fewest
	stream           int32         // index in draft.streams
	occurrences      int           // recorded passes that had it
	cell             int32         // that it enters from or leaves in; noCell if none
	flags            planfile.SlotFlags

	// holder is the index of the slot whose place it shares, and one; 0 if it shares none. holds says that others share its
	// place, which is kept until the last end of them all.
	holder                       int32
	holds                        bool
	keptRequested, keptCompleted packing.Time // 0 if it does not hold

	buffer int32 // of the packing problem; noBuffer of a stray
	offset packing.Bytes
}

const (
	noCell   int32 = -1
	noBuffer int32 = -1
)

func (s *slot) is(f planfile.SlotFlags) bool { return s.flags&f != 0 }

// shared says whether it shares its place with others.
func (s *slot) shared() bool { return s.holds || s.is(planfile.SlotShares) }

// phase is slots[first : first+count].
type phase struct {
	kind        planfile.PhaseKind
	occurrences int
	length      packing.Time // events of the prologue, allocations of a body
	first       int
	count       int
}

// wait is a reuse that the device has to order: slot later takes over bytes of
// slot earlier.
type wait struct {
	later, earlier int32
	kind           planfile.WaitKind
}

// newDraft lists the slots of a recording; its steady state, if it is to be
// periodic, is per.
func newDraft(tl *lifespan.Timeline, per *lifespan.Periodic, end lifespan.End) *draft {
	d := &draft{end: end}
	if per == nil {
		d.recorded(tl)
		return d
	}
	for _, c := range per.Cells {
		d.cells = append(d.cells, packing.Bytes(c.Size))
	}
	d.prologue(tl, per)
	for i := range per.Bodies {
		d.body(&per.Bodies[i])
	}
	d.keepShared()
	return d
}

// holder is the slot whose place a slot shares, itself if it shares none.
func (d *draft) holder(s *slot) *slot {
	if s.holder == 0 {
		return s
	}
	return &d.slots[s.holder-1]
}

// keepShared finds until when places are kept that slots share.
func (d *draft) keepShared() {
	for i := range d.slots {
		s := &d.slots[i]
		if h := d.holder(s); h.holds {
			h.keptRequested, h.keptCompleted = max(h.keptRequested, s.requestedEnd), max(h.keptCompleted, s.completedEnd)
		}
	}
}

// moveShared has the slots that share places lie where these are.
func (d *draft) moveShared() {
	for i := range d.slots {
		d.slots[i].offset = d.holder(&d.slots[i]).offset
	}
}

// clone is a draft of its own, as far as offsets and waits go.
func (d *draft) clone() *draft {
	c := *d
	c.slots = slices.Clone(d.slots)
	return &c
}

// top is the largest offset + size of a slot.
func (d *draft) top() packing.Bytes { return topOf(d.slots, 0) }

// topOf is likewise, of the slots that have one of these flags; 0 is all of them.
func topOf(slots []slot, f planfile.SlotFlags) packing.Bytes {
	var top packing.Bytes
	for i := range slots {
		if s := &slots[i]; f == 0 || s.is(f) {
			top = max(top, s.offset+s.size)
		}
	}
	return top
}

// until is when a slot's place is free again: the end of its live range, or the last one of those that share the
// place. It is later than the phase if the recorded completion is.
func (d *draft) until(s *slot) packing.Time {
	if d.end == lifespan.EndCompleted {
		return s.settled()
	}
	return max(s.requestedEnd, s.keptRequested)
}

// settled is when a stream can be made to wait for all that lay in a slot's place.
func (s *slot) settled() packing.Time { return max(s.completedEnd, s.keptCompleted) }

// of are the slots of phase x.
func (d *draft) of(x int) []slot {
	p := &d.phases[x]
	return d.slots[p.first : p.first+p.count]
}

// begin opens a phase, whose slots are those that are added until the next one.
func (d *draft) begin(kind planfile.PhaseKind, occurrences int, length packing.Time) {
	d.phases = append(d.phases, phase{kind: kind, occurrences: occurrences, length: length, first: len(d.slots)})
}

func (d *draft) add(s slot) {
	if s.cell != noCell {
		s.size = d.cells[s.cell]
	}
	if s.holder > 0 {
		s.flags |= planfile.SlotShares
	}
	d.slots = append(d.slots, s)
	d.phases[len(d.phases)-1].count++
}

// recorded makes one slot of each buffer, in the same order.
func (d *draft) recorded(tl *lifespan.Timeline) {
	d.begin(planfile.PhasePrologue, 1, packing.Time(tl.Events))
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		s := d.ofBuffer(b)
		s.requestedEnd, s.completedEnd = packing.Time(b.RequestedEnd), packing.Time(b.CompletedEnd)
		if b.Resident {
			s.flags |= planfile.SlotResident
		}
		d.add(s)
	}
}

func (d *draft) prologue(tl *lifespan.Timeline, per *lifespan.Periodic) {
	d.begin(planfile.PhasePrologue, 1, packing.Time(per.Cut))
	for _, p := range per.Prologue {
		s := d.ofBuffer(&tl.Buffers[p.Buffer])
		s.requestedEnd, s.completedEnd = packing.Time(p.RequestedEnd), packing.Time(p.CompletedEnd)
		s.cell = p.Cell
		s.size, s.holds = packing.Bytes(p.Size), p.Holds
		if p.Holder != int32(len(d.slots)) { // slot i of a prologue is buffer i
			s.holder = p.Holder + 1
		}
		if p.Resident {
			s.flags |= planfile.SlotResident
		}
		if p.Cell != noCell {
			s.flags |= planfile.SlotLeaving
		}
		d.add(s)
	}
}

// ofBuffer is what the slot of a recorded buffer has in either mode.
func (d *draft) ofBuffer(b *lifespan.Buffer) slot {
	s := slot{
		start: packing.Time(b.Start), size: packing.Bytes(b.Size), requested: b.Requested, least: b.Requested,
		stream: d.streams.of(b.Stream), occurrences: 1, cell: noCell,
	}
	if b.Initial {
		s.flags |= planfile.SlotInitial
	}
	return s
}

func (d *draft) body(body *lifespan.Body) {
	kind := planfile.PhaseBody
	if body.Interlude {
		kind = planfile.PhaseInterlude
	}
	d.begin(kind, body.Occurrences, packing.Time(body.Length))
	for i := range body.Entering {
		s := d.ofBody(&body.Entering[i])
		s.flags |= planfile.SlotEntering
		d.add(s)
	}
	first := int32(len(d.slots))
	for i := range body.Slots {
		s := d.ofBody(&body.Slots[i])
		if h := body.Slots[i].Holder; h != i {
			s.holder = first + int32(h) + 1
		}
		if s.cell != noCell {
			s.flags |= planfile.SlotLeaving
		}
		if body.Slots[i].Stray {
			s.flags |= planfile.SlotStray
			s.size = 0
		}
		d.add(s)
	}
}

func (d *draft) ofBody(s *lifespan.Slot) slot {
	return slot{
		start: packing.Time(s.Start), requestedEnd: packing.Time(s.RequestedEnd), completedEnd: packing.Time(s.CompletedEnd),
		size: packing.Bytes(s.Size), requested: s.Requested, least: s.Least,
		stream: d.streams.of(s.Stream), occurrences: s.Occurrences, cell: s.Cell, holds: s.Holds,
	}
}

// periodic says whether the plan repeats.
func (d *draft) periodic() bool { return len(d.phases) > 1 }

// streamTable numbers stream handles in the order in which they come up.
type streamTable struct {
	index   map[uint64]int32
	handles []uint64
}

func (t *streamTable) of(handle uint64) int32 {
	s, ok := t.index[handle]
	if !ok {
		if t.index == nil {
			t.index = map[uint64]int32{}
		}
		s = int32(len(t.handles))
		t.index[handle] = s
		t.handles = append(t.handles, handle)
	}
	return s
}

// numbers are what a plan calls the streams. Their handles are of no use to another process,
// and with them no two processes that do the same would have the same plan.
func (t *streamTable) numbers() []uint64 {
	names := make([]uint64, len(t.handles))
	for i := range names {
		names[i] = uint64(i)
	}
	return names
}
