package verify

import "github.com/stplan/stplan/internal/planfile"

// trials is the largest number of partial layouts that the proof of a witness may try, so
// that a hostile plan cannot keep verify busy for ever. A bound that takes more counts as
// not proven.
const trials = 1 << 22

// witness proves a lower bound above the load: it tries all layouts of the slots of the
// witness, and none may end below the lower bound.
func (j *judge) witness(c *planfile.Certificate) {
	if n := len(c.Witness); n == 0 || n > planfile.MaxWitness {
		j.violated(RuleCertificate, none, none, "a witness of %d slots, expected 1 to %d", n, planfile.MaxWitness)
		return
	}
	all := make([]interval, len(c.Witness))
	for i, k := range c.Witness {
		if int(k) >= len(j.d.Slots) || i > 0 && k <= c.Witness[i-1] {
			j.violated(RuleCertificate, none, none, "slot %d in the witness, expected ascending indices below %d", k, len(j.d.Slots))
			return
		}
		s := &j.d.Slots[k]
		all[i] = interval{s.Start, j.d.SlotEnd(int(k)), needed(s.Requested)}
	}
	switch fit, decided := fitBelow(all, c.LowerBound, trials); {
	case !decided:
		j.violated(RuleCertificate, none, none, "lower bound of %d B not proven: its witness has more than %d partial layouts", c.LowerBound, trials)
	case fit:
		j.violated(RuleCertificate, none, none, "lower bound of %d B, but its witness of %d slots takes fewer", c.LowerBound, len(all))
	}
}

// trial is a search for a layout that ends below a height.
type trial struct {
	all    []interval
	height uint64
	left   int // partial layouts that may still be tried
}

// layer is a partial layout.
type layer struct {
	placed uint32 // bit i is set if interval i is placed
	// lowest is, for each interval that is not placed, the lowest offset above all placed
	// ones that it shares a time with.
	lowest [planfile.MaxWitness]uint64
}

// fitBelow says whether the intervals have a layout that ends below the height. decided
// is false if more than limit partial layouts would have to be tried.
//
// It does not try all layouts. Take a layout with the least sum of offsets, and its
// intervals by offset, then by number. Each lies at 0 or on top of an earlier one,
// because it could sink otherwise. So it is enough to place intervals in that order,
// each at its lowest offset and not below the one placed before. Nor is an interval
// placed as high as the top that another one that is left would have at its own lowest
// offset: that one would then come later, lie higher, and could sink.
func fitBelow(all []interval, height uint64, limit int) (fit, decided bool) {
	t := trial{all: all, height: height, left: limit}
	fit = t.extend(layer{}, 0, 0)
	return fit, fit || t.left > 0
}

// extend says whether the partial layout can be completed. The next interval lies at
// offset from or above, and at from itself its number is first or more.
func (t *trial) extend(l layer, from uint64, first int) bool {
	if t.left--; t.left <= 0 {
		return false
	}
	roof, rest := uint64(1<<63), 0
	for i, b := range t.all {
		if l.placed>>i&1 == 0 {
			roof = min(roof, l.lowest[i]+b.size)
			rest++
		}
	}
	if rest == 0 {
		return true
	}
	for i, b := range t.all {
		x := l.lowest[i]
		if l.placed>>i&1 == 1 || x >= roof || x < from || x == from && i < first {
			continue
		}
		next := l
		next.placed |= 1 << i
		if t.raise(&next, b, x+b.size) && t.extend(next, x, i+1) {
			return true
		}
	}
	return false
}

// raise moves everything left that shares a time with b above top. It returns whether at
// every time what is left there still fits below the height.
func (t *trial) raise(l *layer, b interval, top uint64) bool {
	if top >= t.height {
		return false
	}
	for i, c := range t.all {
		if c.start < b.end && b.start < c.end {
			l.lowest[i] = max(l.lowest[i], top)
		}
	}
	for i, at := range t.all {
		if l.placed>>i&1 == 1 {
			continue
		}
		sum, low := uint64(0), t.height
		for k, c := range t.all {
			if l.placed>>k&1 == 0 && c.start <= at.start && at.start < c.end {
				sum, low = plus(sum, c.size), min(low, l.lowest[k])
			}
		}
		if plus(low, sum) >= t.height {
			return false
		}
	}
	return true
}
