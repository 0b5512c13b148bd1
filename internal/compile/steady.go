package compile

import (
	"fmt"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// steadyState is the recording's steady state. It is nil if the plan is to be of
// the recorded process: if that was asked for, if nothing repeats, or if the
// envelope of the passes would take more memory than is worthwhile.
func (c *compiler) steadyState() (*lifespan.Periodic, error) {
	if c.Mode == planfile.ModeRecorded {
		return nil, nil
	}
	per, why := lifespan.FindPeriodic(c.timeline, c.iterations, c.end())
	switch {
	case per == nil && c.Mode == planfile.ModePeriodic:
		return nil, fmt.Errorf("%s: device %d: no periodic plan: %s", c.trace, c.device.Ordinal, why)
	case per == nil && c.iterations.Count == 0:
		return nil, nil // the summary says that nothing repeats
	case per == nil:
		c.note("the plan is of the recorded process only: %s", why)
		return nil, nil
	case c.Mode == planfile.ModePeriodic:
		return per, nil
	}
	if bound, limit := envelope(c.timeline, per, c.end()), c.worthwhile(); bound > limit {
		c.note("the plan is of the recorded process only: one that fits every pass takes at least %s, and beyond %s it is not worth it (--mode periodic makes it)",
			report.Bytes(int64(bound)), report.Bytes(int64(limit)))
		return nil, nil
	}
	return per, nil
}

// unknownReserve is how much a job is taken to have reserved beyond its peak
// allocated, as a divisor of it, if the recording does not say: a quarter is about
// the most that native allocation wastes.
const unknownReserve = 4

// worthwhile is how many bytes a periodic plan may take before it is worse than
// what everybody has: what the recording reserved.
func (c *compiler) worthwhile() trace.Bytes {
	if c.reserved > 0 {
		return c.reserved
	}
	return c.timeline.PeakAllocated.Bytes / unknownReserve * (unknownReserve + 1)
}

// envelope is the circular lower bound of a steady state: the largest load of any
// of its phases, with every slot present at its largest.
func envelope(tl *lifespan.Timeline, per *lifespan.Periodic, end lifespan.End) trace.Bytes {
	var most trace.Bytes
	for _, p := range per.Envelope(tl, end) {
		most = max(most, p.Bytes)
	}
	return most
}
