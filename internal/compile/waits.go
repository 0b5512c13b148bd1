package compile

import (
	"cmp"
	"context"
	"slices"

	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
)

// order lists the reuses that the device has to order. In a periodic plan it
// first moves slots to where fewer are needed, unless each stream has its own
// memory: then only frees that are pending need a wait, and a move could mix the
// streams. It returns the placement that the offsets come from, pl or another one.
func (c *compiler) order(d *draft, l *line, pl packing.Placement) (packing.Placement, error) {
	if !d.periodic() {
		for _, w := range packing.Waits(&l.problem, l.uses, pl) {
			d.waits = append(d.waits, wait{w.Later, w.Earlier, waitKind(w)}) // buffer i is slot i
		}
		return pl, nil
	}
	d.waits = periodicWaits(d)
	if !c.NoCrossStream {
		var err error
		if pl, err = c.leastPeriodicWaits(d, l, pl); err != nil {
			return pl, err
		}
	}
	d.sortBands()
	pl.Makespan = d.top()
	return pl, nil
}

// leastPeriodicWaits moves slots to where fewer reuses need a wait. If memory then
// still goes from one stream to another, it does the same from other placements that
// are no larger, and takes the first that comes to less. The first of these keeps the
// streams at the two ends of the arena. It is not always the one with the fewest waits,
// but the runtime makes fewer with it: free ranges merge, and where ranges of two
// streams are neighbours, it waits for both (docs/results/waits.md).
func (c *compiler) leastPeriodicWaits(d *draft, l *line, pl packing.Placement) (packing.Placement, error) {
	start := d.clone()
	if err := c.fewerWaits(d); err != nil || costOf(d.waits).cross == 0 || c.limited {
		return pl, err
	}
	all, err := c.alternatives(l, pl)
	if err != nil {
		return pl, err
	}
	for _, other := range all {
		if c.late(0) {
			break
		}
		try := start.clone()
		try.settle(other)
		try.waits = periodicWaits(try)
		if err := c.fewerWaits(try); err != nil {
			return pl, err
		}
		if costOf(try.waits).less(costOf(d.waits)) {
			*d = *try
			return other, nil
		}
	}
	return pl, nil
}

// alternatives are packing.Alternatives but for pl itself, within the time limit.
func (c *compiler) alternatives(l *line, pl packing.Placement) ([]packing.Placement, error) {
	ctx := c.ctx
	if !c.deadline.IsZero() {
		limited, cancel := context.WithDeadline(ctx, c.deadline)
		defer cancel()
		ctx = limited
	}
	all, err := packing.Alternatives(ctx, &l.problem, l.streams(), pl, packing.Options{})
	if c.ctx.Err() == nil && ctx.Err() != nil && c.late(0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all[1:], nil
}

// waitCost is what counts of the waits of a periodic plan.
type waitCost struct{ cross, count int }

// less compares the waits between two streams first, as packing.FewerWaits does: each
// of them is for the whole device.
func (c waitCost) less(o waitCost) bool {
	return cmp.Or(cmp.Compare(c.cross, o.cross), cmp.Compare(c.count, o.count)) < 0
}

func costOf(waits []wait) waitCost {
	sum := waitCost{count: len(waits)}
	for _, w := range waits {
		if w.kind&planfile.WaitCrossStream != 0 {
			sum.cross++
		}
	}
	return sum
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

// periodicWaits are the waits of a periodic plan: of every sequence of the
// prologue and two passes of one body.
func periodicWaits(d *draft) []wait {
	var all []wait
	for x := 1; x < len(d.phases); x++ {
		u := unroll(d, x, 2)
		for _, w := range packing.Waits(&u.problem, u.uses, u.placement()) {
			kind := waitKind(w)
			if u.pass[w.Earlier] != u.pass[w.Later] {
				kind |= planfile.WaitSeam
			}
			all = append(all, wait{u.slots[w.Later], u.slots[w.Earlier], kind})
		}
	}
	slices.SortFunc(all, func(a, b wait) int {
		return cmp.Or(cmp.Compare(a.later, b.later), cmp.Compare(a.earlier, b.earlier), cmp.Compare(a.kind, b.kind))
	})
	return slices.Compact(all)
}

// periodicRounds is how often every phase is gone through for fewer waits. What
// one phase gains may open a place for another; a third round has never gained
// anything on the recordings.
const periodicRounds = 2

// fewerWaits moves slots of a periodic plan to where fewer reuses need a wait,
// phase by phase, within the arena. Residents and cells stay, which all phases
// share.
func (c *compiler) fewerWaits(d *draft) error {
	for range periodicRounds {
		before := costOf(d.waits)
		for x := range d.phases {
			if c.late(0) {
				return nil
			}
			if err := c.fewerWaitsIn(d, x); err != nil {
				return err
			}
		}
		if costOf(d.waits) == before {
			break
		}
	}
	return nil
}

// fewerWaitsIn moves the slots of one phase. A body is seen in the second of
// three passes, so that what comes before and after is what it is for ever; the
// prologue before one pass of the first body. The passes around do not move along,
// so the result may need as many waits as before. Then all is left as it was.
func (c *compiler) fewerWaitsIn(d *draft, x int) error {
	moving, passes := 0, 1
	if x > 0 {
		moving, passes = 2, 3
	}
	u := unroll(d, max(x, 1), passes)
	for i, slot := range u.slots {
		u.uses[i].Pinned = u.pass[i] != moving || d.slots[slot].is(planfile.SlotResident|planfile.SlotLeaving)
	}
	pl, err := c.fewer(&u.problem, u.uses, u.placement())
	if err != nil {
		return err
	}
	moved := d.clone()
	for i, slot := range u.slots {
		if !u.uses[i].Pinned {
			moved.slots[slot].offset = pl.Offsets[i]
		}
	}
	moved.moveShared()
	if moved.waits = periodicWaits(moved); costOf(moved.waits).less(costOf(d.waits)) {
		d.slots, d.waits = moved.slots, moved.waits
	}
	return nil
}

// fewer is packing.FewerWaits within what is left of the time limit.
func (c *compiler) fewer(p *packing.Problem, uses []packing.Use, pl packing.Placement) (packing.Placement, error) {
	pl, err := packing.FewerWaits(c.ctx, p, uses, pl, packing.Options{TimeLimit: c.remaining()})
	c.limited = c.limited || pl.TimeLimitHit
	return pl, err
}
