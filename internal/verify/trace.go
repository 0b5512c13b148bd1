package verify

import (
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// AgainstTrace checks that a plan belongs to a recording and serves each of its
// buffers: it is of the same events, and has a slot for every allocation, for every
// block that was live before and for the request that the recording ends in if that ran
// out of memory, with its live range, request and stream.
//
// Of a periodic plan it checks that for the prologue. For every pass it checks that each
// allocation is one of the slots that the pass had, that no slot is smaller or shorter
// than recorded, and that what crosses a seam is resident, in a cell or a stray. It does
// not prove how many iterations there are or where they begin.
//
// A nil result, together with a nil result of Plan, is the proof. At most 100 violations
// of a rule and device are listed.
func AgainstTrace(p *planfile.Plan, t *trace.Trace) []Violation {
	var r results
	planned := map[uint32]bool{}
	for i := range p.Devices {
		d := &p.Devices[i]
		planned[d.Ordinal] = true
		recorded := recordedDevice(t, d.Ordinal)
		if recorded == nil {
			r.add(RuleTrace, d.Ordinal, none, none, "the trace has no such device")
			continue
		}
		c := &comparison{judge: &judge{d: d, results: &r}, recorded: recorded}
		c.compare()
	}
	for i := range t.Devices {
		if d := &t.Devices[i]; !planned[uint32(d.Ordinal)] && allocates(d) {
			r.add(RuleTrace, uint32(d.Ordinal), none, none, "the trace has allocations, the plan no such device")
		}
	}
	return r.list
}

// recordedDevice is the device of a trace with the given ordinal, nil if there is none.
func recordedDevice(t *trace.Trace, ordinal uint32) *trace.Device {
	for i := range t.Devices {
		if t.Devices[i].Ordinal == int(ordinal) {
			return &t.Devices[i]
		}
	}
	return nil
}

func allocates(d *trace.Device) bool {
	return slices.ContainsFunc(d.Events, func(e trace.Event) bool { return e.Action == trace.ActionAlloc })
}

// comparison judges one device of the plan by the device it was recorded on.
type comparison struct {
	*judge
	recorded *trace.Device
}

// compare checks the device against its recording.
func (c *comparison) compare() {
	if found := c.recorded.Fingerprint(); found != c.d.Fingerprint {
		c.violated(RuleFingerprint, none, none, "the plan was made from another trace: of events %x…, this trace has %x…", c.d.Fingerprint[:8], found[:8])
		return
	}
	if n := uint64(len(c.recorded.Events)); n != c.d.Events {
		c.violated(RuleEvents, none, none, "the plan is of %d events, but the trace has %d", c.d.Events, n)
	}
	if peak := peakReserved(c.recorded); peak != trace.Bytes(c.d.RecordedPeakReserved) {
		c.violated(RuleReserved, none, none, "recorded peak reserved of %d B, but the trace's is %d B", c.d.RecordedPeakReserved, peak)
	}
	w := newWalk(c.recorded)
	if problem := w.all(); problem != "" {
		c.violated(RuleTrace, none, none, "%s", problem)
		return
	}
	if c.d.Mode == planfile.ModePeriodic {
		c.periodic(w.buffers)
	} else {
		c.pair(0, len(c.d.Slots), w.buffers, c.slotOf)
	}
}

// pair pairs slots [i, end) with buffers, both by start, and calls compare for each pair.
// Slots and buffers that were live before are by address, and paired in that order.
func (c *comparison) pair(i, end int, want []buffer, compare func(i int, b *buffer)) {
	slots := c.d.Slots
	for k := range want {
		b := &want[k]
		for ; i < end && slotKey(&slots[i]) < b.key(); i++ {
			c.surplus(i)
		}
		if i == end || slotKey(&slots[i]) > b.key() {
			c.violated(RuleBuffer, none, none, "no slot for the %d B of %s", b.requested, b.name())
			continue
		}
		compare(i, b)
		i++
	}
	for ; i < end; i++ {
		c.surplus(i)
	}
}

// slotKey is the key of the buffer that a slot is for: the event that allocated it, or
// keyInitial.
func slotKey(s *planfile.Slot) int64 {
	if s.Flags&planfile.SlotInitial != 0 {
		return keyInitial
	}
	return int64(s.Start)
}

// surplus reports slot i, which no buffer is for.
func (c *comparison) surplus(i int) {
	c.violated(RuleBuffer, i, none, "slot %d starts at event %d, but the trace has no buffer for it", i, c.d.Slots[i].Start)
}

// slotOf compares slot i with the buffer it is for.
func (c *comparison) slotOf(i int, b *buffer) {
	s := &c.d.Slots[i]
	bad := func(what string, planned, recorded any) { c.differs(i, b, what, planned, recorded) }
	switch {
	case int64(s.RequestedEnd) != b.requestedEnd:
		bad("requested end", s.RequestedEnd, b.requestedEnd)
	case int64(s.CompletedEnd) != b.completedEnd:
		bad("completed end", s.CompletedEnd, b.completedEnd)
	case s.Requested != uint64(b.requested):
		bad("requested bytes", s.Requested, b.requested)
	case !c.onStream(i, b):
	case (s.Flags&planfile.SlotResident != 0) != b.resident:
		bad("resident", s.Flags&planfile.SlotResident != 0, b.resident)
	}
}

// differs reports that slot i plans something else than was recorded of buffer b.
func (c *comparison) differs(i int, b *buffer, what string, planned, recorded any) {
	c.violated(RuleBuffer, i, none, "slot %d, for %s: %s %v, in the trace %v", i, b.name(), what, planned, recorded)
}

// onStream checks that slot i is on the stream of a buffer.
func (c *comparison) onStream(i int, b *buffer) bool {
	s, streams := c.d.Slots[i].Stream, c.d.Streams
	switch {
	case uint64(s) >= uint64(len(streams)):
		c.differs(i, b, "stream", fmt.Sprintf("%d of %d", s, len(streams)), fmt.Sprintf("%#x", b.stream))
	case streams[s] != b.stream:
		c.differs(i, b, "stream", fmt.Sprintf("%#x", streams[s]), fmt.Sprintf("%#x", b.stream))
	default:
		return true
	}
	return false
}

// peakReserved is the most bytes that the recorded allocator held.
func peakReserved(d *trace.Device) trace.Bytes {
	held := trace.Bytes(0)
	for i := range d.Initial {
		held += d.Initial[i].Size
	}
	most := held
	for i := range d.Events {
		switch e := &d.Events[i]; e.Action {
		case trace.ActionSegmentAlloc, trace.ActionSegmentMap:
			held += e.Size
			most = max(most, held)
		case trace.ActionSegmentFree, trace.ActionSegmentUnmap:
			held -= e.Size
		}
	}
	return most
}
