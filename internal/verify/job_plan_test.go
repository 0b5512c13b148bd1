package verify

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// randomPeriodic is a recording and a periodic plan of it, both right. A search over all
// slots finds each slot's offset; bounds and waits are those of naive references.
func randomPeriodic(r *rand.Rand) (*planfile.Plan, *trace.Trace) {
	j := newJob(r)
	d := &planfile.Device{
		Mode: planfile.ModePeriodic, End: j.end, Rank: -1, Fingerprint: j.d.EventsFingerprint(),
		Events: uint64(len(j.d.Events)), Alignment: 512 << r.IntN(2), RecordedPeakReserved: 4096 * uint64(len(j.d.Initial)),
		PeakAllocated: j.peak[0], PeakActive: j.peak[1], StrayBytes: j.strayBytes,
		SteadyStart: j.cut, SteadyEnd: j.until, Passes: j.passes,
	}
	j.phase(d, planfile.PhasePrologue, nil, j.prologue)
	for x := range j.bodies {
		kind := planfile.PhaseBody
		if j.bodies[x].interlude {
			kind = planfile.PhaseInterlude
		}
		j.phase(d, kind, j.bodies[x].entering(j, x), j.bodies[x].slots)
	}
	tr := &trace.Trace{Name: "job", Devices: []trace.Device{j.d}}
	shareSome(r, d)
	placeAll(r, d, naiveHeld(d, tr))
	naiveFigures(d)
	d.Waits = naivePeriodicWaits(d)
	return &planfile.Plan{Producer: "random", Devices: []planfile.Device{*d}}, tr
}

// shareSome makes some slots share the place of an earlier one.
func shareSome(r *rand.Rand, d *planfile.Device) {
	for p := range d.Phases {
		ph := &d.Phases[p]
		for i := int(ph.FirstSlot); i < int(ph.FirstSlot+ph.SlotCount); i++ {
			k := int(ph.FirstSlot) + r.IntN(i-int(ph.FirstSlot)+1)
			s, h := &d.Slots[i], &d.Slots[k]
			if i != k && s.Flags == 0 && h.Flags == 0 && s.Stream == h.Stream && r.IntN(2) == 0 {
				s.Flags, s.Cell = planfile.SlotShares, uint32(k)
			}
		}
	}
}

// holderOf is the slot that has the place of slot i: its holder, or the slot itself.
func holderOf(d *planfile.Device, i int) int {
	if s := &d.Slots[i]; s.Flags&planfile.SlotShares != 0 {
		return int(s.Cell)
	}
	return i
}

// members are the slots that lie in the place of slot i: itself and those that share it.
func members(d *planfile.Device, i int) (all []int) {
	for k := range d.Slots {
		if holderOf(d, k) == i {
			all = append(all, k)
		}
	}
	return all
}

// inACell says whether slot i is in a cell.
func inACell(d *planfile.Device, i int) bool {
	return d.Slots[i].Flags&(planfile.SlotEntering|planfile.SlotLeaving) != 0
}

// naiveHeld is, by slot, the most bytes that its place held at one event of the recording.
func naiveHeld(d *planfile.Device, t *trace.Trace) []uint64 {
	var slots []int // of the allocations, in their order
	for i := range d.Phases[0].SlotCount {
		if d.Slots[i].Flags&planfile.SlotInitial == 0 {
			slots = append(slots, int(i))
		}
	}
	for _, p := range d.Passes {
		ph := &d.Phases[p.Phase]
		first := int(ph.FirstSlot + ph.SlotCount - ph.Length)
		for k := range int(ph.Length) {
			if p.Present[k/64]>>(k%64)&1 == 1 {
				slots = append(slots, first+k)
			}
		}
	}
	most, load, at := make([]uint64, len(d.Slots)), make([]uint64, len(d.Slots)), map[uint64]int{}
	free := requested
	if d.End == planfile.EndCompleted {
		free = completed
	}
	for _, e := range t.Devices[0].Events {
		if k, live := at[e.Addr]; live && e.Action == free {
			load[k] -= inUnits(uint64(e.Size))
			delete(at, e.Addr)
		}
		if e.Action == alloc && len(slots) > 0 {
			k := holderOf(d, slots[0])
			at[e.Addr], slots = k, slots[1:]
			load[k] += inUnits(uint64(e.Size))
			most[k] = max(most[k], load[k])
		}
	}
	return most
}

// entering are the entering slots of the body: those of cells that are not always freed
// before its first allocation. Of a cell that no pass began with, only one thing is
// known: it is freed before it is filled.
func (b *jobBody) entering(j *job, x int) (all []*jobSlot) {
	for cell, s := range b.enters {
		if s.Occurrences == 0 {
			k := slices.IndexFunc(b.slots, func(s *jobSlot) bool { return s.Cell == uint32(cell) })
			s.RequestedEnd, s.CompletedEnd = uint64(k), uint64(k)
		}
		s.RequestedEnd = min(s.RequestedEnd, uint64(len(b.slots)))
		if end := []uint64{s.RequestedEnd, s.CompletedEnd}[j.end-1]; end > 0 {
			all = append(all, s)
		}
	}
	return all
}

// phase adds a phase to d. Its slots have no places yet.
func (j *job) phase(d *planfile.Device, kind planfile.PhaseKind, entering, slots []*jobSlot) {
	p := planfile.Phase{Kind: kind, Occurrences: 1, Length: j.cut, FirstSlot: uint64(len(d.Slots)), SlotCount: uint64(len(entering) + len(slots))}
	if kind != planfile.PhasePrologue {
		p.Length, p.Occurrences = uint64(len(slots)), 0
		for _, pass := range j.passes {
			if pass.Phase == uint32(len(d.Phases)) {
				p.Occurrences++
			}
		}
	}
	for _, js := range slices.Concat(entering, slots) {
		s := js.Slot
		s.RequestedEnd = min(s.RequestedEnd, p.Length)
		if kind == planfile.PhasePrologue && s.Flags&planfile.SlotLeaving != 0 {
			s.RequestedEnd, s.CompletedEnd = p.Length, max(p.Length, s.CompletedEnd)
		}
		if s.Flags&planfile.SlotResident != 0 {
			s.RequestedEnd, s.CompletedEnd = p.Length, p.Length
		}
		k := slices.Index(d.Streams, js.handle)
		if k < 0 {
			k = len(d.Streams)
			d.Streams = append(d.Streams, js.handle)
		}
		s.Stream = uint32(k)
		d.Slots = append(d.Slots, s)
	}
	d.Phases = append(d.Phases, p)
}

// bar is a stretch of time in which a place is taken: a phase, and [start, end) in it.
type bar struct{ phase, start, end uint64 }

// barsOf are the bars of slot i. The first body's leaving slot of a cell also has the
// bars of the cell in interludes, and a holder those of all that share its place.
func barsOf(d *planfile.Device, i int) (bars []bar) {
	s, end := &d.Slots[i], d.SlotEnd(i)
	for _, k := range members(d, i) {
		end = max(end, d.SlotEnd(k))
	}
	for p := range d.Phases {
		ph := &d.Phases[p]
		switch own := uint64(i) >= ph.FirstSlot && uint64(i) < ph.FirstSlot+ph.SlotCount; {
		case s.Flags&(planfile.SlotStray|planfile.SlotShares) != 0:
		case own:
			bars = append(bars, bar{uint64(p), s.Start, min(ph.Length, end)})
		case p > 0 && s.Flags&planfile.SlotResident != 0:
			bars = append(bars, bar{uint64(p), 0, ph.Length})
		case ph.Kind == planfile.PhaseInterlude && s.Flags&planfile.SlotLeaving != 0 && uint64(i) >= d.Phases[1].FirstSlot && uint64(i) < d.Phases[1].FirstSlot+d.Phases[1].SlotCount:
			bars = append(bars, bar{uint64(p), 0, ph.Length}) // the cell, once
		}
	}
	return bars
}

// placeAll gives slots places in random order. The slots of a cell get the same place, and
// those that share one. held has the bytes that each place has to have at least.
func placeAll(r *rand.Rand, d *planfile.Device, held []uint64) {
	groups := map[uint32][]int{}
	for i, s := range d.Slots {
		key := s.Cell
		if !inACell(d, i) {
			key = uint32(100 + holderOf(d, i))
		}
		groups[key] = append(groups[key], i)
	}
	type placed struct {
		bars         []bar
		offset, size uint64
	}
	var all []placed
	order := r.Perm(100 + len(d.Slots))
	for _, key := range order {
		var p placed
		for _, i := range groups[uint32(key)] {
			p.bars = append(p.bars, barsOf(d, i)...)
			p.size = max(p.size, inUnits(d.Slots[i].Requested), held[i])
		}
		if len(p.bars) == 0 {
			continue
		}
		p.size = (p.size + d.Alignment - 1 + r.Uint64N(2)*d.Alignment) / d.Alignment * d.Alignment
		p.offset = r.Uint64N(3) * d.Alignment
		for slices.ContainsFunc(all, func(q placed) bool {
			return p.offset < q.offset+q.size && q.offset < p.offset+p.size && barsMeet(p.bars, q.bars)
		}) {
			p.offset += d.Alignment
		}
		all = append(all, p)
		for _, i := range groups[uint32(key)] {
			d.Slots[i].Offset, d.Slots[i].Size = p.offset, p.size
		}
	}
}

func barsMeet(a, b []bar) bool {
	for _, x := range a {
		for _, y := range b {
			if x.phase == y.phase && x.start < y.end && y.start < x.end {
				return true
			}
		}
	}
	return false
}

// naiveFigures fills in makespans and bounds. It looks at all slots at every time.
func naiveFigures(d *planfile.Device) {
	base := uint64(0)
	for p := range d.Phases {
		ph := &d.Phases[p]
		for i, s := range d.Slots {
			for _, b := range barsOf(d, i) {
				if b.phase == uint64(p) {
					ph.Makespan = max(ph.Makespan, s.Offset+s.Size)
				}
			}
		}
		for t := range ph.Length {
			if load := naiveLoadIn(d, p, t); load > ph.LowerBound {
				ph.LowerBound, ph.BoundAt = load, t
			}
		}
		d.ArenaBytes = max(d.ArenaBytes, ph.Makespan)
		if c := &d.Certificate; p == 0 || ph.LowerBound > c.LowerBound {
			*c = planfile.Certificate{Kind: planfile.BoundLoad, LowerBound: ph.LowerBound, At: base + ph.BoundAt}
		}
		base += ph.Length
	}
	d.Certificate.Gap = d.ArenaBytes - d.Certificate.LowerBound
}

func naiveLoadIn(d *planfile.Device, phase int, t uint64) (load uint64) {
	for i, s := range d.Slots {
		need := inUnits(s.Requested)
		for k, o := range d.Slots {
			if k != i && holderOf(d, k) == i {
				need = s.Size
			} else if inACell(d, i) && inACell(d, k) && s.Cell == o.Cell {
				need = max(need, inUnits(o.Requested))
			}
		}
		for _, b := range barsOf(d, i) {
			if b.phase == uint64(phase) && b.start <= t && t < b.end {
				load += need
			}
		}
	}
	return load
}

// naivePeriodicWaits is the reference for the waits of a periodic plan: it plays the
// prologue and two passes of each body with an owner for every unit of the arena.
func naivePeriodicWaits(d *planfile.Device) (waits []planfile.Wait) {
	type owner struct{ slot, pass int }
	found := map[planfile.Wait]bool{}
	for x := 1; x < len(d.Phases); x++ {
		units := make([]owner, d.ArenaBytes/d.Alignment)
		for i := range units {
			units[i].slot = none
		}
		for pass, phase := range []int{0, x, x} {
			ph := &d.Phases[phase]
			for i := int(ph.FirstSlot); i < int(ph.FirstSlot+ph.SlotCount); i++ {
				l := &d.Slots[i]
				if l.Flags&(planfile.SlotEntering|planfile.SlotStray|planfile.SlotShares) != 0 {
					continue
				}
				for u := l.Offset / d.Alignment; u < (l.Offset+l.Size)/d.Alignment; u++ {
					had := units[u]
					units[u] = owner{i, pass}
					if had.slot == none {
						continue
					}
					e, w, now := &d.Slots[had.slot], planfile.Wait{Later: uint32(i), Earlier: uint32(had.slot)}, l.Start
					if had.pass != pass {
						now += d.Phases[[]int{0, x, x}[had.pass]].Length
					}
					if e.Stream != l.Stream {
						w.Kind |= planfile.WaitCrossStream
					}
					for _, k := range members(d, had.slot) {
						if d.End == planfile.EndRequested && d.Slots[k].CompletedEnd > now {
							w.Kind |= planfile.WaitPending
						}
					}
					if w.Kind != 0 && had.pass != pass {
						w.Kind |= planfile.WaitSeam
					}
					if w.Kind != 0 {
						found[w] = true
					}
				}
			}
		}
	}
	for w := range found {
		waits = append(waits, w)
	}
	slices.SortFunc(waits, func(a, b planfile.Wait) int {
		return cmp.Or(cmp.Compare(a.Later, b.Later), cmp.Compare(a.Earlier, b.Earlier))
	})
	return waits
}
