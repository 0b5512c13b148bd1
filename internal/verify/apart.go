package verify

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// apart proves a certificate of kind BoundApart: no byte is ever used by two streams, and
// the lower bound is the sum of the max loads of the streams.
func (j *judge) apart() {
	c := &j.d.Certificate
	if i, k, shared := j.sharedByStreams(); shared {
		j.violated(RuleApart, min(i, k), max(i, k), "%s and %s share bytes on two streams", j.slot(min(i, k)), j.slot(max(i, k)))
	}
	sum, at := j.streamLoads()
	if c.LowerBound != sum || c.At != at {
		j.violated(RuleCertificate, none, none, "lower bound of %d B at %d, but the streams apart need %d B, the largest of them at %d", c.LowerBound, c.At, sum, at)
		return
	}
	j.gap()
}

// sharedByStreams finds two slots of different streams that have a byte in common,
// whenever they are live. It visits the slots by offset. A slot shares a byte with an
// earlier one of another stream exactly if the highest end of those is above its
// offset.
func (j *judge) sharedByStreams() (i, k int, shared bool) {
	slots := j.d.Slots
	byOffset := make([]int, 0, len(slots))
	for i := range slots {
		if slots[i].Size > 0 {
			byOffset = append(byOffset, i)
		}
	}
	slices.SortFunc(byOffset, func(a, b int) int {
		return cmp.Or(cmp.Compare(slots[a].Offset, slots[b].Offset), cmp.Compare(a, b))
	})
	reach := func(i int) uint64 {
		if i == none {
			return 0
		}
		return slots[i].Offset + slots[i].Size
	}
	highest, other := none, none // other: the highest end on another stream than that of highest
	for _, i := range byOffset {
		foreign := highest
		if highest != none && slots[highest].Stream == slots[i].Stream {
			foreign = other
		}
		if slots[i].Offset < reach(foreign) {
			return foreign, i, true
		}
		switch {
		case reach(i) > reach(highest):
			if foreign == highest {
				other = highest
			}
			highest = i
		case foreign == highest && reach(i) > reach(other):
			other = i
		}
	}
	return none, none, false
}

// streamLoads is the sum of the max loads of the streams over all phases, and the first
// plan time at which the stream with the largest max load has it, the first stream among
// equals.
func (j *judge) streamLoads() (sum, at uint64) {
	needs := j.needs()
	residents := make([]uint64, len(j.d.Streams))
	for i, s := range j.d.Slots {
		if s.Flags&planfile.SlotResident != 0 {
			residents[s.Stream] = plus(residents[s.Stream], needs[i])
		}
	}
	kept := make([]uint64, len(j.d.Streams))
	for _, i := range j.keptCells() {
		kept[j.d.Slots[i].Stream] = plus(kept[j.d.Slots[i].Stream], needs[i])
	}
	most, first := make([]uint64, len(j.d.Streams)), make([]uint64, len(j.d.Streams))
	for p := range j.stages {
		st := &j.stages[p]
		for s, own := range j.byStream(st, needs) {
			load, when := maxLoad(own)
			if st.body {
				load = plus(load, residents[s]) // in the prologue they have starts
			}
			if st.interlude {
				load = plus(load, kept[s])
			}
			if load > most[s] {
				most[s], first[s] = load, st.base+when
			}
		}
	}
	largest := uint64(0)
	for s, n := range most {
		if sum = plus(sum, n); n > largest {
			largest, at = n, first[s]
		}
	}
	return sum, at
}

// byStream is the live ranges of the slots of a phase, by stream.
func (j *judge) byStream(st *stage, needs []uint64) [][]interval {
	all := make([][]interval, len(j.d.Streams))
	for i := st.first; i < st.end; i++ {
		if s := &j.d.Slots[i]; s.Flags&ownsNothing == 0 {
			all[s.Stream] = append(all[s.Stream], interval{s.Start, j.endIn(st, i), needs[i]})
		}
	}
	return all
}
