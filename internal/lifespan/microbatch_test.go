package lifespan

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// microBatches makes the hashes and sizes of a body of these many micro-batches, whose lengths are by pass and
// micro-batch. Each has layers that do the same, after what it does once; the first also makes gradients.
func microBatches(lengths [][]float64, layers, gradients int) (weak []uint64, sizes [][]float64) {
	batches := len(lengths[0])
	for m := range batches {
		add := func(kind uint64, bytes func(length float64) float64) {
			weak = append(weak, kind)
			size := make([]float64, len(lengths))
			for pass := range lengths {
				size[pass] = bytes(lengths[pass][m])
			}
			sizes = append(sizes, size)
		}
		for i := range 60 {
			add(uint64(1000+i), func(length float64) float64 { return float64(i+1) * length })
		}
		for layer := range layers {
			for i := range 12 {
				add(uint64(2000+i), func(length float64) float64 { return float64(layer+i+1) * length })
			}
			add(3000, func(float64) float64 { return 4096 })
			if m == 0 && layer < gradients {
				add(4000, func(float64) float64 { return 8192 })
			}
		}
	}
	return weak, sizes
}

// TestMicroBatches: each slot is believed to request what its line of the program does in the longest micro-batch of
// any pass, and no more. What does not vary stays as it was recorded.
func TestMicroBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for _, c := range []struct{ passes, batches, layers, gradients int }{{2, 2, 4, 0}, {3, 2, 6, 6}, {4, 8, 3, 3}, {2, 5, 12, 4}} {
		lengths, longest := make([][]float64, c.passes), 0.0
		for pass := range lengths {
			for range c.batches {
				lengths[pass] = append(lengths[pass], float64(100+rng.IntN(250)))
			}
			longest = max(longest, slices.Max(lengths[pass]))
		}
		weak, sizes := microBatches(lengths, c.layers, c.gradients)
		believed := asOtherBatches(weak, sizes)
		all := slices.Repeat([]float64{longest}, c.batches)
		_, most := microBatches([][]float64{all}, c.layers, c.gradients)
		short := 0
		for i := range sizes {
			got := max(believed[i], slices.Max(sizes[i]))
			if got > most[i][0] {
				t.Fatalf("%+v: slot %d is believed to request %v B, expected %v at most", c, i, got, most[i][0])
			}
			if got < most[i][0] {
				short++
			}
			if believed[i] > 0 && (weak[i] >= 3000 || believed[i] <= slices.Max(sizes[i])) {
				t.Fatalf("%+v: slot %d, which requested %v B, is believed to request %v", c, i, slices.Max(sizes[i]), believed[i])
			}
		}
		if short > len(sizes)/20 {
			t.Errorf("%+v: %d of %d slots are smaller than in the longest micro-batch, expected a twentieth", c, short, len(sizes))
		}
	}
}

// TestMicroBatchesThatFollowOneLength: if all micro-batches of a pass have one length, or none, nothing is believed. So it is of
// layers, which have the sizes of one batch and are like one another too.
func TestMicroBatchesThatFollowOneLength(t *testing.T) {
	for _, lengths := range [][][]float64{
		{{200}, {300}, {150}},
		{{200, 100}, {300, 150}, {150, 75}},
		{{200, 300}},
		{{200, 200, 200}, {200, 200, 200}},
	} {
		weak, sizes := microBatches(lengths, 8, 0)
		if believed := asOtherBatches(weak, sizes); slices.Max(believed) > 0 {
			t.Errorf("lengths %v: slot %d is believed to request more than was recorded", lengths, slices.Index(believed, slices.Max(believed)))
		}
	}
}

// TestNoMicroBatches: a body that is shorter than what shows them, or that never repeats itself.
func TestNoMicroBatches(t *testing.T) {
	for _, n := range []int{0, 1, batchGram, 2 * batchGram, 500} {
		weak, sizes := make([]uint64, n), make([][]float64, n)
		for i := range weak {
			weak[i], sizes[i] = uint64(i), []float64{float64(i), float64(2 * i)}
		}
		if got := batches(weak); got != nil {
			t.Errorf("%d slots: micro-batches begin at %v", n, got)
		}
		if believed := asOtherBatches(weak, sizes); len(believed) != n || n > 0 && slices.Max(believed) > 0 {
			t.Errorf("%d slots: believed %v", n, believed)
		}
	}
}
