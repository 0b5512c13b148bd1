package main

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/verify"
)

// periodicJob makes a periodic device whose slots have no places yet: residents,
// short-lived slots on two streams that settle late, and cells that every body
// frees and then fills.
type periodicJob struct {
	r     *rand.Rand
	d     *planfile.Device
	cells []uint64 // sizes
}

func randomPeriodicDevice(t *testing.T, r *rand.Rand) *planfile.Device {
	j := &periodicJob{r: r, d: &planfile.Device{
		Mode: planfile.ModePeriodic, End: planfile.EndKind(1 + r.IntN(2)), Rank: -1, Alignment: planAlignment, Streams: []uint64{0, 7},
	}}
	for range r.IntN(3) {
		j.cells = append(j.cells, 512*(1+r.Uint64N(4)))
	}
	prologue, bodies := 10+r.IntN(20), 1+r.IntN(2)
	j.phase(planfile.PhasePrologue, prologue, 0)
	j.d.SteadyStart, j.d.SteadyEnd = uint64(prologue), uint64(prologue)
	for x := range bodies {
		n := 12 + r.IntN(30)
		j.phase(planfile.PhaseBody, n, r.IntN(5))
		present := uint64(1)<<n - 1
		j.d.Passes = append(j.d.Passes, planfile.Pass{FirstEvent: j.d.SteadyEnd, Phase: uint32(x + 1), Present: []uint64{present}})
		j.d.SteadyEnd += 100
	}
	j.d.Events = j.d.SteadyEnd
	j.place(t)
	return j.d
}

// phase adds one of n allocations. The first on each stream come early, so that
// streams are in the order of their slots.
func (j *periodicJob) phase(kind planfile.PhaseKind, n, freed int) {
	first := len(j.d.Slots)
	for c := range j.cells {
		if end := uint64(freed) * j.r.Uint64N(2); kind == planfile.PhaseBody && end > 0 {
			j.slot(0, end, j.cells[c], planfile.SlotEntering, uint32(c))
		}
	}
	for k := range n {
		c := k - freed // the cells are filled right after they are free
		switch {
		case c >= 0 && c < len(j.cells):
			j.slot(uint64(k), uint64(n), j.cells[c], planfile.SlotLeaving, uint32(c))
		case kind == planfile.PhasePrologue && j.r.IntN(4) == 0:
			j.slot(uint64(k), uint64(n), 512*(1+j.r.Uint64N(4)), planfile.SlotResident, planfile.NoCell)
		default:
			j.slot(uint64(k), min(uint64(n), uint64(k)+1+j.r.Uint64N(6)), 512*(1+j.r.Uint64N(4)), 0, planfile.NoCell)
		}
	}
	j.d.Phases = append(j.d.Phases, planfile.Phase{Kind: kind, Occurrences: 1, Length: uint64(n), FirstSlot: uint64(first), SlotCount: uint64(len(j.d.Slots) - first)})
}

func (j *periodicJob) slot(start, end, size uint64, flags planfile.SlotFlags, cell uint32) {
	s := planfile.Slot{Start: start, RequestedEnd: end, CompletedEnd: end, Size: size, Requested: size, Least: size, Flags: flags, Occurrences: 1, Cell: cell}
	if len(j.d.Slots) > 0 && cell == planfile.NoCell {
		s.Stream = uint32(j.r.IntN(5) / 4)
	}
	if j.d.End == planfile.EndRequested && flags&(planfile.SlotResident|planfile.SlotEntering) == 0 {
		s.CompletedEnd += j.r.Uint64N(8)
	}
	j.d.Slots = append(j.d.Slots, s)
}

// place stacks residents and cells, and packs what else each phase has by
// itself above them.
func (j *periodicJob) place(t *testing.T) {
	t.Helper()
	top := uint64(0)
	at := make([]uint64, len(j.cells))
	for c, size := range j.cells {
		at[c] = top
		top += size
	}
	for i := range j.d.Slots {
		switch s := &j.d.Slots[i]; {
		case s.Cell != planfile.NoCell:
			s.Offset = at[s.Cell]
		case s.Flags&planfile.SlotResident != 0:
			s.Offset = top
			top += s.Size
		}
	}
	for _, ph := range j.d.Phases {
		p := &packing.Problem{Alignment: planAlignment}
		var own []*planfile.Slot
		for i := range j.d.Slots[ph.FirstSlot : ph.FirstSlot+ph.SlotCount] {
			if s := &j.d.Slots[int(ph.FirstSlot)+i]; s.Cell == planfile.NoCell && s.Flags&planfile.SlotResident == 0 {
				own = append(own, s)
				p.Buffers = append(p.Buffers, packing.Buffer{Start: packing.Time(s.Start), End: packing.Time(j.d.SlotEnd(int(ph.FirstSlot) + i)), Size: packing.Bytes(s.Size)})
			}
		}
		pl, err := packing.Pack(context.Background(), p, packing.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range own {
			s.Offset = top + uint64(pl.Offsets[i])
			j.d.ArenaBytes = max(j.d.ArenaBytes, s.Offset+s.Size)
		}
	}
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
		d := randomPeriodicDevice(t, r)
		d.Waits = periodicWaits(d)
		if v := wrong(d); len(v) > 0 {
			t.Fatalf("plan %d as packed: %v", k, v)
		}
		before += len(d.Waits)
		for _, w := range d.Waits {
			seams += int(w.Kind&planfile.WaitSeam) / int(planfile.WaitSeam)
		}
		if got, want := accountWaits(d), naiveAccount(d); !reflect.DeepEqual(got, want) {
			t.Fatalf("plan %d: expected the account %v, found %v", k, want.Line(), got.Line())
		}
		was := slices.Clone(d.Slots)
		again := *d
		again.Slots = slices.Clone(d.Slots)
		for _, dev := range []*planfile.Device{d, &again} {
			if err := fewerPeriodicWaits(context.Background(), dev); err != nil {
				t.Fatal(err)
			}
		}
		if v := wrong(d); len(v) > 0 {
			t.Fatalf("plan %d: %v", k, v)
		}
		if !reflect.DeepEqual(d, &again) {
			t.Fatalf("plan %d: another plan the second time", k)
		}
		for i := range was {
			if was[i].Flags&(planfile.SlotResident|planfile.SlotEntering|planfile.SlotLeaving) != 0 && was[i] != d.Slots[i] {
				t.Fatalf("plan %d: slot %d moved from %d to %d", k, i, was[i].Offset, d.Slots[i].Offset)
			}
		}
		after += len(d.Waits)
	}
	t.Logf("%d waits, %d of them over the seam; %d after", before, seams, after)
	if seams == 0 || after*4 > before*3 {
		t.Errorf("expected waits over the seam and a quarter fewer waits, found %d, and %d of %d", seams, after, before)
	}
}

// naiveAccount takes times from the unrolled plan.
func naiveAccount(d *planfile.Device) report.Waits {
	sum := report.Waits{}
	seen := map[planfile.Wait]bool{}
	var slack []int64
	for x := 1; x < len(d.Phases); x++ {
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
				}
			}
		}
	}
	slices.Sort(slack)
	if len(slack) > 0 {
		sum.SlackMin, sum.SlackMedian = &slack[0], &slack[len(slack)/2]
	}
	return sum
}
