package page

import (
	"math/bits"
	"slices"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/peak"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// Bound is why no plan can be smaller, and when.
type Bound struct {
	Kind  string `json:"kind"` // "load", "witness" or "apart"
	Bytes uint64 `json:"bytes"`
	// Event is the time in the recording. In a plan of merged iterations it is that of
	// the iteration with the most memory there.
	Event   int64    `json:"event"`
	Phase   string   `json:"phase"`
	Witness int      `json:"witness"` // slots that need that many bytes by themselves
	slots   []uint32 // the witness
}

// has says that a slot is of the witness.
func (b *Bound) has(slot int32) bool {
	_, ok := slices.BinarySearch(b.slots, uint32(max(0, slot)))
	return ok && slot >= 0
}

var boundKinds = map[planfile.BoundKind]string{
	planfile.BoundLoad: "load", planfile.BoundWitness: "witness", planfile.BoundApart: "apart",
}

func boundOf(dev *planfile.Device, r *peak.Recording, slots []int32) Bound {
	c := dev.Certificate
	b := Bound{Kind: boundKinds[c.Kind], Bytes: c.LowerBound, Witness: len(c.Witness), slots: c.Witness}
	load := r.Timeline.Load(lifespan.EndRequested)
	switch {
	case c.Kind == planfile.BoundWitness:
		b.Event = int64(b.meeting(r.Timeline, slots))
	case dev.Mode == planfile.ModePeriodic:
		b.Event = int64(planEvent(dev, load, slots, r.Timeline))
	default:
		b.Event = int64(c.At)
	}
	b.Event = min(max(0, b.Event), int64(len(load))-1)
	b.Phase = r.PhaseAt(trace.Time(b.Event)).Title(r.Iterations.Count)
	return b
}

// meeting is the event at which the most bytes of the witness are live.
func (b *Bound) meeting(tl *lifespan.Timeline, slots []int32) trace.Time {
	change := make(lifespan.Profile, tl.Events+2)
	for i := range tl.Buffers {
		if u := &tl.Buffers[i]; b.has(slots[i]) {
			change[u.Start] += u.Size
			change[u.RequestedEnd] -= u.Size
		}
	}
	for t := range change[1:] {
		change[t+1] += change[t]
	}
	return change.Peak().At
}

// planEvent finds the certificate's plan time in the recording. Plan time puts the phases
// one after the other: the prologue in events, the bodies in allocations.
func planEvent(dev *planfile.Device, load lifespan.Profile, slots []int32, tl *lifespan.Timeline) trace.Time {
	at, x := dev.Certificate.At, 0
	for x+1 < len(dev.Phases) && at >= dev.Phases[x].Length {
		at -= dev.Phases[x].Length
		x++
	}
	if x == 0 {
		return trace.Time(at)
	}
	entering := len(dev.PhaseSlots(x)) - len(dev.PhaseAllocations(x))
	wanted := int32(dev.Phases[x].FirstSlot) + int32(entering) + int32(at)
	best, most := trace.Time(0), trace.Bytes(-1)
	next, _ := slices.BinarySearchFunc(tl.Buffers, dev.SteadyStart, func(b lifespan.Buffer, t uint64) int { return int(int64(b.Start) - int64(t)) })
	for _, pass := range dev.Passes {
		count := 0
		for _, word := range pass.Present {
			count += bits.OnesCount64(word)
		}
		if int(pass.Phase) == x {
			when := trace.Time(pass.FirstEvent)
			for i := next; i < min(next+count, len(slots)) && slots[i] <= wanted; i++ {
				when = tl.Buffers[i].Start
			}
			if int(when) < len(load) && load[when] > most {
				best, most = when, load[when]
			}
		}
		next += count
	}
	return best
}
