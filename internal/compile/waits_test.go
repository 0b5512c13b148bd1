package compile

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/verify"
)

// periodicJob makes a periodic draft: residents, short-lived slots on two streams
// that settle late, and cells that every body frees and then fills.
type periodicJob struct {
	r *rand.Rand
	d *draft
}

func randomDraft(t *testing.T, r *rand.Rand) *draft {
	j := &periodicJob{r: r, d: &draft{end: lifespan.End(r.IntN(2)), streams: streamTable{handles: []uint64{0, 7}}}}
	for range r.IntN(3) {
		j.d.cells = append(j.d.cells, packing.Bytes(512*(1+r.IntN(4))))
	}
	j.phase(planfile.PhasePrologue, 10+r.IntN(20), 0)
	for range 1 + r.IntN(2) {
		j.phase(planfile.PhaseBody, 12+r.IntN(30), r.IntN(5))
	}
	j.place(t)
	return j.d
}

// phase adds one of n allocations. The first on each stream come early, so that
// streams are in the order of their slots.
func (j *periodicJob) phase(kind planfile.PhaseKind, n, freed int) {
	j.d.begin(kind, 1, packing.Time(n))
	for c := range j.d.cells {
		if end := freed * j.r.IntN(2); kind == planfile.PhaseBody && end > 0 {
			j.slot(0, end, 0, planfile.SlotEntering, int32(c))
		}
	}
	for k := range n {
		c := k - freed // the cells are filled right after they are free
		switch {
		case c >= 0 && c < len(j.d.cells):
			j.slot(k, n, 0, planfile.SlotLeaving, int32(c))
		case kind == planfile.PhasePrologue && j.r.IntN(4) == 0:
			j.slot(k, n, 512*(1+j.r.IntN(4)), planfile.SlotResident, noCell)
		default:
			j.slot(k, min(n, k+1+j.r.IntN(6)), 512*(1+j.r.IntN(4)), 0, noCell)
		}
	}
}

func (j *periodicJob) slot(start, end, size int, flags planfile.SlotFlags, cell int32) {
	s := slot{start: packing.Time(start), requestedEnd: packing.Time(end), completedEnd: packing.Time(end),
		size: packing.Bytes(size), requested: 1, least: 1, occurrences: 1, flags: flags, cell: cell}
	if len(j.d.slots) > 0 && cell == noCell {
		s.stream = int32(j.r.IntN(5) / 4)
	}
	if j.d.end == lifespan.EndRequested && !s.is(planfile.SlotResident|planfile.SlotEntering) {
		s.completedEnd += packing.Time(j.r.IntN(8))
	}
	j.d.add(s)
}

// place stacks residents and cells, and packs what else each phase has by
// itself above them.
func (j *periodicJob) place(t *testing.T) {
	t.Helper()
	top := packing.Bytes(0)
	at := make([]packing.Bytes, len(j.d.cells))
	for c, size := range j.d.cells {
		at[c] = top
		top += size
	}
	for i := range j.d.slots {
		switch s := &j.d.slots[i]; {
		case s.cell != noCell:
			s.offset = at[s.cell]
		case s.is(planfile.SlotResident):
			s.offset = top
			top += s.size
		}
	}
	for x := range j.d.phases {
		p := &packing.Problem{Alignment: alignment}
		var own []*slot
		for i := range j.d.of(x) {
			if s := &j.d.of(x)[i]; s.cell == noCell && !s.is(planfile.SlotResident) {
				own = append(own, s)
				p.Buffers = append(p.Buffers, packing.Buffer{Start: s.start, End: j.d.until(s), Size: s.size})
			}
		}
		pl, err := packing.Pack(context.Background(), p, packing.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range own {
			s.offset = top + pl.Offsets[i]
		}
	}
}

// device is the draft as a plan file has it, without bounds.
func (d *draft) device() *planfile.Device {
	dev := &planfile.Device{Mode: planfile.ModePeriodic, End: planfile.EndRequested, Rank: -1, Alignment: uint64(alignment), Streams: d.streams.handles}
	if d.end == lifespan.EndCompleted {
		dev.End = planfile.EndCompleted
	}
	for i := range d.slots {
		dev.Slots = append(dev.Slots, d.slots[i].written())
		dev.ArenaBytes = max(dev.ArenaBytes, uint64(d.slots[i].offset+d.slots[i].size))
	}
	for _, w := range d.waits {
		dev.Waits = append(dev.Waits, w.written())
	}
	dev.SteadyStart = uint64(d.phases[0].length)
	dev.SteadyEnd = dev.SteadyStart
	for x := range d.phases {
		dev.Phases = append(dev.Phases, d.phases[x].written())
		if x > 0 {
			present := uint64(1)<<uint(d.phases[x].length) - 1
			dev.Passes = append(dev.Passes, planfile.Pass{FirstEvent: dev.SteadyEnd, Phase: uint32(x), Present: []uint64{present}})
			dev.SteadyEnd += 100
		}
	}
	dev.Events = dev.SteadyEnd
	return dev
}

// wrong are the violations that places and waits can be to blame for: the test's
// plans have no bounds.
func wrong(d *planfile.Device) []verify.Violation {
	return slices.DeleteFunc(verify.Plan(&planfile.Plan{Devices: []planfile.Device{*d}}, nil), func(v verify.Violation) bool {
		return v.Rule == verify.RuleCertificate || v.Rule == verify.RuleMakespan
	})
}

// TestFewerPeriodicWaits: the waits of a periodic plan are those that verify
// finds, before and after slots have moved; residents and cells stay, no slot
// leaves the arena, and there are fewer waits.
func TestFewerPeriodicWaits(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 1))
	before, after, seams := 0, 0, 0
	for k := range 150 {
		d := randomDraft(t, r)
		d.waits = periodicWaits(d)
		if v := wrong(d.device()); len(v) > 0 {
			t.Fatalf("plan %d as packed: %v", k, v)
		}
		before += len(d.waits)
		packed := costOf(d.waits)
		for _, w := range d.waits {
			seams += int(w.kind&planfile.WaitSeam) / int(planfile.WaitSeam)
		}
		if got, want := report.WaitsOf(d.device()), naiveAccount(d); !reflect.DeepEqual(got, want) {
			t.Fatalf("plan %d: expected the account %v, found %v", k, want.Line(), got.Line())
		}
		was, arena := slices.Clone(d.slots), d.device().ArenaBytes
		again := *d
		again.slots = slices.Clone(d.slots)
		for _, one := range []*draft{d, &again} {
			c := compiler{ctx: context.Background()}
			if err := c.fewerWaits(one); err != nil {
				t.Fatal(err)
			}
		}
		if v := wrong(d.device()); len(v) > 0 {
			t.Fatalf("plan %d: %v", k, v)
		}
		if now := d.device().ArenaBytes; now > arena {
			t.Fatalf("plan %d: %d B, up from %d", k, now, arena)
		}
		if !reflect.DeepEqual(d, &again) {
			t.Fatalf("plan %d: another plan the second time", k)
		}
		for i := range was {
			if was[i].is(planfile.SlotResident|planfile.SlotEntering|planfile.SlotLeaving) && was[i] != d.slots[i] {
				t.Fatalf("plan %d: slot %d moved from %d to %d", k, i, was[i].offset, d.slots[i].offset)
			}
		}
		if now := costOf(d.waits); now.cross > packed.cross || packed.less(now) {
			t.Fatalf("plan %d: expected a cost of at most %v, found %v", k, packed, now)
		}
		after += len(d.waits)
	}
	t.Logf("%d waits, %d of them over the seam; %d after", before, seams, after)
	if seams == 0 || after*4 > before*3 {
		t.Errorf("expected waits over the seam and a quarter fewer waits, found %d, and %d of %d", seams, after, before)
	}
}

// TestLeastPeriodicWaits: if memory still goes from stream to stream, other placements of
// the line are tried. The result is right, is no larger, has no more waits between streams
// than the given placement leads to, and its arena ends where its slots do.
func TestLeastPeriodicWaits(t *testing.T) {
	r := rand.New(rand.NewPCG(62, 1))
	fewer, smaller := 0, 0
	for k := range 200 {
		d := randomDraft(t, r)
		l := newLine(d)
		d.liftHighest()
		given := d.placement(l)
		alone := d.clone()
		alone.waits = periodicWaits(alone)
		c := compiler{ctx: context.Background()}
		if err := c.fewerWaits(alone); err != nil {
			t.Fatal(err)
		}
		pl, err := c.order(d, l, given)
		if err != nil {
			t.Fatal(err)
		}
		dev := d.device()
		if v := wrong(dev); len(v) > 0 {
			t.Fatalf("plan %d: %v", k, v)
		}
		if pl.Makespan > given.Makespan || uint64(pl.Makespan) != dev.ArenaBytes {
			t.Fatalf("plan %d: expected a makespan of at most %d, where the slots end, found %d with slots to %d", k, given.Makespan, pl.Makespan, dev.ArenaBytes)
		}
		was, now := costOf(alone.waits), costOf(d.waits)
		if was.less(now) {
			t.Fatalf("plan %d: expected a cost of at most %v, found %v", k, was, now)
		}
		if now.cross < was.cross {
			fewer++
		}
		if pl.Makespan < given.Makespan {
			smaller++
		}
	}
	if fewer < 10 || smaller == 0 {
		t.Errorf("expected ten plans with fewer waits between streams, and a smaller one, found %d and %d", fewer, smaller)
	}
}

// liftHighest moves the highest slot up, if the search may move it down again.
func (d *draft) liftHighest() {
	top := d.top()
	for i := range d.slots {
		if s := &d.slots[i]; s.cell == noCell && !s.is(planfile.SlotResident) && s.offset+s.size == top {
			s.offset += 8 * alignment
			return
		}
	}
}

// placement is where the slots lie, as a placement of the line.
func (d *draft) placement(l *line) packing.Placement {
	pl := packing.Placement{Offsets: make([]packing.Bytes, len(l.problem.Buffers)), Makespan: d.top()}
	for i := range d.slots {
		if s := &d.slots[i]; s.buffer != noBuffer {
			pl.Offsets[s.buffer] = s.offset
		}
	}
	return pl
}

// naiveAccount takes times from the unrolled plan.
func naiveAccount(d *draft) report.Waits {
	sum := report.Waits{}
	seen := map[planfile.Wait]bool{}
	var slack, cross []int64
	for x := 1; x < len(d.phases); x++ {
		u := unroll(d, x, 2)
		for _, w := range packing.Waits(&u.problem, u.uses, u.placement()) {
			key := planfile.Wait{Later: uint32(u.slots[w.Later]), Earlier: uint32(u.slots[w.Earlier])}
			if seen[key] {
				continue
			}
			seen[key] = true
			e, l := u.problem.Buffers[w.Earlier], u.problem.Buffers[w.Later]
			slack = append(slack, int64(l.Start-e.End))
			sum.Count++
			if w.CrossStream {
				sum.CrossStream++
				cross = append(cross, int64(l.Start-e.End))
			}
			if w.Pending {
				sum.Pending++
			}
			if u.pass[w.Earlier] != u.pass[w.Later] {
				sum.OverSeam++
			}
			for at := u.offsets[w.Later]; at < u.offsets[w.Later]+l.Size; at++ {
				if u.offsets[w.Earlier] <= at && at < u.offsets[w.Earlier]+e.Size {
					sum.Bytes++
					if w.CrossStream {
						sum.CrossBytes++
					}
				}
			}
		}
	}
	slices.Sort(slack)
	if len(slack) > 0 {
		sum.SlackMin, sum.SlackMedian = &slack[0], &slack[len(slack)/2]
	}
	slices.Sort(cross)
	if len(cross) > 0 {
		sum.CrossSlackMin, sum.CrossSlackMedian = &cross[0], &cross[len(cross)/2]
	}
	return sum
}
