package main

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// streamTable numbers stream handles in the order in which they come up, which
// is that of a plan's streams where slots come up in the plan's order.
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

// packingUses tells the packer which reuses need a wait, buffer by buffer of
// the problem that packingProblem makes. Uses name streams by their index in
// the list of handles.
func packingUses(tl *lifespan.Timeline) (uses []packing.Use, handles []uint64) {
	var streams streamTable
	uses = make([]packing.Use, len(tl.Buffers))
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		uses[i] = packing.Use{Stream: streams.of(b.Stream), Settled: packing.Time(b.CompletedEnd)}
	}
	return uses, streams.handles
}

// place packs the problem, or each stream by itself where memory must not go
// from one to another.
func (a *app) place(ctx context.Context, label string, p *packing.Problem, uses []packing.Use, opt planOptions, mode planfile.Mode) (packing.Placement, error) {
	if !opt.noCrossStream {
		return a.placeTogether(ctx, label, p, uses, opt, mode)
	}
	streams := make([]int32, len(uses))
	for i, u := range uses {
		streams[i] = u.Stream
	}
	pl, err := packing.Apart(p, streams, func(part *packing.Problem, members []int32) (packing.Placement, error) {
		own := make([]packing.Use, len(members))
		for i, b := range members {
			own[i] = uses[b]
		}
		return a.placeTogether(ctx, fmt.Sprintf("%s, stream %d", label, own[0].Stream), part, own, opt, mode)
	})
	return pl, packingError(err)
}

// placeTogether packs and then, in mode recorded, looks for fewer waits. Those of
// a periodic plan show only when its phases are played (fewerPeriodicWaits).
func (a *app) placeTogether(ctx context.Context, label string, p *packing.Problem, uses []packing.Use, opt planOptions, mode planfile.Mode) (packing.Placement, error) {
	options := packing.Options{TimeLimit: opt.timeLimit}
	pl, err := a.pack(ctx, label, p, options)
	if err != nil || mode == planfile.ModePeriodic {
		return pl, err
	}
	pl, err = packing.FewerWaits(ctx, p, uses, pl, options)
	return pl, packingError(err)
}

// boundKind says what the placement's bound is.
func boundKind(opt planOptions) planfile.BoundKind {
	if opt.noCrossStream {
		return planfile.BoundApart
	}
	return planfile.BoundLoad
}

// forbid adds to the summary which waits the options forbid, and what that costs
// above the lower bound without them.
func forbid(row *report.CompiledDevice, opt planOptions, tl *lifespan.Timeline, it lifespan.Iterations) {
	row.NoReusePending, row.NoCrossStream = opt.end == planfile.EndCompleted, opt.noCrossStream
	if row.NoReusePending || row.NoCrossStream {
		cost := row.PlanBytes - int64(freeBound(tl, it, row.Steady != nil))
		row.Cost = &cost
	}
}

// freeBound is the lower bound where no wait is forbidden: the load to the
// requested ends, all streams together.
func freeBound(tl *lifespan.Timeline, it lifespan.Iterations, periodic bool) trace.Bytes {
	if periodic {
		if free, _ := lifespan.FindPeriodic(tl, it, lifespan.EndRequested); free != nil {
			return envelope(tl, free, lifespan.EndRequested)
		}
	}
	return tl.PeakAllocated.Bytes
}

// waits are those reuses that the device must order.
func waits(p *packing.Problem, uses []packing.Use, pl packing.Placement) []planfile.Wait {
	var out []planfile.Wait
	for _, w := range packing.Waits(p, uses, pl) {
		out = append(out, planfile.Wait{Later: uint32(w.Later), Earlier: uint32(w.Earlier), Kind: waitKind(w)})
	}
	return out
}

func waitKind(w packing.Wait) (kind planfile.WaitKind) {
	if w.CrossStream {
		kind |= planfile.WaitCrossStream
	}
	if w.Pending {
		kind |= planfile.WaitPending
	}
	return kind
}

// accountWaits sums up a plan's waits. The plan need not be verified.
func accountWaits(d *planfile.Device) report.Waits {
	sum := report.Waits{Count: len(d.Waits)}
	slack := make([]int64, len(d.Waits))
	clock := newWaitClock(d)
	for i, w := range d.Waits {
		earlier, later := &d.Slots[w.Earlier], &d.Slots[w.Later]
		if w.Kind&planfile.WaitCrossStream != 0 {
			sum.CrossStream++
		}
		if w.Kind&planfile.WaitPending != 0 {
			sum.Pending++
		}
		if w.Kind&planfile.WaitSeam != 0 {
			sum.OverSeam++
		}
		shared := int64(min(earlier.Offset+earlier.Size, later.Offset+later.Size)) - int64(max(earlier.Offset, later.Offset))
		sum.Bytes += max(0, shared)
		slack[i] = clock.slack(w)
	}
	if len(slack) > 0 {
		slices.Sort(slack)
		sum.SlackMin, sum.SlackMedian = &slack[0], &slack[len(slack)/2]
	}
	return sum
}

// waitClock tells the slack of waits, over the seam as well.
type waitClock struct {
	d      *planfile.Device
	enters []map[uint32]uint64 // of each phase, when what it finds in a cell is freed
}

func newWaitClock(d *planfile.Device) *waitClock {
	c := &waitClock{d: d}
	for x := range d.Phases {
		c.enters = append(c.enters, enteringEnds(d, x, func(slot int) uint64 { return d.Slots[slot].RequestedEnd }))
	}
	return c
}

// slack is the time from the free of the earlier slot to the start of the later
// one: events, in a body allocations.
func (c *waitClock) slack(w planfile.Wait) int64 {
	earlier, later := &c.d.Slots[w.Earlier], &c.d.Slots[w.Later]
	end, start := earlier.RequestedEnd, later.Start
	if w.Kind&planfile.WaitSeam != 0 {
		seam := c.d.Phases[c.phaseOf(w.Earlier)].Length
		start += seam
		if earlier.Flags&planfile.SlotLeaving != 0 { // freed by the phase of the later one
			end = seam + c.enters[c.phaseOf(w.Later)][earlier.Cell]
		}
	}
	return int64(start) - int64(end)
}

// phaseOf is the phase that has a slot.
func (c *waitClock) phaseOf(slot uint32) int {
	return sort.Search(len(c.d.Phases)-1, func(p int) bool {
		return uint64(slot) < c.d.Phases[p].FirstSlot+c.d.Phases[p].SlotCount
	})
}
