package compile

import (
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
)

// findPeriodic is the steady state, or the other one of the same iterations.
func (c *compiler) findPeriodic() (*lifespan.Periodic, string) {
	per, why := lifespan.FindPeriodic(c.timeline, c.iterations, c.end())
	if c.other && per != nil && per.Other != nil {
		per = per.Other
	}
	return per, why
}

// orOther is the plan of the other steady state, if there is one that serves the recording better.
func (c *compiler) orOther(dev *planfile.Device, best packing.Placement) (*planfile.Device, packing.Placement, error) {
	if c.periodic == nil || c.periodic.Other == nil || !c.judges() || c.late(c.analysed) {
		return dev, best, nil
	}
	program := replay.NewProgram(c.timeline)
	cost, err := c.serve(program, dev)
	if err != nil {
		return nil, best, err
	}
	other := *c
	other.periodic, other.other = c.periodic.Other, true
	otherDev, otherBest, err := other.made()
	if err != nil {
		return nil, best, err
	}
	otherCost, err := c.serve(program, otherDev)
	if err != nil {
		return nil, best, err
	}
	c.limited = c.limited || other.limited
	if !better(otherCost, cost) {
		return dev, best, nil
	}
	*c = other
	return otherDev, otherBest, nil
}

// better says whether one plan serves clearly better than another: if it reserves less, or spares half
// of what that moves, by more than plans may cost without being judged worse.
func better(one, than replay.Cost) bool {
	slack := than.Reserved / paysWithin
	return one.Reserved < than.Reserved-slack ||
		one.Reserved <= than.Reserved+slack && one.Moved < than.Moved/2 && than.Moved-one.Moved > slack
}
