package compile

import (
	"fmt"

	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
)

// place gives every slot an offset and lists the waits that are left. It returns
// the placement of the line, with the makespan that the slots have in the end.
func (c *compiler) place(d *draft) (packing.Placement, error) {
	l := newLine(d)
	pl, err := c.pack(l)
	if err != nil {
		return pl, err
	}
	d.settle(pl)
	classes, pl, err := c.orKeptBelow(d, l, pl)
	if err != nil {
		return pl, err
	}
	if pl, err = c.smallApart(d, l, classes, pl); err != nil {
		return pl, err
	}
	return c.order(d, l, pl)
}

// pack packs the line, or each stream by itself if memory must not go from one
// to another. If the plan does not repeat it then looks for fewer waits; those of a
// periodic plan show only when its phases are unrolled (fewerWaits).
func (c *compiler) pack(l *line) (packing.Placement, error) {
	label := fmt.Sprintf("packing device %d", c.device.Ordinal)
	if c.NoCrossStream {
		return c.packApart(label, l, c.fewerIfRecorded)
	}
	pl, err := c.packPart(label, &l.problem)
	if err != nil {
		return pl, err
	}
	if pl, err = c.orApart(label, l, pl); err != nil {
		return pl, err
	}
	return c.fewerIfRecorded(&l.problem, l.uses, pl)
}

// orApart packs each stream by itself as well if pl has a gap that this may close,
// and returns the smaller placement. A pipeline keeps a few buffers of gigabytes on
// a stream of its own from its beginning to its end. Among the others they cut the
// arena in pieces, and on some recordings the searches get lost in them: then the
// streams apart take less, though nothing is shared between them.
func (c *compiler) orApart(label string, l *line, pl packing.Placement) (packing.Placement, error) {
	if pl.Makespan <= pl.LowerBound || c.limited {
		return pl, nil
	}
	if least, err := packing.ApartLoad(&l.problem, l.streams()); err != nil || least >= pl.Makespan {
		return pl, err
	}
	apart, err := c.packApart(label, l, func(_ *packing.Problem, _ []packing.Use, part packing.Placement) (packing.Placement, error) {
		return part, nil
	})
	if err != nil || apart.Makespan >= pl.Makespan {
		return pl, err
	}
	return certifiedAs(pl, apart), nil
}

// keptShare is 1/N of the arena: with less than this between what is kept it is not packed by itself. A run that
// goes beyond the recorded sizes does not use what lies there, and it moves.
const keptShare = 64

// orKeptBelow packs what stays and what crosses the seam by itself, and the rest above it, if large sizes vary and
// bands alone leave some of the rest below (draft.sortBands). It returns pl, to which the draft is settled, or the other
// placement and its classes, with the draft settled to it, if that takes no more.
func (c *compiler) orKeptBelow(d *draft, l *line, pl packing.Placement) ([]int32, packing.Placement, error) {
	if !c.follows(d) {
		return nil, pl, nil
	}
	top := d.sortedKeptTop()
	if top <= d.keptBytes()+pl.Makespan/keptShare {
		return nil, pl, nil
	}
	for _, below := range [][]int32{l.kept(d, keptSlots), l.kept(d, planfile.SlotResident)} {
		classes, err := l.mostBelow(below, pl.Makespan)
		if err != nil || classes == nil {
			return nil, pl, err
		}
		other, err := c.packClasses(l, classes)
		if err != nil {
			return nil, pl, err
		}
		if other.Makespan > pl.Makespan {
			continue
		}
		try := d.clone()
		try.settle(other)
		if try.sortedKeptTop() < top {
			d.settle(other)
			return classes, certifiedAs(pl, other), nil
		}
	}
	return nil, pl, nil
}

// follows says whether places of the plan may follow the sizes of a run.
func (c *compiler) follows(d *draft) bool {
	return c.periodic != nil && !c.NoCrossStream && !c.limited && d.varies()
}

// certifiedAs is a placement with the certificate of another one of the same problem: that of classes packed apart is of
// placements that keep them apart.
func certifiedAs(whole, apart packing.Placement) packing.Placement {
	apart.MaxLoad, apart.LowerBound, apart.Witness = whole.MaxLoad, whole.LowerBound, whole.Witness
	return apart
}

// packClasses packs each class by itself.
func (c *compiler) packClasses(l *line, classes []int32) (packing.Placement, error) {
	return packing.Apart(&l.problem, classes, func(part *packing.Problem, _ []int32) (packing.Placement, error) {
		return c.packPart(fmt.Sprintf("packing what varies, device %d", c.device.Ordinal), part)
	})
}

// apartShare is 1/N of the plan: what it may grow by to have its small slots apart. With 1/256 a LoRA finetuning with texts of any
// length takes 0.35 % more for as many bytes on plan and nothing less that moves.
const apartShare = 1024

// smallest are the sizes in bytes up to which slots may count as small. The largest for which the plan grows by
// apartShare at most is taken.
var smallest = []packing.Bytes{leastVaries, leastVaries / 2, leastVaries / 4, leastVaries / 8}

// smallApart packs small slots by themselves, if large sizes vary, and puts them between what is kept, if that is packed
// apart (classes, of orKeptBelow), and the rest. A run that does not do as the plan says, in an evaluation for instance, is
// matched with some wrong steps, and a small block that stays in the midst of a place of gigabytes has these move. Among small
// slots it is in the way of a small one. It returns pl, to which the draft is settled, or the other placement, with the draft settled to it.
func (c *compiler) smallApart(d *draft, l *line, classes []int32, pl packing.Placement) (packing.Placement, error) {
	if !c.follows(d) {
		return pl, nil
	}
	most := pl.Makespan + pl.Makespan/apartShare
	for _, small := range smallest {
		apart := l.smallApart(classes, small)
		if least, err := packing.ApartLoad(&l.problem, apart); err != nil {
			return pl, err
		} else if least > most {
			continue
		}
		other, err := c.packClasses(l, apart)
		if err != nil {
			return pl, err
		}
		if other.Makespan <= most {
			d.settle(other)
			return certifiedAs(pl, other), nil
		}
	}
	return pl, nil
}

// packApart packs each stream by itself, and does to the placement of each what
// then says.
func (c *compiler) packApart(label string, l *line, then func(*packing.Problem, []packing.Use, packing.Placement) (packing.Placement, error)) (packing.Placement, error) {
	return packing.Apart(&l.problem, l.streams(), func(part *packing.Problem, members []int32) (packing.Placement, error) {
		uses := make([]packing.Use, len(members))
		for i, b := range members {
			uses[i] = l.uses[b]
		}
		pl, err := c.packPart(fmt.Sprintf("%s, stream %d", label, uses[0].Stream), part)
		if err != nil {
			return pl, err
		}
		return then(part, uses, pl)
	})
}

// tolerance is how far a plan of many buffers may be above its max load without a search for a smaller one: a granule, the unit in
// which memory is taken from the device, but no more than 1/2048 of what is allocated, in whose granules a proven plan has
// its memory; and 1/16384 of what is allocated if that is more. Searches for the last 512 B of 4 GiB took ten seconds,
// and half a minute, to no avail, for the last 1.5 MB of 7 GB.
func (c *compiler) tolerance() packing.Bytes {
	const granule = 2 << 20
	allocated := packing.Bytes(c.timeline.PeakAllocated.Bytes)
	return max(min(granule, allocated/(1<<11)), allocated/(1<<14))
}

// packPart is packing.Pack within what is left of the time limit.
func (c *compiler) packPart(stage string, p *packing.Problem) (packing.Placement, error) {
	opt := packing.Options{TimeLimit: c.remaining(), Tolerance: c.tolerance()}
	if c.Progress != nil {
		opt.Progress = func(done, total int, _ packing.Bytes) { c.Progress(stage, int64(done), int64(total)) }
	}
	pl, err := packing.Pack(c.ctx, p, opt)
	c.limited = c.limited || pl.TimeLimitHit
	return pl, err
}

// fewerIfRecorded is fewer for a plan that does not repeat.
func (c *compiler) fewerIfRecorded(p *packing.Problem, uses []packing.Use, pl packing.Placement) (packing.Placement, error) {
	if c.periodic != nil {
		return pl, nil
	}
	return c.fewer(p, uses, pl)
}
