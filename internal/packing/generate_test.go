package packing

import "math/rand/v2"

// pipeline describes a synthetic pipeline-parallel training trace: one rank's
// buffers over several iterations of a 1F1B schedule.
type pipeline struct {
	Layers       int // of the rank, all chunks together
	Chunks       int // model chunks per rank; above 1 the schedule is interleaved
	Stages       int // of the pipeline; the rank warms up with as many forwards
	MicroBatches int
	Iterations   int
	PerLayer     int     // activations a layer keeps until its backward
	Jitter       float64 // share by which sizes vary, 0 for none
}

// generator builds the buffers of a pipeline, one allocation or free per tick.
type generator struct {
	rng     *rand.Rand
	spec    pipeline
	buffers []Buffer
	now     Time
	kept    map[[2]int][]int // (micro-batch, chunk): buffers that wait for the backward
}

// generate returns the buffers of spec in the order of their starts: weights
// that stay, per forward the kept activations and a few temporaries, per
// backward two gradients for each layer.
func generate(spec pipeline, seed uint64) *Problem {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 1)), spec: spec, kept: map[[2]int][]int{}}
	for range spec.Layers {
		g.alloc(24 << 20)
		g.alloc(8 << 20)
	}
	residents := len(g.buffers)
	for range spec.Iterations {
		g.iteration()
	}
	for b := range residents {
		g.free(b)
	}
	return &Problem{Buffers: g.buffers, Alignment: 512}
}

// iteration is 1F1B over units of one micro-batch and one chunk: some forwards
// ahead, then one backward after each forward, then the backwards left over.
func (g *generator) iteration() {
	units := g.spec.MicroBatches * g.spec.Chunks
	ahead := min(units, g.spec.Stages*g.spec.Chunks)
	for u := range units + ahead {
		if u < units {
			g.forward(g.unit(u, false))
		}
		if u >= ahead {
			g.backward(g.unit(u-ahead, true))
		}
	}
}

// unit is the micro-batch and chunk of the u-th pass: chunks take turns every
// Stages micro-batches, and backwards take them from the last one.
func (g *generator) unit(u int, back bool) [2]int {
	block := g.spec.Stages * g.spec.Chunks
	chunk := u % block / g.spec.Stages
	if back {
		chunk = g.spec.Chunks - 1 - chunk
	}
	return [2]int{u/block*g.spec.Stages + u%g.spec.Stages, chunk}
}

func (g *generator) forward(unit [2]int) {
	for range g.spec.Layers / g.spec.Chunks {
		temp := g.alloc(43 << 18)
		for k := range g.spec.PerLayer {
			g.kept[unit] = append(g.kept[unit], g.alloc(int64(1+k%4)<<20))
		}
		g.free(temp)
	}
}

func (g *generator) backward(unit [2]int) {
	kept := g.kept[unit]
	delete(g.kept, unit)
	previous := g.alloc(1 << 20)
	for k := len(kept) - 1; k >= 0; k-- {
		grad := g.alloc(43 << 18)
		g.free(previous)
		g.free(kept[k])
		previous = grad
	}
	g.free(previous)
}

func (g *generator) alloc(size int64) int {
	if g.spec.Jitter > 0 {
		size = int64(float64(size) * (1 + g.spec.Jitter*(g.rng.Float64()-0.5)))
	}
	g.buffers = append(g.buffers, Buffer{Start: g.now, Size: Bytes(size)})
	g.now++
	return len(g.buffers) - 1
}

func (g *generator) free(b int) {
	g.buffers[b].End = g.now
	g.now++
}

// randomProblem is n buffers with small random sizes and lives.
func randomProblem(rng *rand.Rand, n, span, size int) *Problem {
	p := &Problem{Alignment: 1}
	for range n {
		start := rng.IntN(span)
		p.Buffers = append(p.Buffers, Buffer{Time(start), Time(start + 1 + rng.IntN(span)), Bytes(1 + rng.IntN(size))})
	}
	return p
}
