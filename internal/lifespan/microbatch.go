package lifespan

import (
	"math"
	"slices"
)

const (
	// batchGram is the number of slots in a row by which micro-batches are recognised. Fewer
	// occur in several layers of one.
	batchGram = 32
	// mostBatches is the number of micro-batches of an iteration that are recognised. It
	// bounds the time; more of them rarely lack a length that another one had.
	mostBatches = 64
	// unevenBatches is the share by which a micro-batch may be longer or shorter than another one, in
	// slots: the first one makes the gradients.
	unevenBatches = 1. / 8
	// batchRow is the number of slots in a row that have to be alike. Fewer are by chance.
	batchRow = 8
	// batchRange is how many times as large as its least one the largest slot of a line may be. Slots that differ by
	// more are others.
	batchRange = 4
)

// asOtherBatches is what slots would request at most if each micro-batch of an iteration had had the lengths
// that any of them had: which of them meets which length is chance. sizes are as in Believed, and weak are
// hashes of the slots without their sizes. The result is by slot, 0 if it is no more than was recorded.
func asOtherBatches(weak []uint64, sizes [][]float64) []float64 {
	out, line := make([]float64, len(sizes)), positions(len(sizes))
	starts := batches(weak)
	for m := 1; m < len(starts); m++ {
		joinBatches(line, weak, sizes, starts[m-1], starts[m], batchEnd(starts, m, len(weak)))
	}
	least, most := make([]float64, len(sizes)), make([]float64, len(sizes))
	for i := range sizes {
		of, size := rootOf(line, int32(i)), slices.Max(sizes[i])
		if most[of] == 0 || size < least[of] {
			least[of] = size
		}
		most[of] = max(most[of], size)
	}
	for i := range sizes {
		of := rootOf(line, int32(i))
		if most[of] > slices.Max(sizes[i]) && most[of] <= batchRange*least[of] {
			out[i] = most[of]
		}
	}
	return out
}

// batchEnd is where the micro-batch that begins at starts[m] ends: where the next one begins, and after the
// last one what may be as long as the longest.
func batchEnd(starts []int, m, end int) int {
	if m+1 < len(starts) {
		return starts[m+1]
	}
	longest := 0
	for k := 1; k < len(starts); k++ {
		longest = max(longest, starts[k]-starts[k-1])
	}
	return min(end, starts[m]+longest)
}

// batches are where the micro-batches of an iteration begin, by their order; none if it has fewer than
// two. Rows of slots that occur as often, evenly spaced, show them; of several numbers it is the one
// whose repetitions are the longest, since layers repeat themselves within.
func batches(weak []uint64) []int {
	if len(weak) < 2*batchGram {
		return nil
	}
	at := map[uint64][]int{}
	hashes := rolling(weak, batchGram)
	for i, h := range hashes {
		if len(at[h]) <= mostBatches {
			at[h] = append(at[h], i)
		}
	}
	shown := make([]int, mostBatches+1) // rows by how often they occur
	var first [mostBatches + 1][]int
	for i, h := range hashes {
		p := at[h]
		if p[0] != i || len(p) < 2 || len(p) > mostBatches || !evenlySpaced(p) {
			continue
		}
		if shown[len(p)]++; first[len(p)] == nil {
			first[len(p)] = p
		}
	}
	var best []int
	for n, p := range first {
		if shown[n] >= batchGram && (best == nil || p[1]-p[0] > best[1]-best[0]) {
			best = p
		}
	}
	return best
}

func evenlySpaced(p []int) bool {
	least, most := p[1]-p[0], p[1]-p[0]
	for i := 2; i < len(p); i++ {
		least, most = min(least, p[i]-p[i-1]), max(most, p[i]-p[i-1])
	}
	return least >= batchGram && float64(most-least) <= unevenBatches*float64(most)
}

// joinBatches makes one line of the slots of two micro-batches that are alike, [a, b) and [b, end), if their sizes
// do not follow one another.
func joinBatches(line []int32, weak []uint64, sizes [][]float64, a, b, end int) {
	for _, m := range diff(weak[a:b], weak[b:end]) {
		if m.n < batchRow {
			continue
		}
		for k := range m.n {
			i, j := a+m.i+k, b+m.j+k
			if followOne(sizes[i], sizes[j]) {
				continue
			}
			x, y := rootOf(line, int32(i)), rootOf(line, int32(j))
			line[max(x, y)] = min(x, y)
		}
	}
}

// followOne says whether the sizes of two slots have the same ratio in all passes that have both, as layers of one
// batch do. So it is if fewer than two passes do.
func followOne(x, y []float64) bool {
	ratio := 0.0
	for j := range x {
		if x[j] == 0 || y[j] == 0 {
			continue
		}
		if r := x[j] / y[j]; ratio == 0 {
			ratio = r
		} else if math.Abs(r-ratio) > nearLaw*ratio {
			return false
		}
	}
	return true
}

// rootOf is the first slot of a line of slots, each of which names an earlier one of it.
func rootOf(line []int32, i int32) int32 {
	for line[i] != i {
		line[i] = line[line[i]]
		i = line[i]
	}
	return i
}
