package simdevice

import (
	"testing"

	"github.com/stplan/stplan/internal/synth"
)

// act is an allocation of a synthetic iteration, or its free.
type act struct {
	buffer int
	free   bool
}

// acts are those of the buffers from the first on, one for each tick. All of them
// end before the first ones do.
func acts(buffers []synth.Buffer, first int) []act {
	out := make([]act, 2*(len(buffers)-first))
	origin := buffers[first].Start
	for i := first; i < len(buffers); i++ {
		out[buffers[i].Start-origin] = act{i, false}
		out[buffers[i].End-origin] = act{i, true}
	}
	return out
}

// TestARunThatRepeatsStopsMoving serves one iteration again and again without a plan.
// With as much memory as it allocates its memory would have to move in each; it has to
// settle with a little more, and then move no more than it repays.
func TestARunThatRepeatsStopsMoving(t *testing.T) {
	if !Built {
		t.Skip("built without cgo: no runtime")
	}
	const iterations, settled, scale, repaid = 40, 20, 32, 1000
	spec := synth.Pipeline{Layers: 8, Chunks: 2, Stages: 4, MicroBatches: 8, Iterations: 1, PerLayer: 6, Recompute: true, Varied: true, Optimizer: 8}
	weights := 2 * spec.Layers
	for _, seed := range []uint64{2, 4} {
		device, err := Open(nil, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		buffers := synth.Generate(spec, seed)
		address := make([]uint64, len(buffers))
		malloc := func(b int, size int64) {
			if address[b], _, err = device.Malloc(uint64(size), 0); err != nil {
				t.Fatal(err)
			}
		}
		for b := range weights {
			malloc(b, buffers[b].Size)
		}
		var moved, allocated [iterations]uint64
		for i := range moved {
			for _, a := range acts(buffers, weights) {
				if !a.free {
					malloc(a.buffer, scale*buffers[a.buffer].Size)
				} else if err := device.Free(address[a.buffer], 0); err != nil {
					t.Fatal(err)
				}
			}
			c := device.Counters()
			moved[i], allocated[i] = c.MovedBytes, c.AllocationBytes
		}
		c := device.Counters()
		device.Close()
		last := iterations - 1
		if most := (allocated[last] - allocated[settled]) / repaid; moved[0] == 0 || moved[last]-moved[settled] > most {
			t.Errorf("seed %d: bytes moved, after each iteration: %d; expected some, and at most %d after iteration %d", seed, moved, most, settled)
		}
		if c.PeakReserved > c.PeakAllocated+c.PeakAllocated/8 {
			t.Errorf("seed %d: %d B reserved for %d B", seed, c.PeakReserved, c.PeakAllocated)
		}
	}
}
