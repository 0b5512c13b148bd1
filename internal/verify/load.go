package verify

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// loads checks the certificate and the peaks. They count the requests of the program, not
// the sizes of the slots, so that a wasteful plan cannot claim a large lower bound.
func (j *judge) loads() {
	d := j.d
	j.certificate(&d.Certificate)
	j.peak("allocated", d.PeakAllocated, func(s *planfile.Slot) uint64 { return s.RequestedEnd })
	j.peak("active", d.PeakActive, func(s *planfile.Slot) uint64 { return s.CompletedEnd })
}

// certificate proves the lower bound again: from the load at the time that it names, or
// by trying all layouts of the witness. The load at any time is a lower bound, even if it
// is not the largest.
func (j *judge) certificate(c *planfile.Certificate) {
	switch c.Kind {
	case planfile.BoundLoad:
		j.loadAt(c)
	case planfile.BoundWitness:
		j.witness(c)
	case planfile.BoundApart:
		j.apart()
		return
	default:
		j.violated(RuleCertificate, none, none, "bound of kind %d, expected 1 (load), 2 (witness) or 3 (streams apart)", c.Kind)
		return
	}
	j.gap()
}

// gap checks that the lower bound is not above the arena, and that the gap is the
// difference of the two.
func (j *judge) gap() {
	c, arena := &j.d.Certificate, j.d.ArenaBytes
	switch {
	case c.LowerBound > arena:
		j.violated(RuleCertificate, none, none, "lower bound of %d B above the arena of %d B", c.LowerBound, arena)
	case c.Gap != arena-c.LowerBound:
		j.violated(RuleCertificate, none, none, "gap of %d B, expected %d B: the arena of %d B less the lower bound of %d B", c.Gap, arena-c.LowerBound, arena, c.LowerBound)
	}
}

// loadAt checks that the lower bound is the load at the time that the certificate names.
func (j *judge) loadAt(c *planfile.Certificate) {
	load := uint64(0)
	for i := range j.d.Slots {
		if s := &j.d.Slots[i]; s.Start <= c.At && c.At < j.d.SlotEnd(i) {
			load = plus(load, needed(s.Requested))
		}
	}
	if load != c.LowerBound {
		j.violated(RuleCertificate, none, none, "lower bound of %d B at event %d, but %d B are live there", c.LowerBound, c.At, load)
	}
}

// peak checks a peak of the plan against its slots, live until the given end.
func (j *judge) peak(name string, claimed uint64, end func(*planfile.Slot) uint64) {
	all := make([]interval, len(j.d.Slots))
	for i := range all {
		s := &j.d.Slots[i]
		all[i] = interval{s.Start, end(s), needed(s.Requested)}
	}
	j.peakOf(name, claimed, all)
}

// peakOf checks a peak against the max load of intervals, which are by start.
func (j *judge) peakOf(name string, claimed uint64, all []interval) {
	load, at := maxLoad(all)
	if load != claimed {
		j.violated(RulePeak, none, none, "peak %s of %d B, but the most that is live is %d B, at event %d", name, claimed, load, at)
	}
}

// interval is a live range [start, end) of size bytes.
type interval struct{ start, end, size uint64 }

// maxLoad is the max load of intervals, which are by start, and the first time that has
// it.
func maxLoad(all []interval) (most, at uint64) {
	ends := slices.Clone(all)
	slices.SortFunc(ends, func(a, b interval) int { return cmp.Compare(a.end, b.end) })
	load, next := uint64(0), 0
	for _, i := range all {
		for ; ends[next].end <= i.start; next++ {
			load -= ends[next].size
		}
		if load = plus(load, i.size); load > most {
			most, at = load, i.start
		}
		if most == math.MaxUint64 {
			break // it cannot grow further, and load is no longer exact
		}
	}
	return most, at
}

// plus is a + b, or the largest uint64 if the sum is larger.
func plus(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
