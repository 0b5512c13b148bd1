// Package synth makes up the allocations of training, so that tests and benchmarks have
// problems of any size and shape. The result is a list of live ranges and sizes. No figure
// is taken from a recording. Pipeline is pipeline-parallel training; Training is a loop
// whose iterations differ.
//
// A rank of a pipeline runs iterations of the 1F1B schedule (Narayanan et al., PipeDream, 2019) over
// units of one micro-batch and one model chunk: some forwards ahead, then one backward
// after each forward, then the backwards that are left. With more than one chunk the
// schedule is interleaved (Narayanan et al., Efficient Large-Scale Language Model
// Training on GPU Clusters Using Megatron-LM, 2021): chunks take turns every Stages
// micro-batches.
package synth

import "math/rand/v2"

// Buffer is one allocation of Size bytes, live in [Start, End). Every allocation and
// every free takes one tick of time.
type Buffer struct {
	Start, End, Size int64
}

// Pipeline describes a trace. The first five fields are required. A zero in any other
// field leaves its feature out.
type Pipeline struct {
	Layers       int // number of layers of the rank, all chunks together
	Chunks       int // number of model chunks per rank; above 1 the schedule is interleaved
	Stages       int // number of pipeline stages; the rank warms up with as many forwards per chunk
	MicroBatches int
	Iterations   int
	PerLayer     int     // number of activations that a layer keeps until its backward
	Jitter       float64 // each size varies by up to half this share, up and down
	Drift        float64 // sizes of two micro-batches differ by up to this share
	Recompute    bool    // a layer keeps only its input, and its backward makes the rest again
	Varied       bool    // sizes are drawn with the seed instead of 1 to 4 MiB in turn
	Optimizer    int     // number of temporaries of one optimizer step
}

// Generate returns the buffers of spec in the order of their starts: weights that stay;
// for each forward and layer the kept activations and a temporary; for each backward a
// gradient per activation, two of them live at once. The same seed gives the same
// buffers.
func Generate(spec Pipeline, seed uint64) []Buffer {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 1)), spec: spec, kept: map[unit][]int{}}
	g.chooseSizes()
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
	return g.buffers
}

// generator builds the buffers of a pipeline.
type generator struct {
	rng     *rand.Rand
	spec    Pipeline
	buffers []Buffer
	now     int64
	kept    map[unit][]int // by unit: the activations that wait for its backward
	sizes   []int64        // of the activations of a layer
	temp    int64          // the size of a layer's temporary and of a gradient
	scale   []float64      // of the sizes of each micro-batch of the iteration
}

// unit is one pass of a micro-batch through a chunk.
type unit struct{ microBatch, chunk int }

func (g *generator) chooseSizes() {
	g.temp = 43 << 18
	for k := range g.spec.PerLayer {
		g.sizes = append(g.sizes, int64(1+k%4)<<20)
	}
	if !g.spec.Varied {
		return
	}
	// Two families, as in models: powers of two, and a feed-forward width
	// times powers of two.
	wide := int64(33 + 2*g.rng.IntN(16))
	draw := func() int64 {
		if g.rng.IntN(2) == 0 {
			return 1 << (14 + g.rng.IntN(9))
		}
		return wide << (10 + g.rng.IntN(8))
	}
	for k := range g.sizes {
		g.sizes[k] = draw()
	}
	g.temp = wide << (15 + g.rng.IntN(4))
}

func (g *generator) iteration() {
	g.scale = g.scale[:0]
	for range g.spec.MicroBatches {
		g.scale = append(g.scale, 1+g.spec.Drift*(g.rng.Float64()-0.5))
	}
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
	for k := range g.spec.Optimizer {
		g.free(g.alloc(g.temp << (k % 3)))
	}
}

// unit is the micro-batch and the chunk of the u-th forward, or of the u-th backward if
// back is set. Backwards take the chunks in the opposite order.
func (g *generator) unit(u int, back bool) unit {
	block := g.spec.Stages * g.spec.Chunks
	chunk := u % block / g.spec.Stages
	if back {
		chunk = g.spec.Chunks - 1 - chunk
	}
	return unit{min(u/block*g.spec.Stages+u%g.spec.Stages, g.spec.MicroBatches-1), chunk}
}

func (g *generator) forward(u unit) {
	for range g.spec.Layers / g.spec.Chunks {
		temp := g.sized(g.temp, u)
		if g.spec.Recompute {
			g.kept[u] = append(g.kept[u], g.sized(g.sizes[0], u))
			g.freeAll(g.layer(u))
		} else {
			g.kept[u] = append(g.kept[u], g.layer(u)...)
		}
		g.free(temp)
	}
}

// layer allocates the activations of one layer.
func (g *generator) layer(u unit) []int {
	var made []int
	for _, size := range g.sizes {
		made = append(made, g.sized(size, u))
	}
	return made
}

func (g *generator) backward(u unit) {
	kept := g.kept[u]
	delete(g.kept, u)
	previous := g.sized(1<<20, u)
	for k := len(kept) - 1; k >= 0; k-- {
		waiting := []int{kept[k]}
		if g.spec.Recompute {
			waiting = append(waiting, g.layer(u)...)
		}
		for i := len(waiting) - 1; i >= 0; i-- {
			grad := g.sized(g.temp, u)
			g.free(previous)
			g.free(waiting[i])
			previous = grad
		}
	}
	g.free(previous)
}

func (g *generator) sized(size int64, u unit) int {
	return g.alloc(int64(float64(size) * g.scale[u.microBatch]))
}

func (g *generator) alloc(size int64) int {
	if g.spec.Jitter > 0 {
		size = int64(float64(size) * (1 + g.spec.Jitter*(g.rng.Float64()-0.5)))
	}
	g.buffers = append(g.buffers, Buffer{Start: g.now, Size: size})
	g.now++
	return len(g.buffers) - 1
}

func (g *generator) free(b int) {
	g.buffers[b].End = g.now
	g.now++
}

func (g *generator) freeAll(list []int) {
	for _, b := range list {
		g.free(b)
	}
}
