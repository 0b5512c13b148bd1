package compile

import (
	"slices"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
)

// against is what serving the recording by Options.Against takes. It is nil if there is no such plan, or if that cannot serve this
// device: then it is no choice. Nor is a plan of a run beside another one: the longer of the two is that of the recording.
func (c *compiler) against() *report.Against {
	before := c.servedBefore()
	if before == nil || c.ofRun && before.run > 0 {
		return nil
	}
	return &report.Against{Reserved: before.Reserved, Moved: before.Moved}
}

// servedBefore is what serving the recording by Options.Against takes, found once. It is nil if that cannot be.
func (c *compiler) servedBefore() *before {
	if c.before == nil {
		c.before = &before{}
		if c.Against != nil && c.judges() {
			cost, err := c.Serve(replay.NewProgram(c.timeline), c.Against, c.device.Ordinal)
			c.before = &before{cost, c.againstRun(), err == nil}
		}
	}
	if !c.before.serves {
		return nil
	}
	return c.before
}

// againstRun is the number of slots of Options.Against if that is the plan of a recorded process, and otherwise 0.
func (c *compiler) againstRun() int {
	p, err := planfile.Decode(c.Against)
	if err != nil {
		return 0
	}
	i := slices.IndexFunc(p.Devices, func(d planfile.Device) bool { return int(d.Ordinal) == c.device.Ordinal || len(p.Devices) == 1 })
	if i < 0 || p.Devices[i].Mode != planfile.ModeRecorded {
		return 0
	}
	return len(p.Devices[i].Slots)
}

// sameRun is the share of allocations that have to be on the plan of an earlier run, up to where the shorter of the two ends, for the
// recorded one to do the same: what a run that was not planned is wanted to have.
const sameRun = 9. / 10

// runsDiffer says whether the recorded run has left the plan of an earlier run.
func (c *compiler) runsDiffer() bool {
	before := c.servedBefore()
	return before != nil && float64(before.Planned) < sameRun*float64(min(before.run, len(c.timeline.Buffers)))
}

// keeps says whether the plan that was there before serves the recording clearly better than the one that was made of it: on some
// device, and on no other clearly worse. A plan that does not pay serves as the pool does, and so does one of the recorded process if a run does
// something else.
func keeps(rows []report.CompiledDevice) bool {
	keeps := false
	for i := range rows {
		before, made := rows[i].Against, rows[i].Judged
		if before == nil || made == nil {
			return false
		}
		now := replay.Cost{Reserved: made.Planned, Moved: made.PlannedMoved}
		if !made.Pays || rows[i].OfRun {
			now = replay.Cost{Reserved: made.Pool, Moved: made.PoolMoved}
		}
		then := replay.Cost{Reserved: before.Reserved, Moved: before.Moved}
		if better(now, then) {
			return false
		}
		keeps = keeps || better(then, now)
	}
	return keeps
}
