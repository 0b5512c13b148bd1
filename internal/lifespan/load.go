package lifespan

import (
	"slices"
	"sort"

	"github.com/stplan/stplan/internal/trace"
)

// End picks one of a buffer's two ends.
type End uint8

// A buffer lives until the program frees it, or until the allocator may reuse
// its memory.
const (
	EndRequested End = iota
	EndCompleted
)

// Until is the end of the buffer's live range, which does not contain it.
func (b *Buffer) Until(end End) trace.Time {
	if end == EndCompleted {
		return b.CompletedEnd
	}
	return b.RequestedEnd
}

// Profile is the load over time: Profile[t] is the number of aligned bytes live at event
// t. A buffer counts from its alloc event on, up to but without the event that frees it.
type Profile []trace.Bytes

// Peak is a largest load, in aligned bytes, and the first event that has it.
type Peak struct {
	Bytes trace.Bytes
	At    trace.Time
}

// Load is the profile of the timeline's buffers, each live until the given end. It has
// one entry per event, and a single entry if the timeline has no events.
func (tl *Timeline) Load(end End) Profile {
	last := max(1, tl.Events)
	p := make(Profile, last+1)
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		p[b.Start] += b.Size
		p[b.Until(end)] -= b.Size
	}
	p.accumulate()
	return p[:last]
}

// accumulate turns the changes of the load at each time into the load.
func (p Profile) accumulate() {
	for t := range p[1:] {
		p[t+1] += p[t]
	}
}

// Peak is the largest load of the profile and the first time that has it.
func (p Profile) Peak() Peak {
	var peak Peak
	for t, load := range p {
		if load > peak.Bytes {
			peak = Peak{Bytes: load, At: trace.Time(t)}
		}
	}
	return peak
}

// mostDuring is the largest load while each of some buffers lives, which are in the order of
// their starts. It takes O(n log n) time.
func (p Profile) mostDuring(buffers []Buffer, end End) []trace.Bytes {
	out := make([]trace.Bytes, len(buffers))
	// records are the times from t on with a larger load than any between t and them, the last one
	// first. So the first of them before a time has the largest load from t until then.
	var records []trace.Time
	t := trace.Time(len(p))
	for i, b := range slices.Backward(buffers) {
		for t > b.Start {
			t--
			for len(records) > 0 && p[records[len(records)-1]] <= p[t] {
				records = records[:len(records)-1]
			}
			records = append(records, t)
		}
		out[i] = p[records[sort.Search(len(records), func(k int) bool { return records[k] < b.Until(end) })]]
	}
	return out
}
