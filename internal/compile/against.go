package compile

import (
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/report"
)

// against is what serving the recording by Options.Against takes. It is nil if there is no such plan, or if that cannot serve this
// device: then it is no choice.
func (c *compiler) against() *report.Against {
	if c.Against == nil || !c.judges() {
		return nil
	}
	cost, err := c.Serve(replay.NewProgram(c.timeline), c.Against, c.device.Ordinal)
	if err != nil {
		return nil
	}
	return &report.Against{Reserved: cost.Reserved, Moved: cost.Moved}
}

// keeps says whether the plan that was there before serves the recording clearly better than the one that was made of it: on some
// device, and on no other clearly worse. A plan that does not pay serves as the pool does.
func keeps(rows []report.CompiledDevice) bool {
	keeps := false
	for i := range rows {
		before, made := rows[i].Against, rows[i].Judged
		if before == nil || made == nil {
			return false
		}
		now := replay.Cost{Reserved: made.Planned, Moved: made.PlannedMoved}
		if !made.Pays {
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
