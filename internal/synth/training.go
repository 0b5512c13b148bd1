package synth

import (
	"cmp"
	"math"
	"math/rand/v2"
)

// Training describes a training loop whose iterations differ: other lengths, other numbers
// of micro-batches or of generated tokens, batches of other shapes, evaluations and
// checkpoints in between. Layers, MicroBatches and Steps are required. A zero in any other
// field leaves its feature out.
type Training struct {
	Layers       int
	MicroBatches [2]int // of a step: the fewest and the most; 0 for the most is the fewest
	Steps        int
	Length       int64  // of every micro-batch, 512 if 0
	Lengths      bool   // every micro-batch has another length, and all sizes follow it
	Buckets      int    // number of shapes of a step's batch, each of which takes other kernels
	Tokens       [2]int // generated before the training of a step: the fewest and the most
	Updates      int    // optimizer steps for each generation, 1 if 0
	EvaluateEach int    // number of steps between two evaluations
	Batches      int    // of an evaluation
	SaveEach     int    // number of steps between two checkpoints
	KeepGrads    bool   // gradients are allocated once and never freed
	Fused        bool   // the optimizer allocates nothing but its state
	HoldOutputs  bool   // a step's outputs live until the next step has its own
}

// Step is one optimizer step: the time at which what belongs to it begins, those at which
// its optimizer begins and ends.
type Step struct {
	Begin, Optimizer, End int64
}

// Never is the end of a buffer that is not freed.
const Never = math.MaxInt64

// Generate returns the buffers of a run in the order of their starts, and its steps. The
// same seed gives the same.
func (spec Training) Generate(seed uint64) ([]Buffer, []Step) {
	g := &trainer{generator: generator{rng: rand.New(rand.NewPCG(seed, 2))}, spec: spec}
	for range spec.Layers * weightsPerLayer {
		g.keep(1 << 20)
	}
	for s := range spec.Steps {
		g.step(s)
		if spec.EvaluateEach > 0 && (s+1)%spec.EvaluateEach == 0 {
			for range max(1, spec.Batches) {
				g.freeAll(g.forwardPass(g.length()))
			}
		}
		if spec.SaveEach > 0 && (s+1)%spec.SaveEach == 0 {
			for range spec.Layers * weightsPerLayer {
				g.free(g.alloc(1 << 20))
			}
		}
	}
	return g.buffers, g.steps
}

// weightsPerLayer is the number of parameters of a layer.
const weightsPerLayer = 4

type trainer struct {
	generator
	spec    Training
	bucket  int
	steps   []Step
	grads   []int
	outputs []int
}

// keep allocates a buffer that is never freed.
func (g *trainer) keep(size int64) {
	g.buffers[g.alloc(size)].End = Never
}

// between draws a number from a range, whose end counts as its beginning if it is 0.
func (g *trainer) between(r [2]int) int {
	return r[0] + g.rng.IntN(max(1, r[1]-r[0]+1))
}

func (g *trainer) length() int64 {
	if g.spec.Lengths {
		return 64 + g.rng.Int64N(960)
	}
	return cmp.Or(g.spec.Length, 512)
}

func (g *trainer) step(s int) {
	updates := max(1, g.spec.Updates)
	g.bucket = g.rng.IntN(max(1, g.spec.Buckets))
	if s%updates == 0 {
		begin := g.now
		g.generate()
		g.steps = append(g.steps, Step{Begin: begin})
	} else {
		g.steps = append(g.steps, Step{Begin: g.now})
	}
	for m := range g.between(g.spec.MicroBatches) {
		n := g.length()
		saved := g.forwardPass(n)
		out := g.alloc(4096 * n)
		g.backwardPass(saved, n, s == 0 && m == 0 || m == 0 && !g.spec.KeepGrads)
		g.hold(out)
	}
	g.steps[s].Optimizer = g.now
	g.optimize(s == 0)
	g.steps[s].End = g.now
	if !g.spec.KeepGrads {
		g.freeAll(g.grads)
		g.grads = nil
	}
}

// generate decodes tokens: in every layer each token makes the cache of the layer anew.
func (g *trainer) generate() {
	cache := make([]int, 0, g.spec.Layers)
	for token := range g.between(g.spec.Tokens) {
		for layer := range g.spec.Layers {
			g.temporaries(4, 1<<12)
			grown := g.alloc(1 << 12 * int64(token+1))
			if token > 0 {
				g.free(cache[layer])
				cache[layer] = grown
			} else {
				cache = append(cache, grown)
			}
		}
		g.temporaries(2, 1<<16) // logits and the choice
	}
	g.freeAll(cache)
}

// temporaries allocates n+1 buffers in turn, of which two live at a time.
func (g *trainer) temporaries(n int, size int64) {
	last := g.alloc(size)
	for range n {
		next := g.alloc(size)
		g.free(last)
		last = next
	}
	g.free(last)
}

// forwardPass returns the activations that it leaves. What a layer does with its
// temporaries depends on the shape of the batch.
func (g *trainer) forwardPass(n int64) (saved []int) {
	for layer := range g.spec.Layers {
		g.temporaries(3, 2048*n)
		if g.spec.Buckets > 0 && layer%4 == 0 {
			g.kernel(layer/4, n)
		}
		saved = append(saved, g.alloc(4096*n), g.alloc(1024*n), g.alloc(2048*n))
	}
	return saved
}

// kernel is one that takes another number of workspaces for every shape.
func (g *trainer) kernel(kind int, n int64) {
	var held []int
	for range (g.bucket >> kind & 1) + 1 {
		held = append(held, g.alloc(256*n))
	}
	g.free(g.alloc(512 * n))
	g.freeAll(held)
}

func (g *trainer) backwardPass(saved []int, n int64, first bool) {
	for i := len(saved) - 1; i >= 0; i-- {
		g.temporaries(2, 2048*n)
		if g.spec.Buckets > 0 && i%12 == 0 {
			g.kernel(i/12, n)
		}
		grad := g.alloc(1 << 20)
		if first {
			g.grads = append(g.grads, grad)
			if g.spec.KeepGrads {
				g.buffers[grad].End = Never
			}
		} else {
			g.free(grad)
		}
		g.free(saved[i])
	}
}

// hold frees the outputs of the micro-batch before, or this one's if none are held.
func (g *trainer) hold(out int) {
	if !g.spec.HoldOutputs {
		g.free(out)
		return
	}
	g.freeAll(g.outputs)
	g.buffers[out].End = Never
	g.outputs = []int{out}
}

func (g *trainer) optimize(first bool) {
	if first {
		for range 2 * weightsPerLayer * g.spec.Layers {
			g.keep(1 << 20)
		}
	}
	if !g.spec.Fused {
		g.temporaries(2*weightsPerLayer*g.spec.Layers, 1<<18)
		for range g.spec.Layers {
			g.free(g.alloc(1 << 10))
		}
	}
}
