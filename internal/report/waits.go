package report

import "fmt"

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
