package verify

import "github.com/stplan/stplan/internal/planfile"

// trials bounds the work of proving a witness: so many partial layouts. A
// witness that takes more proves nothing here.
const trials = 1 << 22

// witness proves a lower bound above the load: it tries every layout of the few
// slots that are said to need so many bytes.
func (j *judge) witness(c *planfile.Certificate) {
	if n := len(c.Witness); n == 0 || n > planfile.MaxWitness {
		j.violated(RuleCertificate, none, none, "a witness of %d slots, expected 1 to %d", n, planfile.MaxWitness)
		return
	}
	all := make([]interval, len(c.Witness))
	for i, k := range c.Witness {
		if int(k) >= len(j.d.Slots) || i > 0 && k <= c.Witness[i-1] {
			j.violated(RuleCertificate, none, none, "slot %d in the witness, expected ascending ones of %d", k, len(j.d.Slots))
			return
		}
		s := &j.d.Slots[k]
		all[i] = interval{s.Start, j.d.SlotEnd(int(k)), needed(s.Requested)}
	}
	switch fit, decided := fitBelow(all, c.LowerBound, trials); {
	case !decided:
		j.violated(RuleCertificate, none, none, "lower bound of %d B not proven: %d partial layouts of its witness are not all", c.LowerBound, trials)
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

// layer is a partial layout: what is placed, and of the rest the lowest offset
// above all placed ones that it shares an instant with.
type layer struct {
	placed uint32
	lowest [planfile.MaxWitness]uint64
}

// fitBelow says whether the intervals have a layout that ends below the height.
// decided is false where more than the given number of partial layouts would have
// to be tried.
//
// Take a layout with the least sum of offsets, and its intervals by offset, then
// by number. Each lies on the bottom or on an earlier one, for it could sink
// otherwise. So it is enough to place them in that order, each at its lowest
// offset, never below the one before; and never as high as the top that an
// interval which is still left would have in its own lowest place, for that one
// would come later, higher, and could sink.
func fitBelow(all []interval, height uint64, limit int) (fit, decided bool) {
	t := trial{all: all, height: height, left: limit}
	fit = t.extend(layer{}, 0, 0)
	return fit, fit || t.left > 0
}

// extend tries every next interval at from or above, at from itself only those
// numbered first or more.
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

// raise puts everything left that shares an instant with b above top, and says
// whether each instant still holds what is left of it.
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
