// Package peak says what was in a device's memory at one instant of its recording: at
// the peak of allocated bytes, or if the recording has an out-of-memory, at the request
// that failed. It tells buffers apart by line of code, by module, by category and by
// phase, and finds which blocks kept free memory in pieces. docs/peak.md states the
// rules.
//
// What a buffer is for is not in a recording. Every category has a rule, and every
// buffer knows whether the recording shows its category or only suggests it.
package peak

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// Peak is a device's memory at one instant.
type Peak struct {
	Moment Moment
	// Allocated is what the program held, in aligned bytes. Pending is what it had
	// freed and another stream could still use; no request can get that either.
	Allocated, Pending trace.Bytes
	Live               []Live // by size, largest first, then by start
	Memory             Memory
	// HasStacks says that allocations of this recording have Python stacks.
	HasStacks bool
	// Marked says that the recording has optimizer steps as annotations.
	Marked bool
}

// Live is a buffer that held memory at the instant.
type Live struct {
	Buffer *lifespan.Buffer
	Index  int   // into Timeline.Buffers
	Stack  int32 // into Trace.Stacks, or trace.None
	// Pending says that the program had freed it and another stream could still use it.
	Pending bool
	Verdict
	Phase Phase // in which it was allocated
	// Twin is, of a buffer without a Python stack, the one line that holds buffers of
	// exactly its size of the same iteration: mostly it is that tensor's gradient. It is
	// empty if there is none or more than one.
	Twin string
	// Age is the number of iteration boundaries since it was allocated.
	Age int
}

// Recording is a device's recording with what the analysis of other packages found.
type Recording struct {
	Trace      *trace.Trace
	Device     *trace.Device
	Timeline   *lifespan.Timeline
	Iterations lifespan.Iterations

	frames *frames
	phases *phases
	judge  *judge
	// initial are the stacks of blocks that lived before recording began, by address.
	initial map[uint64]int32
	// fatal is the time of the failure that the recording ends in, -1 if it does not.
	fatal trace.Time
}

// Read prepares a device's recording. marker, unless nil, matches the annotations that
// begin an iteration.
func Read(t *trace.Trace, d *trace.Device, marker *regexp.Regexp) (*Recording, error) {
	tl, err := lifespan.Build(d)
	if err != nil {
		return nil, err
	}
	it, err := lifespan.FindIterations(&t.Stacks, d, tl, marker)
	if err != nil {
		return nil, err
	}
	r := &Recording{Trace: t, Device: d, Timeline: tl, Iterations: it, frames: newFrames(&t.Stacks), initial: map[uint64]int32{}}
	failures := d.Failures()
	r.fatal = failures.FatalAt()
	for i := range d.Initial {
		for _, b := range d.Initial[i].Blocks {
			r.initial[b.Address] = b.Stack
		}
	}
	r.phases = newPhases(r)
	r.judge = newJudge(r)
	return r, nil
}

// Auto is the instant that a recording is looked at by default.
const Auto trace.Time = -1

// At looks at one instant; Auto is the last out-of-memory, or else the peak of
// allocated bytes.
func (r *Recording) At(at trace.Time) (*Peak, error) {
	m, err := r.moment(at)
	if err != nil {
		return nil, err
	}
	p := &Peak{Moment: m, HasStacks: r.frames.Python, Marked: len(r.phases.steps) > 0}
	for i := range r.Timeline.Buffers {
		b := &r.Timeline.Buffers[i]
		if b.Failed || b.Start > m.At || b.CompletedEnd <= m.At {
			continue
		}
		l := r.Buffer(i)
		l.Pending, l.Age = b.RequestedEnd <= m.At, r.phases.boundaries(b.Start, m.At)
		if l.Pending {
			p.Pending += b.Size
		} else {
			p.Allocated += b.Size
		}
		p.Live = append(p.Live, l)
	}
	slices.SortFunc(p.Live, func(a, b Live) int {
		return cmp.Or(cmp.Compare(b.Buffer.Size, a.Buffer.Size), cmp.Compare(a.Index, b.Index))
	})
	r.findTwins(p)
	p.Memory = memoryAt(r, m.At, p.Live)
	return p, nil
}

// CutOff says that the recording does not show when the program would have freed a buffer:
// it never does, or only after the failure that the recording ends in. Frees after that are
// the exception's, which drops the frames of a program that stopped.
func (r *Recording) CutOff(b *lifespan.Buffer) bool {
	return b.Resident || !b.Failed && r.after(b.RequestedEnd)
}

// after says that t is after the failure that the recording ends in.
func (r *Recording) after(t trace.Time) bool { return r.fatal >= 0 && t > r.fatal }

// Buffer is what is known of a buffer at any time.
func (r *Recording) Buffer(i int) Live {
	return Live{Buffer: &r.Timeline.Buffers[i], Index: i, Stack: r.stackOf(i), Verdict: r.judge.of(i), Phase: r.phases.of(i)}
}

// stackOf is the stack of a buffer's allocation.
func (r *Recording) stackOf(i int) int32 {
	b := &r.Timeline.Buffers[i]
	if b.Initial {
		return r.initial[b.Addr]
	}
	return r.Device.Events[b.Start].Stack
}

// Moment is the instant that was looked at.
type Moment struct {
	At trace.Time
	// Why is "out-of-memory", "peak" or "asked".
	Why string
	// Phase is what the program did then.
	Phase Phase
	// Stack is that of the latest request up to it, or trace.None.
	Stack int32
	// Failed is the request that failed at this instant, nil if none did.
	Failed *Request
	// Twin is Live.Twin of the request that failed.
	Twin string
}

// What the instant was chosen for.
const (
	WhyFailed = "out-of-memory"
	WhyPeak   = "peak"
	WhyAsked  = "asked"
)

// Request is a request that ran out of memory.
type Request struct {
	At         trace.Time
	Size       trace.Bytes // rounded, as the allocator looked for it
	Stream     uint64
	Stack      int32       // index into Trace.Stacks, or trace.None
	DriverFree trace.Bytes // what the driver reported free
	Fatal      bool        // nothing was allocated after it
}

func (r *Recording) moment(at trace.Time) (Moment, error) {
	failures := r.Device.Failures()
	m := Moment{At: at, Why: WhyAsked}
	switch {
	case at == Auto && len(failures.At) > 0:
		m.At, m.Why = failures.Last(), WhyFailed
	case at == Auto:
		m.At, m.Why = r.Timeline.PeakAllocated.At, WhyPeak
	case at < 0 || at >= r.Timeline.Events:
		return m, fmt.Errorf("expected an event from 0 to %d, found %d", r.Timeline.Events-1, at)
	}
	if _, ok := slices.BinarySearch(failures.At, m.At); ok {
		m.Why = WhyFailed
		e := &r.Device.Events[m.At]
		free, _ := r.Device.Room(e)
		m.Failed = &Request{At: m.At, Size: e.Size, Stream: e.Stream, Stack: e.Stack, DriverFree: free, Fatal: failures.FatalAt() == m.At}
	}
	m.Phase, m.Stack = r.phases.at(m.At)
	return m, nil
}
