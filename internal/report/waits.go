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
// the larger it is, the likelier that a wait costs nothing. Cross-stream waits have
// bytes and slack of their own, because each is for all that the device had been
// given by the free.
type Waits struct {
	Count            int    `json:"waits"`
	CrossStream      int    `json:"waits_cross_stream"`
	Pending          int    `json:"waits_pending"`
	OverSeam         int    `json:"waits_over_seam"`
	Bytes            int64  `json:"wait_bytes"`
	SlackMin         *int64 `json:"wait_slack_events_min"`
	SlackMedian      *int64 `json:"wait_slack_events_median"`
	CrossBytes       int64  `json:"cross_stream_bytes"`
	CrossSlackMin    *int64 `json:"cross_stream_slack_events_min"`
	CrossSlackMedian *int64 `json:"cross_stream_slack_events_median"`
}

// Line is the account on one line.
func (w Waits) Line() string {
	if w.Count == 0 {
		return "0"
	}
	return fmt.Sprintf("%s (%s cross-stream, %s pending) for %s, %s", Count(w.Count),
		Count(w.CrossStream), Count(w.Pending), Bytes(w.Bytes), slackText(w.SlackMin, w.SlackMedian))
}

// CrossLine is the account of the cross-stream waits, and what they may cost, on one
// line. It is empty if there are none.
func (w Waits) CrossLine() string {
	if w.CrossStream == 0 {
		return ""
	}
	return fmt.Sprintf("%s for %s, %s: behind all that the device had been given by the free, so one with little slack may cost overlap",
		Count(w.CrossStream), Bytes(w.CrossBytes), slackText(w.CrossSlackMin, w.CrossSlackMedian))
}

func slackText(least, median *int64) string {
	return fmt.Sprintf("slack %s events at least, %s in the median", Count(*least), Count(*median))
}

// CountWaits is a number of waits, and how many of them are cross-stream, for a line
// that says more than that.
func CountWaits(count, cross int) string {
	if count == 0 {
		return "0 waits"
	}
	return fmt.Sprintf("%s waits (%s cross-stream)", Count(count), Count(cross))
}

// WaitsOf sums up a plan's waits. The plan need not be verified.
func WaitsOf(d *planfile.Device) Waits {
	sum := Waits{Count: len(d.Waits)}
	var slack, cross []int64
	clock := newWaitClock(d)
	for _, w := range d.Waits {
		earlier, later := &d.Slots[w.Earlier], &d.Slots[w.Later]
		shared := int64(min(earlier.Offset+earlier.Size, later.Offset+later.Size)) - int64(max(earlier.Offset, later.Offset))
		shared = max(0, shared)
		events := clock.slack(w)
		sum.Bytes, slack = sum.Bytes+shared, append(slack, events)
		if w.Kind&planfile.WaitCrossStream != 0 {
			sum.CrossBytes, cross = sum.CrossBytes+shared, append(cross, events)
		}
		if w.Kind&planfile.WaitPending != 0 {
			sum.Pending++
		}
		if w.Kind&planfile.WaitSeam != 0 {
			sum.OverSeam++
		}
	}
	sum.CrossStream = len(cross)
	sum.SlackMin, sum.SlackMedian = leastAndMedian(slack)
	sum.CrossSlackMin, sum.CrossSlackMedian = leastAndMedian(cross)
	return sum
}

// leastAndMedian sorts all; both are nil if there are none.
func leastAndMedian(all []int64) (least, median *int64) {
	if len(all) == 0 {
		return nil, nil
	}
	slices.Sort(all)
	return &all[0], &all[len(all)/2]
}

// waitClock tells the slack of waits, over the seam as well.
type waitClock struct {
	d      *planfile.Device
	kept   []uint64            // of each slot, until when it keeps its place
	enters []map[uint32]uint64 // of each phase, when what it finds in a cell is freed
}

func newWaitClock(d *planfile.Device) *waitClock {
	c := &waitClock{d: d}
	c.kept, _ = d.KeptEnds()
	for x := range d.Phases {
		c.enters = append(c.enters, d.EnteringEnds(x, func(slot int) uint64 { return d.Slots[slot].RequestedEnd }))
	}
	return c
}

// slack is the time from the free of the earlier slot to the start of the later
// one: events, in a body allocations.
func (c *waitClock) slack(w planfile.Wait) int64 {
	earlier, later := &c.d.Slots[w.Earlier], &c.d.Slots[w.Later]
	end, start := c.kept[w.Earlier], later.Start
	if w.Kind&planfile.WaitSeam != 0 {
		seam := c.d.Phases[c.d.PhaseOf(w.Earlier)].Length
		start += seam
		if earlier.Flags&planfile.SlotLeaving != 0 { // freed by the phase of the later one
			end = seam + c.enters[c.d.PhaseOf(w.Later)][earlier.Cell]
		}
	}
	return int64(start) - int64(end)
}
