//go:build cgo

package cuda

import (
	"math/rand/v2"
	"testing"
)

const poolMiB = 1 << 20

// pool is a device without a plan, whose granules are those of CUDA.
func pool(t *testing.T) *Device {
	t.Helper()
	d, err := Open(nil, 0, Options{Capacity: 1 << 40, Granularity: 2 * poolMiB, Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func mustMalloc(t *testing.T, d *Device, size uint64) uint64 {
	t.Helper()
	at, _, err := d.Malloc(size, 0)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func mustFree(t *testing.T, d *Device, at uint64) {
	t.Helper()
	if err := d.Free(at, 0); err != nil {
		t.Fatal(err)
	}
}

// TestLargeBlocksGoLow: of two free ranges that hold a large request it gets the lower one,
// although the other one fits better. A small request gets the one that fits best, and so
// does every request if memory does not move.
func TestLargeBlocksGoLow(t *testing.T) {
	for _, c := range []struct {
		unit  uint64
		still bool
		want  int // the range that it gets
	}{{4 * poolMiB, false, 0}, {4 * poolMiB, true, 1}, {16 << 10, false, 1}} {
		d := pool(t)
		if c.still {
			d.StopMoving()
		}
		low := mustMalloc(t, d, 4*c.unit)
		mustMalloc(t, d, c.unit)
		high := mustMalloc(t, d, 2*c.unit)
		mustMalloc(t, d, c.unit)
		mustFree(t, d, low)
		mustFree(t, d, high)
		if got, want := mustMalloc(t, d, 2*c.unit), []uint64{low, high}[c.want]; got != want {
			t.Errorf("moving off: %t: %d B are at %#x, expected %#x of %#x and %#x", c.still, 2*c.unit, got, want, low, high)
		}
	}
}

// TestBlocksOfWholeGranulesMove: blocks of a few whole granules lie on these although smaller ones come in between, so
// all of their memory moves when they are free.
func TestBlocksOfWholeGranulesMove(t *testing.T) {
	const count, granule, between = 16, 2 * poolMiB, poolMiB / 2
	for _, size := range []uint64{2 * granule, 4 * granule, 16 * granule} {
		d := pool(t)
		var free []uint64
		for range count {
			mustMalloc(t, d, between)
			free = append(free, mustMalloc(t, d, size))
		}
		for _, at := range free {
			mustFree(t, d, at)
		}
		mustMalloc(t, d, count*size)
		if got, want := d.Counters().PeakReserved, count*(size+between); got != want {
			t.Errorf("blocks of %d B: %d B reserved at most, expected the %d that were allocated", size, got, want)
		}
	}
}

// TestHalvesFitWhereAWholeWas: once a request has been seen of which two take more than one twice as large, one of
// those leaves room for both. It is not counted for more than it asked for.
func TestHalvesFitWhereAWholeWas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		half := 256<<10 + 1 + random.Uint64N(16*poolMiB)
		d := pool(t)
		mustFree(t, d, mustMalloc(t, d, half))
		whole := mustMalloc(t, d, 2*half)
		behind := mustMalloc(t, d, 2*half)
		if got, want := d.Counters().AllocatedBytes, 2*up(2*half); got != want {
			t.Fatalf("two of %d B: %d B counted, expected %d", 2*half, got, want)
		}
		mustFree(t, d, whole)
		for i := range uint64(2) {
			if got, want := mustMalloc(t, d, half), whole+i*up(half); got != want {
				t.Fatalf("half %d of %d B is at %#x, expected %#x, between %#x and %#x", i, 2*half, got, want, whole, behind)
			}
		}
		if got, want := d.Counters().AllocatedBytes, 2*up(half)+up(2*half); got != want {
			t.Fatalf("two of %d B and one of %d: %d B counted, expected %d", half, 2*half, got, want)
		}
	}
}

// TestAnyLengthReservesAsEvenOnes: made-up finetunings whose lengths are any numbers reserve about as much of what they
// allocate as those whose lengths are multiples of 8. For such lengths no half ends within an alignment.
func TestAnyLengthReservesAsEvenOnes(t *testing.T) {
	const seeds = 24
	var excess [2]float64
	for i, multiple := range []int{1, 8} {
		for seed := range uint64(seeds) {
			d := pool(t)
			finetune(t, d, rand.New(rand.NewPCG(seed, 0)), multiple)
			c := d.Counters()
			excess[i] += (float64(c.PeakReserved)/float64(c.PeakAllocated) - 1) / seeds
		}
	}
	t.Logf("reserved beyond what is allocated: %.2f %% with any lengths, %.2f %% with multiples of 8", 100*excess[0], 100*excess[1])
	if excess[0] > excess[1]+0.01 {
		t.Errorf("any lengths: %.4f of what is allocated is reserved, expected 0.01 more than the %.4f of multiples of 8 at most", 1+excess[0], 1+excess[1])
	}
}

// finetune makes the requests of 24 steps of two micro-batches: layers keep activations in two bytes a number, and
// compute in four.
func finetune(t *testing.T, d *Device, random *rand.Rand, multiple int) {
	width := []int{320, 480, 576, 896}[random.IntN(4)]
	layers := []int{12, 20, 28}[random.IntN(3)]
	rows := []int{2, 3, 4, 8}[random.IntN(4)]
	for range 4 * layers {
		mustMalloc(t, d, uint64(width*width*2))
	}
	malloc := func(halves, half uint64) uint64 { return mustMalloc(t, d, halves*half) }
	for range 48 {
		length := (200 + random.IntN(1300)) / multiple * multiple
		half := uint64(rows * length * width * 2)
		type block struct{ at, gradient uint64 }
		var kept []block
		x := malloc(2, half)
		for range layers {
			norm := malloc(2, half)
			kept = append(kept, block{malloc(1, half), 2})
			mustFree(t, d, norm)
			queries := malloc(3, half)
			kept = append(kept, block{malloc(1, half), 2})
			mustFree(t, d, queries)
			kept = append(kept, block{malloc(4, half), 8})
			mustFree(t, d, malloc(8, half))
			y := malloc(2, half)
			kept = append(kept, block{malloc(1, half), 2})
			mustFree(t, d, x)
			x = y
		}
		for i := len(kept) - 1; i >= 0; i-- {
			gradient := malloc(kept[i].gradient, half)
			mustFree(t, d, kept[i].at)
			mustFree(t, d, gradient)
		}
		mustFree(t, d, x)
	}
}

// TestManyFreeRangesBoundTheSearch: with more ranges that fit than are looked at, a request
// still gets one of those, and nothing new is reserved.
func TestManyFreeRangesBoundTheSearch(t *testing.T) {
	const ranges, size = 300, 4 * poolMiB
	d := pool(t)
	var free []uint64
	for i := range uint64(ranges) {
		free = append(free, mustMalloc(t, d, size+i*512))
		mustMalloc(t, d, size)
	}
	for _, at := range free {
		mustFree(t, d, at)
	}
	reserved := d.Counters().PeakReserved
	random := rand.New(rand.NewPCG(1, 0))
	for range ranges / 2 {
		mustMalloc(t, d, size-random.Uint64N(size/2))
	}
	if got := d.Counters().PeakReserved; got != reserved {
		t.Errorf("%d B reserved at most, expected %d as before: what was free holds every request", got, reserved)
	}
}

// TestLittleIsAddedBeforeMuchMoves: a program whose layers each leave a block where the next
// layer's large ones have to be moves memory in each of them, until it has a little more than
// it allocates. It gets that before it has moved half of its memory, and it stays below 1.5 %.
func TestLittleIsAddedBeforeMuchMoves(t *testing.T) {
	const layers = 400
	for _, c := range []struct{ kept, passing uint64 }{{64 * poolMiB, 40 * poolMiB}, {64 * poolMiB, 96 * poolMiB}, {100 * poolMiB, 96 * poolMiB}} {
		d := pool(t)
		for range layers {
			first, second := mustMalloc(t, d, c.passing), mustMalloc(t, d, c.passing)
			mustMalloc(t, d, c.kept)
			mustFree(t, d, first)
			third := mustMalloc(t, d, c.passing+c.kept)
			mustFree(t, d, second)
			mustFree(t, d, third)
		}
		got := d.Counters()
		if got.MovedBytes >= got.PeakReserved/2 {
			t.Errorf("%d B kept of a layer: %d B moved, expected less than half of the %d reserved", c.kept, got.MovedBytes, got.PeakReserved)
		}
		if beyond := got.PeakReserved - got.PeakAllocated; beyond > got.PeakAllocated*3/200 {
			t.Errorf("%d B kept of a layer: %d B reserved beyond the %d allocated, expected 1.5 %% at most", c.kept, beyond, got.PeakAllocated)
		}
	}
}
