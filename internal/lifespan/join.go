package lifespan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// Part is one of the recordings that Join makes one of.
type Part struct {
	Name       string // for messages
	Device     *trace.Device
	Timeline   *Timeline
	Iterations Iterations

	order []uint64 // what streams says, once it has been asked
}

// Joined is a made-up recording of several.
type Joined struct {
	Device     *trace.Device
	Iterations Iterations
	Begins     []trace.Time // where the iterations of each part begin: 0 for the first
}

// liveShare is the divisor of the bytes live between two iterations that recordings of the
// same program may differ by. Weights and the optimizer's state are the same in all runs;
// inputs and outputs that lie there are less. Another model, optimizer or number of ranks
// changes more.
const liveShare = 16

// Join makes one recording of several of the same program: the first up to the end of its
// last iteration, and then the steady iterations of the others. What an iteration hands to
// the next one is freed where that one freed it. If the two are of different recordings,
// the buffers handed on are paired in order; if that does not work out, they are freed
// between the two. Streams are the same if they were first used in the same order. Only the
// first part has its segments and annotations, but for those of exchanges, which all have.
//
// It is an error, which names the part, if the recordings do not fit together: if
// iterations were found in another way or none are steady, if another number of streams
// was used, if only some recordings have completed frees, or if the bytes live before the
// first steady iteration differ by more than 1/16.
func Join(parts []Part) (*Joined, error) {
	first := &parts[0]
	if first.Iterations.SteadyCount == 0 {
		return nil, fmt.Errorf("%s: device %d: no steady iterations", first.Name, first.Device.Ordinal)
	}
	j := newJoiner(first)
	for i := range parts[1:] {
		p := &parts[i+1]
		if err := p.fits(first); err != nil {
			return nil, err
		}
		j.append(p)
	}
	return &j.out, nil
}

// fits says why p does not fit to the first part.
func (p *Part) fits(first *Part) error {
	bad := func(what string, expected, found any) error {
		return fmt.Errorf("%s: device %d: does not fit to %s: %s: expected %v, found %v", p.Name, p.Device.Ordinal, first.Name, what, expected, found)
	}
	live, own := first.between(), p.between()
	switch {
	case p.Iterations.SteadyCount == 0:
		return bad("steady iterations", "at least 1", 0)
	case p.Iterations.Source != first.Iterations.Source:
		return bad("iterations", "from "+first.Iterations.Source, "from "+p.Iterations.Source)
	case len(first.streams()) != len(p.streams()):
		return bad("streams", len(first.streams()), len(p.streams()))
	case first.completes() != p.completes():
		return bad("completed frees recorded", first.completes(), p.completes())
	case max(live-own, own-live) > live/liveShare:
		return bad("bytes live before the first steady iteration", fmt.Sprintf("%d, or 1/%d more or less", live, liveShare), own)
	}
	return nil
}

// between is the number of bytes live before the first steady iteration.
func (p *Part) between() trace.Bytes {
	var sum trace.Bytes
	for i := range p.Timeline.Buffers {
		if b := &p.Timeline.Buffers[i]; b.Start < p.Iterations.SteadyStart && b.RequestedEnd > p.Iterations.SteadyStart {
			sum += b.Size
		}
	}
	return sum
}

// streams are the streams in the order of their first use.
func (p *Part) streams() []uint64 {
	if p.order != nil {
		return p.order
	}
	for i := range p.Timeline.Buffers {
		if s := p.Timeline.Buffers[i].Stream; !slices.Contains(p.order, s) {
			p.order = append(p.order, s)
		}
	}
	return p.order
}

// completes says whether the recording has free_completed events.
func (p *Part) completes() bool {
	return slices.ContainsFunc(p.Device.Events, func(e trace.Event) bool { return e.Action == trace.ActionFreeCompleted })
}

// end is where the last iteration ends.
func (p *Part) end() trace.Time { return p.Iterations.Starts[p.Iterations.Count] }

// crossing are the buffers that the iteration before time t hands on, which begins at from.
func (p *Part) crossing(from, t trace.Time) []int {
	var out []int
	for i := p.Timeline.bufferAt(from); i < p.Timeline.bufferAt(t); i++ {
		if b := &p.Timeline.Buffers[i]; !b.Initial && b.RequestedEnd >= t {
			out = append(out, i)
		}
	}
	return out
}

// joiner appends parts to a recording.
type joiner struct {
	out       Joined
	completes bool
	streams   []uint64
	next      uint64 // the next new address
	// handed are the buffers that the last iteration hands on, and pending those whose
	// free has yet to complete.
	handed    []handed
	pending   []pending
	acts      []joinedAct
	exchanges int // so far
}

// handed is a buffer that lives beyond the end of the last iteration.
type handed struct {
	addr   uint64
	stream uint64
}

// pending is a buffer whose free completes this many events after the last iteration.
type pending struct {
	addr  uint64
	after trace.Time
}

// joinedAct is an event and its time, counted in events of its recording from where the
// part's iterations begin.
type joinedAct struct {
	at    trace.Time
	event trace.Event
}

func newJoiner(p *Part) *joiner {
	j := &joiner{completes: p.completes(), streams: p.streams()}
	end := p.end()
	j.out.Device = &trace.Device{Ordinal: p.Device.Ordinal, Initial: p.Device.Initial, Events: slices.Clone(p.Device.Events[:end])}
	for _, a := range p.Device.Annotations {
		if a.At <= end && !a.OfExchange() {
			j.out.Device.Annotations = append(j.out.Device.Annotations, a)
		}
	}
	j.out.Iterations = p.Iterations
	j.out.Iterations.Starts = slices.Clone(p.Iterations.Starts)
	j.out.Begins = []trace.Time{0}
	for i := range p.Timeline.Buffers {
		b := &p.Timeline.Buffers[i]
		j.next = max(j.next, b.Addr+uint64(b.Size))
	}
	addresses := map[int]uint64{}
	for i := range p.Timeline.Buffers {
		addresses[i] = p.Timeline.Buffers[i].Addr
	}
	j.leave(p, addresses)
	j.tell(p, 0, func(t trace.Time) trace.Time { return t })
	return j
}

// tell adds the exchanges that begin in a part's iterations from a time on. What is awaited later is so at
// the end of these.
func (j *joiner) tell(p *Part, from trace.Time, place func(trace.Time) trace.Time) {
	d, end := j.out.Device, p.end()
	for _, e := range p.Timeline.Exchanges {
		if e.Begins < from || e.Begins >= end {
			continue
		}
		told := trace.Exchange{Begins: place(e.Begins)}
		for _, w := range e.Awaits {
			if i := slices.Index(p.streams(), w.Stream); i >= 0 {
				told.Awaits = append(told.Awaits, trace.Await{Stream: j.streams[i], At: place(min(w.At, end))})
			}
		}
		j.exchanges++
		d.Annotations = append(d.Annotations, told.Annotations(j.exchanges)...)
	}
	slices.SortStableFunc(d.Annotations, func(a, b trace.Annotation) int { return cmp.Compare(a.At, b.At) })
}

// leave notes what the last iteration of a part hands on.
func (j *joiner) leave(p *Part, addresses map[int]uint64) {
	end := p.end()
	for i, addr := range addresses {
		if b := &p.Timeline.Buffers[i]; b.Start < end && b.RequestedEnd < end && b.CompletedEnd >= end && j.completes {
			j.pending = append(j.pending, pending{addr, b.CompletedEnd - end})
		}
	}
	slices.SortFunc(j.pending, func(a, b pending) int { return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(a.addr, b.addr)) })
	for _, i := range p.crossing(p.Iterations.Starts[p.Iterations.Count-1], end) {
		j.handed = append(j.handed, handed{addresses[i], j.stream(p, p.Timeline.Buffers[i].Stream)})
	}
}

// stream is the first part's stream for one of p.
func (j *joiner) stream(p *Part, s uint64) uint64 { return j.streams[slices.Index(p.streams(), s)] }

// append adds the steady iterations of a part.
func (j *joiner) append(p *Part) {
	from, end := p.Iterations.SteadyStart, p.end()
	first := p.Iterations.Count - p.Iterations.SteadyCount
	entering := p.crossing(p.Iterations.Starts[max(0, first-1)], from)
	j.acts = j.acts[:0]
	for _, q := range j.pending {
		j.add(min(q.after, end-from-1), trace.ActionFreeCompleted, q.addr, 0, 0)
	}
	j.receive(p, entering, from, end)
	j.pending, j.handed = nil, nil
	addresses := map[int]uint64{}
	for i := p.Timeline.bufferAt(from); i < p.Timeline.bufferAt(end); i++ {
		b := &p.Timeline.Buffers[i]
		if b.Initial {
			continue
		}
		addresses[i] = j.next
		j.next += uint64(b.Size)
		j.add(b.Start-from, trace.ActionAlloc, addresses[i], b.Requested, j.stream(p, b.Stream))
		j.end(b, addresses[i], from, end)
	}
	j.leave(p, addresses)
	j.flush(p, from)
}

// receive frees what was handed on where the part freed what its own iteration before
// handed on. What the part never freed stays, such as a loss in a list.
func (j *joiner) receive(p *Part, entering []int, from, end trace.Time) {
	fit := len(entering) == len(j.handed)
	for k := 0; fit && k < len(entering); k++ {
		fit = j.handed[k].stream == j.stream(p, p.Timeline.Buffers[entering[k]].Stream)
	}
	for k, h := range j.handed {
		if fit {
			j.end(&p.Timeline.Buffers[entering[k]], h.addr, from, end)
			continue
		}
		j.add(0, trace.ActionFreeRequested, h.addr, 0, 0)
		if j.completes {
			j.add(0, trace.ActionFreeCompleted, h.addr, 0, 0)
		}
	}
}

// end frees a buffer that is part of [from, end) at an address, as far as that goes.
func (j *joiner) end(b *Buffer, addr uint64, from, end trace.Time) {
	if b.RequestedEnd >= end {
		return
	}
	j.add(b.RequestedEnd-from, trace.ActionFreeRequested, addr, 0, 0)
	if j.completes && b.CompletedEnd < end {
		j.add(b.CompletedEnd-from, trace.ActionFreeCompleted, addr, 0, 0)
	}
}

func (j *joiner) add(at trace.Time, action trace.Action, addr uint64, size trace.Bytes, stream uint64) {
	j.acts = append(j.acts, joinedAct{at, trace.Event{
		Action: action, Addr: addr, Size: size, Stream: stream,
		Stack: trace.None, UserMetadata: trace.None, CompileContext: trace.None, Pool: -1,
	}})
}

// flush writes the events of a part, and where its iterations end.
func (j *joiner) flush(p *Part, from trace.Time) {
	slices.SortStableFunc(j.acts, func(a, b joinedAct) int { return cmp.Compare(a.at, b.at) })
	it, d := &j.out.Iterations, j.out.Device
	base := trace.Time(len(d.Events))
	j.out.Begins = append(j.out.Begins, base)
	for _, a := range j.acts {
		d.Events = append(d.Events, a.event)
	}
	place := func(t trace.Time) trace.Time {
		n, _ := slices.BinarySearchFunc(j.acts, t-from, func(a joinedAct, t trace.Time) int { return cmp.Compare(a.at, t) })
		return base + trace.Time(n)
	}
	for i := p.Iterations.Count - p.Iterations.SteadyCount; i < p.Iterations.Count; i++ {
		it.Starts = append(it.Starts, place(p.Iterations.Starts[i+1]))
	}
	j.tell(p, from, place)
	it.Count += p.Iterations.SteadyCount
	it.SteadyCount += p.Iterations.SteadyCount
}

// Prologue is the number of allocations before the first steady iteration.
func (p *Part) Prologue() int { return p.Timeline.bufferAt(p.Iterations.SteadyStart) }
