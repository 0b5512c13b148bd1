package report

import (
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// Waits is the account of a plan's waits: reuses of memory that the device has
// to order. A wait can be for both reasons, and OverSeam counts those whose
// earlier slot is of the phase before. Bytes are those that the two slots of each
// wait share. Slack is how many events, in a steady body allocations, lie between
// the end of the earlier slot and the start of the later one, null without waits:
// the larger it is, the likelier that a wait costs nothing.
type Waits struct {
	Count       int    `json:"waits"`
	CrossStream int    `json:"waits_cross_stream"`
	Pending     int    `json:"waits_pending"`
	OverSeam    int    `json:"waits_over_seam"`
	Bytes       int64  `json:"wait_bytes"`
	SlackMin    *int64 `json:"wait_slack_events_min"`
	SlackMedian *int64 `json:"wait_slack_events_median"`
}

// Line is the account on one line.
func (w Waits) Line() string {
	if w.Count == 0 {
		return "0"
	}
	return fmt.Sprintf("%s (%s cross-stream, %s pending) for %s, slack %s events at least, %s in the median", Count(w.Count),
		Count(w.CrossStream), Count(w.Pending), Bytes(w.Bytes), Count(*w.SlackMin), Count(*w.SlackMedian))
}

// WaitsOf sums up a plan's waits. The plan need not be verified.
func WaitsOf(d *planfile.Device) Waits {
	sum := Waits{Count: len(d.Waits)}
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
		c.enters = append(c.enters, d.EnteringEnds(x, func(slot int) uint64 { return d.Slots[slot].RequestedEnd }))
	}
	return c
}

// slack is the time from the free of the earlier slot to the start of the later
// one: events, in a body allocations.
func (c *waitClock) slack(w planfile.Wait) int64 {
	earlier, later := &c.d.Slots[w.Earlier], &c.d.Slots[w.Later]
	end, start := earlier.RequestedEnd, later.Start
	if w.Kind&planfile.WaitSeam != 0 {
		seam := c.d.Phases[c.d.PhaseOf(w.Earlier)].Length
		start += seam
		if earlier.Flags&planfile.SlotLeaving != 0 { // freed by the phase of the later one
			end = seam + c.enters[c.d.PhaseOf(w.Later)][earlier.Cell]
		}
	}
	return int64(start) - int64(end)
}
