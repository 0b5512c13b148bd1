package compile

import (
	"math"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
)

// A recording that ends in an out-of-memory ends within an iteration, which is part of no body: it is not
// whole. But it is the one that needed more than there was. So plans are tried that know of it, and the
// first one is taken that serves the recording, and the request that failed, with what the process had.

// spareScale is the scale of a plan that is tried if the iteration that ran out of memory has no larger
// sizes than those before, or none that follow a law, as with experts. With 1.2, 1.5 or 2 alone three of eight
// jobs with 0.6 % more memory than they allocate went on in the next run, not the same three; 1.25 is of no
// such trial, but one with the scale of the cut-off iteration (docs/results/ranout.md).
const spareScale = 1.25

// orEnough is the plan of a recording that ends in an out-of-memory: the one that there is, or another one
// that takes less. served is what serving the recording with the plan took, nil if that is not known yet.
func (c *compiler) orEnough(dev *planfile.Device, best packing.Placement, served *replay.Cost) (*planfile.Device, packing.Placement, *replay.Cost, error) {
	if c.timeline.Failed() == nil || c.periodic == nil || c.joined != nil || c.MaxScale > 1 || c.Mode != 0 || !c.judges() {
		return dev, best, served, nil
	}
	program := replay.NewProgram(c.timeline)
	served, err := c.orServe(program, dev, served)
	if err != nil {
		return nil, best, nil, err
	}
	had := c.had()
	if served.Reserved <= had {
		return dev, best, served, nil
	}
	chosen := *c
	for _, other := range c.wider() {
		if served.Reserved <= had || c.late(c.analysed) {
			break
		}
		otherDev, otherBest, cost, err := c.tried(&other, program)
		if err != nil {
			return nil, best, nil, err
		}
		if cost.Reserved < served.Reserved {
			chosen, dev, best, served = other, otherDev, otherBest, cost
		}
	}
	chosen.limited = c.limited
	*c = chosen
	if c.periodic == nil {
		c.note("the plan is of the recorded process only: it ends in an out-of-memory, and no plan of its whole iterations serves it with %s", report.Bytes(had))
	}
	return dev, best, served, nil
}

// had is the bytes that the process could have in all: of a history that is known, and a snapshot says what the
// driver had free. If a limit was in the way that it does not say, they are what was reserved.
func (c *compiler) had() int64 {
	failure := FailureOf(c.device)
	if c.device.AddressesInvented {
		return failure.Had
	}
	if sum := available(c.device, failure); sum != nil {
		return *sum
	}
	return int64(c.reserved)
}

// wider are compilers of other plans, those that know the most of other runs first: of the same bodies for larger sizes,
// and of the recorded process alone, which has the iteration that is not whole.
func (c *compiler) wider() []compiler {
	var all []compiler
	for _, scale := range slices.Compact([]float64{c.cutOffScale(), spareScale}) {
		if scale > 1 {
			other := *c
			other.MaxScale = scale
			all = append(all, other)
		}
	}
	recorded := *c
	recorded.periodic = nil
	return append(all, recorded)
}

// cutOffScale is how many times as large as any before a quantity is in the iteration that the
// recording ends in; 1 if it shows none that is larger.
func (c *compiler) cutOffScale() float64 {
	sizes := c.sizes()
	begin := c.bufferAt(c.periodic.End)
	tail := c.part(begin, len(c.timeline.Buffers))
	scale, most := 1., 0
	for x := range c.periodic.Bodies {
		from, slots := c.longest(x)
		match := lifespan.Match(c.part(from, from+len(slots)), tail)
		q := quantitiesOf(sizes[x])
		here, matched := 1., 0
		for i, at := range match {
			if at < 0 {
				continue
			}
			matched++
			if k := slices.Index(q.slots, slots[at]); k >= 0 {
				here = max(here, float64(tail.Buffers[i].Requested)/q.most(k))
			}
		}
		if matched > most {
			scale, most = here, matched
		}
	}
	return min(math.Ceil(100*scale)/100, mostCutOff)
}

// mostCutOff bounds cutOffScale: beyond, an allocation is taken for another.
const mostCutOff = 4
