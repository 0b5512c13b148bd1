package verify

import (
	"math/rand/v2"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// job makes a random recording of a program that repeats, and the slots of a periodic
// plan. The slots are made from what the program does, not from its events.
//
// It runs in steps: those of the prologue, then those of each pass. Step k of a pass
// first frees what is due and then allocates slot k if the pass has it.
type job struct {
	r        *rand.Rand
	end      planfile.EndKind
	d        trace.Device
	bodies   []jobBody
	sequence []int // the body of each pass
	prologue []*jobSlot
	passes   []planfile.Pass

	due        map[[2]int][]jobFree // by pass, -1 for the prologue, and step
	pass       int                  // the current one
	time       uint64               // in the body: after the last allocation
	buffers    uint64               // number so far; each has its own address
	cut, until uint64
	live, peak [2]uint64 // bytes to the requested and to the completed ends
	strays     uint64    // bytes in this pass
	strayBytes uint64
}

// jobBody is what its passes have in common.
type jobBody struct {
	interlude bool       // has no slots in cells
	slots     []*jobSlot // its allocations
	enters    []*jobSlot // by cell
	frees     []int      // cell k is freed before slot frees[k]
}

// jobSlot is a slot and the rules by which its buffers are made.
type jobSlot struct {
	planfile.Slot
	handle   uint64
	largest  uint64
	optional bool
	latest   int // if ordinary: the last step at which it may be freed
}

// jobFree is a free that is due: one of the two ends of a buffer.
type jobFree struct {
	action trace.Action
	event  trace.Event
	from   int      // the pass that allocated it
	slot   *jobSlot // the buffer's slot
	enters *jobSlot // its entering slot in the next pass, nil if it does not cross
}

const steps = 12 // number of steps of the prologue

func newJob(r *rand.Rand) *job {
	j := &job{r: r, end: planfile.EndKind(1 + r.IntN(2)), due: map[[2]int][]jobFree{}, pass: -1}
	cells := r.IntN(4)
	for i := range 1 + r.IntN(3) {
		if interlude := i > 0 && r.IntN(3) == 0; interlude {
			j.bodies = append(j.bodies, j.body(0))
			j.bodies[i].interlude = cells > 0 // without cells it would be a body like others
		} else {
			j.bodies = append(j.bodies, j.body(cells))
		}
		j.sequence = append(j.sequence, i)
	}
	for range r.IntN(4) {
		j.sequence = append(j.sequence, r.IntN(len(j.bodies)))
	}
	j.run()
	return j
}

// body makes a body with the given number of cells.
func (j *job) body(cells int) jobBody {
	r := j.r
	length := cells + 1 + r.IntN(9)
	if r.IntN(6) == 0 {
		length += 62
	}
	b := jobBody{}
	for k := range length {
		s := &jobSlot{handle: uint64(r.IntN(3)), largest: r.Uint64N(2500), optional: r.IntN(4) == 0, latest: k + 1 + r.IntN(length-k)}
		s.Start, s.Cell = uint64(k), planfile.NoCell
		if r.IntN(10) == 0 {
			s.Flags = planfile.SlotStray
		}
		b.slots = append(b.slots, s)
	}
	places := r.Perm(length)[:cells]
	if len(j.bodies) == 0 {
		slices.Sort(places) // cells are numbered as the first body fills them
	}
	for cell, k := range places {
		s, enters := b.slots[k], &jobSlot{handle: 7}
		s.Flags, s.Cell = planfile.SlotLeaving, uint32(cell)
		s.handle = 7 // all slots of cells are on one stream
		enters.Flags, enters.Cell = planfile.SlotEntering, uint32(cell)
		b.frees, b.enters = append(b.frees, r.IntN(k+1)), append(b.enters, enters)
	}
	return b
}

func (j *job) bodyOf(pass int) *jobBody { return &j.bodies[j.sequence[pass]] }
func (j *job) length(pass int) int      { return len(j.bodyOf(pass).slots) }

// heir is the pass that finds what a pass leaves in cells: the next one without
// interludes.
func (j *job) heir(pass int) int {
	for pass++; pass < len(j.sequence) && j.bodyOf(pass).interlude; pass++ {
	}
	return pass
}

// run runs the whole program.
func (j *job) run() {
	for range j.r.IntN(3) {
		j.prologueSlot(0, planfile.SlotInitial)
	}
	for step := range steps {
		j.free(step)
		if j.r.IntN(4) == 0 {
			j.other()
		} else {
			j.prologueSlot(step, 0)
		}
	}
	j.free(steps)
	for range j.sequence {
		j.pass++
		j.onePass()
	}
	j.other()
	j.until = uint64(len(j.d.Events)) - 1
	for range 8 { // more passes than any free is late by
		j.pass++
		for step := range 100 {
			j.free(step)
		}
	}
	j.other()
}

func (j *job) onePass() {
	b := j.bodyOf(j.pass)
	if len(j.due[[2]int{j.pass, 0}]) > 0 || b.slots[0].optional || j.r.IntN(2) == 0 {
		j.other() // else the first allocation begins the pass
		j.passes = append(j.passes, planfile.Pass{FirstEvent: uint64(len(j.d.Events)) - 1})
	} else {
		j.passes = append(j.passes, planfile.Pass{FirstEvent: uint64(len(j.d.Events))})
	}
	pass := &j.passes[j.pass]
	pass.Phase, pass.Present = uint32(j.sequence[j.pass]+1), make([]uint64, (len(b.slots)+63)/64)
	if j.pass == 0 {
		j.cut = pass.FirstEvent
	}
	j.time, j.strays = 0, 0
	for k, s := range b.slots {
		j.free(k)
		if !s.optional || s.Occurrences == 0 || j.r.IntN(2) == 0 {
			pass.Present[k/64] |= 1 << (k % 64)
			j.time = uint64(k + 1)
			j.bodySlot(s, k)
		}
	}
	j.free(len(b.slots))
	j.strayBytes = max(j.strayBytes, j.strays)
}

func (j *job) other() { j.d.Events = append(j.d.Events, trace.Event{}) }

// prologueSlot allocates a buffer at a step of the prologue, or makes it an initial one.
func (j *job) prologueSlot(step int, flags planfile.SlotFlags) {
	s := &jobSlot{handle: uint64(j.r.IntN(3)), largest: j.r.Uint64N(2500)}
	s.Start, s.Cell, s.Flags = uint64(len(j.d.Events)), planfile.NoCell, flags
	cells := j.bodies[0].frees
	cell := j.r.IntN(max(1, len(cells)))
	kind := j.r.IntN(3)
	if len(cells) == 0 || slices.ContainsFunc(j.prologue, func(s *jobSlot) bool { return s.Cell == uint32(cell) }) {
		kind = max(1, kind)
	}
	if kind == 0 {
		s.Cell, s.handle, s.Flags = uint32(cell), 7, flags|planfile.SlotLeaving
	}
	f := j.open(s, s.largest, flags != 0)
	own := step + 1 + j.r.IntN(steps-step)
	switch kind {
	case 0:
		f.enters = j.bodies[0].enters[cell]
		f.enters.takes(s.largest)
		j.ends(f, own, 0, j.r.IntN(cells[cell]+1))
	case 1:
		s.Flags |= planfile.SlotResident
		if j.r.IntN(2) == 0 {
			j.ends(f, own, j.r.IntN(len(j.sequence)+2), 1)
		}
	default:
		j.ends(f, own, -1, own)
	}
	j.prologue = append(j.prologue, s)
}

// bodySlot allocates slot k of a body.
func (j *job) bodySlot(s *jobSlot, k int) {
	f := j.open(s, s.largest-j.r.Uint64N(s.largest/2+1), false)
	length, next := j.length(j.pass), j.heir(j.pass)
	own := k + 1 + j.r.IntN(length-k)
	if s.Flags == 0 {
		own = k + 1 + j.r.IntN(s.latest-k)
	}
	switch {
	case s.Flags == planfile.SlotStray:
		j.strays += inUnits(uint64(f.event.Size))
		if j.r.IntN(3) > 0 {
			j.ends(f, own, next+j.r.IntN(3), 1)
		} else {
			j.extend(s, completed, j.told(j.pass, len(j.sequence)))
			j.extend(s, requested, uint64(length))
		}
	case s.Flags == planfile.SlotLeaving && next > j.pass+1 && j.r.IntN(4) == 0:
		j.ends(f, own, j.pass+1, j.r.IntN(5)) // in the interlude
	case s.Flags == planfile.SlotLeaving && next < len(j.sequence) && j.r.IntN(8) > 0:
		f.enters = j.bodyOf(next).enters[s.Cell]
		f.enters.takes(uint64(f.event.Size))
		j.ends(f, own, next, j.r.IntN(j.bodyOf(next).frees[s.Cell]+1))
	case next == len(j.sequence) && j.r.IntN(4) == 0:
		j.ends(f, own, next, 1)
	default:
		j.ends(f, own, j.pass, own)
	}
	if s.Flags == planfile.SlotLeaving {
		j.extend(s, requested, uint64(length))
		j.extend(s, completed, uint64(length))
	}
}

// open takes one more buffer into a slot.
func (j *job) open(s *jobSlot, size uint64, initial bool) jobFree {
	s.takes(size)
	for i := range j.live {
		j.live[i] += inUnits(size)
		j.peak[i] = max(j.peak[i], j.live[i])
	}
	j.buffers++
	e := trace.Event{Action: alloc, Addr: j.buffers << 12, Size: trace.Bytes(size), Stream: s.handle}
	if initial {
		j.d.Initial = append(j.d.Initial, trace.Segment{Address: e.Addr, Size: 4096, Stream: s.handle,
			Blocks: []trace.Block{{Address: e.Addr, Size: 4096, Requested: e.Size, State: trace.BlockAllocated}}})
	} else {
		j.d.Events = append(j.d.Events, e)
	}
	return jobFree{from: j.pass, slot: s, event: e}
}

func inUnits(size uint64) uint64 { return (max(size, 1) + 511) / 512 * 512 }

func (s *jobSlot) takes(size uint64) {
	if s.Occurrences == 0 || size < s.Least {
		s.Least = size
	}
	s.Requested = max(s.Requested, size)
	s.Occurrences++
}

// ends schedules the two ends of a buffer. The end that the plan is made for comes at the
// given step of a pass. The other one comes before, perhaps at step own of the pass that
// allocated it, or after.
func (j *job) ends(f jobFree, own, pass, step int) {
	if j.end == planfile.EndCompleted {
		if pass == f.from || j.r.IntN(2) == 0 {
			j.schedule(f, requested, f.from, min(own, step+1000*(pass-f.from)))
		} else {
			j.schedule(f, requested, pass, step)
		}
		j.schedule(f, completed, pass, step)
		return
	}
	j.schedule(f, requested, pass, step)
	switch later := j.r.IntN(4); later {
	case 0:
		j.schedule(f, completed, pass, step)
	case 1:
		j.schedule(f, completed, pass, step+j.r.IntN(5))
	default:
		j.schedule(f, completed, pass+later-1, j.r.IntN(5))
	}
}

func (j *job) schedule(f jobFree, action trace.Action, pass, step int) {
	switch {
	case pass < 0:
		step = min(step, steps)
	case pass < len(j.sequence):
		step = min(step, j.length(pass))
	}
	f.action = action
	at := [2]int{pass, step}
	j.due[at] = append(j.due[at], f)
}

// free frees what is due.
func (j *job) free(step int) {
	for _, f := range j.due[[2]int{j.pass, step}] {
		which := 0
		if f.action == completed {
			which = 1
		}
		j.live[which] -= inUnits(uint64(f.event.Size))
		j.extend(f.slot, f.action, j.told(f.from, j.pass))
		if f.enters != nil {
			j.extend(f.enters, f.action, j.told(j.heir(f.from), j.pass))
		}
		f.event.Action = f.action
		j.d.Events = append(j.d.Events, f.event)
	}
}

// told is the current time in pass now, translated into the time of another pass.
func (j *job) told(pass, now int) uint64 {
	passes := len(j.sequence)
	if pass < 0 {
		switch first := uint64(j.length(0)); now {
		case -1:
			return uint64(len(j.d.Events))
		case 0:
			return j.cut + j.time
		default:
			return j.cut + first
		}
	}
	length := uint64(j.length(min(pass, passes-1)))
	switch {
	case now < pass:
		return 0
	case now == pass:
		return j.time
	case j.heir(pass) == passes:
		return length // nothing but interludes follows
	case now == pass+1:
		return length + min(length, j.time) // if the body is another one, any time will do
	}
	return 2 * length
}

func (j *job) extend(s *jobSlot, action trace.Action, to uint64) {
	if action == requested {
		s.RequestedEnd = max(s.RequestedEnd, to)
	} else {
		s.CompletedEnd = max(s.CompletedEnd, to)
	}
}
