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
// than recorded, that what crosses a seam is resident, in a cell or a stray, and that what
// shares a place is never more at once than the place has. It does not prove how many iterations there are or where they begin.
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
		c := &comparison{judge: &judge{d: d, results: &r}, recorded: recorded, handles: map[uint32]uint64{}, indices: map[uint64]uint32{}}
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
	byHandle bool              // the plan names streams by the recording's handles
	handles  map[uint32]uint64 // by stream of the plan: the recording's handle of it
	indices  map[uint64]uint32 // the same the other way
}

// compare checks the device against its recording.
func (c *comparison) compare() {
	switch found := c.recorded.Fingerprint(); c.d.Fingerprint {
	case found:
		c.numbered()
	case c.recorded.EventsFingerprint(): // of stplan 0.1, which also wrote the handles
		c.byHandle = true
	default:
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

// numbered checks that the plan calls its streams by their numbers.
func (c *comparison) numbered() {
	for i, name := range c.d.Streams {
		if name != uint64(i) {
			c.violated(RuleStream, none, none, "stream %d is called %#x, expected its number", i, name)
		}
	}
}

// onStream checks that slot i is on the stream of a buffer. Handles differ from process to
// process, so it demands that one stream of the plan is one of the recording, and the other
// way round. A plan that has the handles has to have the right ones as well.
func (c *comparison) onStream(i int, b *buffer) bool {
	s, streams := c.d.Slots[i].Stream, c.d.Streams
	switch {
	case uint64(s) >= uint64(len(streams)):
		c.differs(i, b, "stream", fmt.Sprintf("%d of %d", s, len(streams)), fmt.Sprintf("%#x", b.stream))
	default:
		handle, known := c.handles[s]
		index, met := c.indices[b.stream]
		if !known && !met && (!c.byHandle || streams[s] == b.stream) {
			c.handles[s], c.indices[b.stream] = b.stream, s
			return true
		}
		if known && met && handle == b.stream && index == s {
			return true
		}
		c.differs(i, b, "stream", c.called(s), fmt.Sprintf("%#x", b.stream))
	}
	return false
}

// called names a stream of the plan by its handle in the recording, if that is known.
func (c *comparison) called(s uint32) string {
	if handle, known := c.handles[s]; known {
		return fmt.Sprintf("%#x", handle)
	}
	if c.byHandle {
		return fmt.Sprintf("%#x", c.d.Streams[s])
	}
	return fmt.Sprintf("%d of %d", s, len(c.d.Streams))
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
