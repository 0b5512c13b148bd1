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
	per, why := c.findPeriodic()
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
	if shared := c.sharedWithin(per, c.worthwhile()); shared != nil {
		return shared, nil
	}
	if bound, limit := envelope(c.timeline, per, c.end()), c.worthwhile(); bound > limit {
		c.note("the plan is of the recorded process only: one that fits every pass takes at least %s, and beyond %s it is not worth it (--mode periodic makes it)",
			report.Bytes(int64(bound)), report.Bytes(int64(limit)))
		c.ofRun = true
		return nil, nil
	}
	return per, nil
}

// sharedWithin is the steady state with places that slots share, if only that takes no more than so many bytes.
func (c *compiler) sharedWithin(per *lifespan.Periodic, limit trace.Bytes) *lifespan.Periodic {
	if envelope(c.timeline, per, c.end()) <= limit {
		return nil
	}
	shared := per.Shared(c.timeline, c.iterations, c.end())
	if shared == nil || envelope(c.timeline, shared, c.end()) > limit {
		return nil
	}
	c.shared, c.sharedOnly = true, true
	return shared
}

// findPeriodic is the steady state, or the other one of the same iterations, or the one with places that slots share.
func (c *compiler) findPeriodic() (*lifespan.Periodic, string) {
	per, why := lifespan.FindPeriodic(c.timeline, c.iterations, c.end())
	if c.other && per != nil && per.Other != nil {
		per = per.Other
	}
	if c.shared && per != nil {
		if shared := per.Shared(c.timeline, c.iterations, c.end()); shared != nil {
			per = shared
		}
	}
	return per, why
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

// analyseJoined finds the steady state that all recordings share.
func (c *compiler) analyseJoined() error {
	c.iterations = c.joined.Iterations
	per, why := c.findPeriodic()
	if per == nil {
		return fmt.Errorf("%s: device %d: the recordings do not fit together: %s", c.trace, c.device.Ordinal, why)
	}
	for k, shared := range sharedSlots(per, c.joined.Begins) {
		if shared < leastShared {
			return fmt.Errorf("%s: device %d: does not fit to the other recordings: %.0f %% of its steady allocations have a slot in common with them, expected at least %.0f %%",
				c.joined.names[k], c.device.Ordinal, 100*shared, 100*leastShared)
		}
	}
	limit := max(c.worthwhile(), c.joined.reserved)
	if shared := c.sharedWithin(per, limit); shared != nil {
		per = shared
	}
	if bound := envelope(c.timeline, per, c.end()); bound > limit && c.Mode != planfile.ModePeriodic {
		return fmt.Errorf("%s: device %d: the recordings do not fit together: one plan for all takes at least %s, and beyond %s it is not worth it (--mode periodic makes it)",
			c.trace, c.device.Ordinal, report.Bytes(int64(bound)), report.Bytes(int64(limit)))
	}
	c.periodic = per
	return nil
}
