package compile

import (
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
)

// made is the plan of the steady state, and where its buffers are.
func (c *compiler) made() (*planfile.Device, packing.Placement, error) {
	d := newDraft(c.timeline, c.periodic, c.end())
	sizes := c.sizes()
	c.believe(d, sizes)
	c.scaled = c.scale(d, sizes)
	best, err := c.place(d)
	if err != nil {
		return nil, best, c.fault(err)
	}
	return c.write(d, best), best, nil
}

// orOther is the plan of the other steady state, if there is one that serves the recording better. The
// cost is that of the plan it returns, nil if there was no choice.
func (c *compiler) orOther(dev *planfile.Device, best packing.Placement) (*planfile.Device, packing.Placement, *replay.Cost, error) {
	if c.periodic == nil || c.periodic.Other == nil || !c.judges() || c.late(c.analysed) {
		return dev, best, nil, nil
	}
	program := replay.NewProgram(c.timeline)
	cost, err := c.serve(program, dev)
	if err != nil {
		return nil, best, nil, err
	}
	other := *c
	other.periodic, other.other = c.periodic.Other, true
	otherDev, otherBest, otherCost, err := c.tried(&other, program)
	if err != nil {
		return nil, best, nil, err
	}
	if !better(*otherCost, cost) {
		c.passedOver = &candidate{other, otherDev, otherBest, otherCost}
		return dev, best, &cost, nil
	}
	*c = other
	return otherDev, otherBest, otherCost, nil
}

// orShared is the plan with places that slots share, if data decide what they take, unless it serves the recording clearly worse.
// served is what serving it with the plan takes that there is, nil if that is not known yet.
func (c *compiler) orShared(dev *planfile.Device, best packing.Placement, served *replay.Cost) (*planfile.Device, packing.Placement, *replay.Cost, error) {
	if c.periodic == nil || c.shared || !c.judges() || c.late(c.analysed) {
		return dev, best, served, nil
	}
	other := *c
	if other.periodic = c.periodic.Shared(c.timeline, c.iterations, c.end()); other.periodic == nil {
		return dev, best, served, nil
	}
	other.shared = true
	program := replay.NewProgram(c.timeline)
	served, err := c.orServe(program, dev, served)
	if err != nil {
		return nil, best, nil, err
	}
	otherDev, otherBest, cost, err := c.tried(&other, program)
	if err != nil {
		return nil, best, nil, err
	}
	if better(*served, *cost) {
		return dev, best, served, nil
	}
	*c = other
	return otherDev, otherBest, cost, nil
}

// tried is another plan of the recording, and what serving it with that takes.
func (c *compiler) tried(other *compiler, program *replay.Program) (*planfile.Device, packing.Placement, *replay.Cost, error) {
	dev, best, err := other.made()
	if err != nil {
		return nil, best, nil, err
	}
	c.limited = c.limited || other.limited
	cost, err := c.serve(program, dev)
	return dev, best, &cost, err
}
