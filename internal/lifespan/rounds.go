package lifespan

import (
	"cmp"
	"math"
	"slices"
)

// Believed is what the slots of a body would request at most if every pass had run as many
// rounds of its loops as the longest one, such as the tokens of a generation. sizes are the
// requested bytes by slot and pass, 0 in a pass that lacks the slot. The result is by slot, 0 if
// it is no more than was recorded. A slot is as much larger than the one a round before as it is
// in the longest pass: what keeps the tokens so far grows with each by as much, whatever the
// prompt. That holds for the last round of a shorter pass too, which would be a later one.
// Likewise if each micro-batch had had the lengths that any of them had (asOtherBatches).
func (b *Body) Believed(sizes [][]float64) []float64 {
	weak := make([]uint64, len(b.Slots))
	for i := range b.Slots {
		weak[i] = weakHash(b.Slots[i].Stream, lifetimeClass(b.Slots[i].RequestedEnd-b.Slots[i].Start))
	}
	all, limit := slices.Clone(sizes), b.episode(sizes)
	for from := 0; from < len(b.Slots); from++ {
		to := from
		for to < len(b.Slots) && b.Slots[to].Occurrences < b.Occurrences {
			to++
		}
		if to-from > limit {
			b.believe(all, sizes, weak, from, to)
		}
		from = max(from, to)
	}
	out := asOtherBatches(weak, sizes)
	for i := range out {
		if most := slices.Max(all[i]); most > max(out[i], slices.Max(sizes[i])) {
			out[i] = most
		}
	}
	return out
}

// episode is that of the shortest pass: fewer optional slots in a row are what data decides.
func (b *Body) episode(sizes [][]float64) int {
	lengths := make([]int, b.Occurrences)
	for _, s := range sizes {
		for j := range s {
			if s[j] > 0 {
				lengths[j]++
			}
		}
	}
	return episode(slices.Min(lengths))
}

// believe fills in believed sizes of the slots [from, to), if they are more rounds of what is
// before them, and of the round behind them: the last one of each pass may have been matched
// with the last one of the longest.
func (b *Body) believe(believed, sizes [][]float64, weak []uint64, from, to int) {
	n, period := repeated(weak, nil, from, to)
	if n == 0 {
		return
	}
	if n == to-from {
		n += asBefore(weak[to-period:min(to+period, len(weak))], period)
	}
	longest := passesByLength(sizes[from : from+n])
	for i := from; i < from+n; i++ {
		k := i - period
		of := slices.IndexFunc(longest, func(j int) bool { return sizes[i][j] > 0 && sizes[k][j] > 0 })
		if of < 0 || b.Slots[i].Stream != b.Slots[k].Stream {
			continue
		}
		j := longest[of]
		growth := sizes[i][j] - sizes[k][j]
		if math.Abs(growth) > nearRound*sizes[k][j] {
			continue
		}
		believed[i] = slices.Clone(sizes[i])
		for j, size := range believed[k] {
			if size > 0 {
				believed[i][j] = max(believed[i][j], size+growth)
			}
		}
	}
}

// nearRound is the share of its size by which a request may differ from the same one of the
// round before. One that differs by more is another one.
const nearRound = 1. / 8

// passesByLength are the passes, those with the most of these slots first.
func passesByLength(sizes [][]float64) []int {
	present := make([]int, len(sizes[0]))
	passes := make([]int, len(present))
	for j := range passes {
		passes[j] = j
		for i := range sizes {
			if sizes[i][j] > 0 {
				present[j]++
			}
		}
	}
	slices.SortStableFunc(passes, func(x, y int) int { return cmp.Compare(present[y], present[x]) })
	return passes
}
