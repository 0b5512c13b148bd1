package lifespan

import "slices"

// variety is a variety of iterations: those that are nearly the same, whatever their sizes. One of a known
// variety is not matched with what only others do besides. An evaluation does much of what a step does,
// and steps matched with it would have slots of their own for what all steps have.
type variety struct {
	length int      // of the first one
	grams  []uint64 // of the first one, in order of their hashes
	has    []bool   // by element
}

// varietyShare is the share of the grams of an iteration that those of its variety have too. In the last one
// what the recording's end has cut off lives forever.
const varietyShare = 1. / 2

// mostVarieties bounds the varieties of about its length that an iteration is compared with, the latest
// ones first, and so the time. Steps, those with an evaluation and the last one are three.
const mostVarieties = 16

// varietyOf is the variety of an iteration, a new one if it is like none before. With experts,
// most iterations have one of their own. So have those with other numbers of rounds of a loop.
func (m *merged) varietyOf(tokens []token) *variety {
	grams := rolling(hashes(tokens, weakOf), min(maxGram, len(tokens)))
	slices.Sort(grams)
	compared := 0
	for _, v := range slices.Backward(m.varieties) {
		if max(v.length, len(tokens))-min(v.length, len(tokens)) >= leastEpisode {
			continue
		}
		if float64(common(v.grams, grams)) >= varietyShare*float64(len(grams)) {
			return v
		}
		if compared++; compared == mostVarieties {
			break
		}
	}
	v := &variety{length: len(tokens), grams: grams}
	m.varieties = append(m.varieties, v)
	return v
}

// note adds the elements of an iteration to its variety.
func (v *variety) note(elements []int32) {
	for _, e := range elements {
		if int(e) >= len(v.has) {
			v.has = append(v.has, make([]bool, int(e)+1-len(v.has))...)
		}
		v.has[e] = true
	}
}

// among lists the places of a sequence of elements that an iteration may have: all but runs of more than maxGram
// that no iteration of its variety has. Data decides shorter ones. The first of a variety may have all.
func (v *variety) among(order []int32) []int32 {
	places := make([]int32, 0, len(order))
	known := func(i int) bool { return i == len(order) || int(order[i]) < len(v.has) && v.has[order[i]] }
	for from := 0; from < len(order); {
		to := from + 1
		if !known(from) {
			for !known(to) {
				to++
			}
			if len(v.has) > 0 && to-from > maxGram {
				from = to
			}
		}
		for ; from < to; from++ {
			places = append(places, int32(from))
		}
	}
	return places
}

// common is the number of values that two lists in order have in common.
func common(a, b []uint64) int {
	n := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			n, i, j = n+1, i+1, j+1
		}
	}
	return n
}
