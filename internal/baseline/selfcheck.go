package baseline

import (
	"fmt"

	"github.com/stplan/stplan/internal/trace"
)

// Check is the result of SelfCheck.
type Check struct {
	// Total counts the recording's segment events and allocations, and the segment
	// events that only the simulation has. Matched counts those that agree: segment
	// events in action, order, size, address and stream, allocations in address. The
	// simulation is exact if both are equal.
	Matched, Total int
	// First is the first disagreement, nil if there is none.
	First *Mismatch
	// Hints say what the recording does not hold of the settings that it ran under,
	// and, if there is a disagreement, what may explain it.
	Hints []string
}

// Mismatch is a disagreement between a recording and its simulation.
type Mismatch struct {
	Time                trace.Time // the recording's entry
	Recorded, Simulated string
}

// String is one line for people.
func (m *Mismatch) String() string {
	return fmt.Sprintf("entry %d: recorded %s, simulated %s", m.Time, m.Recorded, m.Simulated)
}

// SelfCheck runs the program of a recording on PyTorch's allocator under c, which
// should be what the recording ran under, and compares everything that the allocator
// did. The driver's part, the address of a segment and when the card was full, is
// taken from the recording. No other allocator can be checked: the recording holds
// what PyTorch's did.
//
// progress, if not nil, is called now and then with the number of operations done.
//
// An error is a *trace.InputError, or says which setting of c makes no sense.
func SelfCheck(p *Program, c Config, progress func(done, total int64)) (Check, error) {
	k, err := newChecker(p, c)
	if err != nil {
		return Check{}, err
	}
	if err := k.run.begin(); err != nil {
		return Check{}, err
	}
	k.run.each(progress, func(o *op) (more bool) {
		k.step(o)
		return true
	})
	k.enter(len(p.device.Events), false)
	k.leave()
	k.check.Hints = missing(c)
	if k.check.First != nil {
		k.check.Hints = append(k.check.Hints, reasons(p.device, c)...)
	}
	return k.check, nil
}

// checker is the driver of a simulation. It gives the simulation what the recorded
// driver did, and compares what the allocator does. It works op by op: the segment
// events between two ops are the answer, what the recorded allocator did to serve the
// second.
type checker struct {
	run       simulation
	allocator *caching // the run's model
	check     Check
	refused   bool          // the recorded allocation failed
	answer    []trace.Event // entries of this op that are still to be matched
	read      int           // entries of all ops so far
	other     *card         // for what the recording lacks
}

func newChecker(p *Program, c Config) (*checker, error) {
	k := &checker{other: newCard(p.device)}
	a, err := cachingFor(p, c, k, k.see)
	if err != nil {
		return nil, err
	}
	k.allocator, k.run = a, simulation{program: p, model: a}
	return k, nil
}

func (k *checker) step(o *op) {
	end := int(o.at)
	if o.kind == opEmptyCache {
		end++
	}
	k.enter(end, o.kind == opRefused)
	if e := k.next(); o.kind == opAlloc && e != nil && segmentDelta(e) < 0 && k.allocator.canServe(k.run.program.buffers[o.buffer].Request) {
		// The allocator releases nothing for a request that it can serve: the
		// program called empty_cache.
		k.allocator.EmptyCache(nil)
	}
	k.run.step(o)
	k.leave()
	if o.kind == opAlloc {
		k.compareAlloc(o)
	}
}

// enter begins the op whose answer ends at entry end.
func (k *checker) enter(end int, refused bool) {
	k.answer = k.run.program.device.Events[min(k.read, end):end]
	k.read = max(k.read, end)
	k.refused = refused
}

// next returns the recorded segment event that should come next, nil if there is
// none.
func (k *checker) next() *trace.Event {
	for len(k.answer) > 0 && segmentDelta(&k.answer[0]) == 0 {
		k.answer = k.answer[1:]
	}
	if len(k.answer) == 0 {
		return nil
	}
	return &k.answer[0]
}

// see compares a segment event of the simulation.
func (k *checker) see(s segmentEvent) {
	k.check.Total++
	e := k.next()
	if e == nil {
		k.differ("nothing", s.String())
		return
	}
	if r := recordedEvent(e); r == s {
		k.check.Matched++
	} else {
		k.differ(r.String(), s.String())
	}
	k.answer = k.answer[1:]
}

// leave counts the recorded segment events that the simulation lacks.
func (k *checker) leave() {
	for e := k.next(); e != nil; e = k.next() {
		k.check.Total++
		k.differ(recordedEvent(e).String(), "nothing")
		k.answer = k.answer[1:]
	}
}

func (k *checker) compareAlloc(o *op) {
	k.check.Total++
	b := &k.run.program.buffers[o.buffer]
	if k.run.result.OOM != nil {
		k.differ(allocAt(b.Size, b.addr), fmt.Sprintf("alloc of %d B: out of memory", b.Size))
		k.run.result.OOM = nil
		return
	}
	if addr := k.allocator.live[o.buffer].addr; addr != b.addr {
		k.differ(allocAt(b.Size, b.addr), allocAt(b.Size, addr))
		return
	}
	k.check.Matched++
}

func allocAt(size trace.Bytes, addr uint64) string {
	return fmt.Sprintf("alloc of %d B at 0x%x", size, addr)
}

// differ notes a disagreement at the next segment event, or at the op if there is
// none.
func (k *checker) differ(recorded, simulated string) {
	if k.check.First == nil {
		at := trace.Time(k.read - len(k.answer))
		k.check.First = &Mismatch{at, recorded, simulated}
	}
}

func recordedEvent(e *trace.Event) segmentEvent {
	return segmentEvent{e.Action, e.Addr, e.Size, e.Stream}
}

func (e segmentEvent) String() string {
	return fmt.Sprintf("%s of %d B at 0x%x for stream %d", e.action, e.size, e.addr, e.stream)
}

// full says that the card refused at this point of the recording: the allocator
// released something next, or gave up.
func (k *checker) full() bool {
	e := k.next()
	return e == nil && k.refused || e != nil && segmentDelta(e) < 0
}

func (k *checker) segment(size trace.Bytes) (uint64, bool) {
	if k.full() {
		return 0, false
	}
	if e := k.next(); e != nil && e.Action == trace.ActionSegmentAlloc {
		return e.Addr, true
	}
	return k.other.reserve(size)
}

// reserve takes the base of new address space from the first mapping that follows.
// It may come after releases, if the card was full.
func (k *checker) reserve(size trace.Bytes) (uint64, bool) {
	for i := range k.answer {
		if k.answer[i].Action == trace.ActionSegmentMap {
			return k.answer[i].Addr, true
		}
	}
	return k.other.reserve(size)
}

func (k *checker) commit(trace.Bytes) bool { return !k.full() }

// refuse does nothing: full knows from the recording.
func (k *checker) refuse(bool) {}

// missing lists the limits and settings that the recording is known not to hold.
func missing(c Config) []string {
	var h []string
	if c.unread != "" {
		h = append(h, fmt.Sprintf("the recorded settings string cannot be read (%s), so PyTorch's defaults are used for the "+
			"settings that are only in it: pass them with --recorded-config", c.unread))
	}
	if c.capped() && c.DeviceMemory == 0 {
		h = append(h, fmt.Sprintf("%s:%g is ignored, since the recording does not hold the size of the GPU's memory: "+
			"pass it with --recorded-config, such as device_memory:80GiB", fractionKey, c.MemoryFraction))
	}
	return h
}

// reasons lists what may explain that a correct simulation disagrees.
func reasons(d *trace.Device, c Config) []string {
	var h []string
	add := func(applies bool, text string) {
		if applies {
			h = append(h, text)
		}
	}
	add(!c.recorded.Known, "the recording does not hold its settings")
	add(d.InitialInferred, "the state when recording began was inferred")
	add(c.GCThreshold > 0 && c.MemoryFraction == 0,
		"garbage collection works against a memory fraction, which the recording does not hold")
	add(usesPrivatePools(d), "private memory pools were in use: a recording does not say when")
	add(c.recorded.Known && c.Expandable != c.recorded.ExpandableSegments,
		"expandable_segments is not what it was when the recording ended")
	return h
}
