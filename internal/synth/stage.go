package synth

// Stage is one rank of a pipeline that trains a decoder of the usual form: attention with
// rotary positions, then a gated feed-forward network (Touvron et al., LLaMA, 2023). All
// sizes follow from the dimensions of the model, and each temporary of a layer's forward and
// backward is there, in the order in which a framework that records a graph requests and
// frees them. So the sizes are few: multiples of the hidden state of a micro-batch, and of
// its feed-forward state. All fields are required but Recompute and Head.
type Stage struct {
	Layers       int // of the rank, all chunks together
	Chunks       int // model chunks of the rank; above 1 the schedule is interleaved
	Stages       int // of the pipeline
	Rank         int // of the stage, from 0; the last one has logits and a loss
	MicroBatches int // a multiple of Stages if there are chunks
	Iterations   int
	Recompute    bool  // a layer keeps only its input, and its backward makes the rest again
	Tokens       int64 // of a micro-batch
	Hidden       int64 // values of a token between two layers
	Feed         int64 // values of a token in the feed-forward network
	Heads        int64 // of attention
	Vocabulary   int64 // words that logits are for
}

// Generate returns the buffers of the rank in the order of their starts. Values take two
// bytes, statistics and gradients that stay four. Weights, their gradients and the
// optimizer's state, which the first iteration allocates, are not freed.
func (spec Stage) Generate() []Buffer {
	g := &stage{spec: spec, units: map[unit]*pass{}}
	g.state = 2 * spec.Tokens * spec.Hidden
	g.feed = 2 * spec.Tokens * spec.Feed
	for range spec.Chunks {
		for range spec.Layers / spec.Chunks {
			for _, values := range g.weights() {
				g.stays(2 * values)
			}
		}
		g.stays(4 * int64(spec.Layers/spec.Chunks) * sum(g.weights()))
	}
	if g.last() {
		g.stays(2 * spec.Hidden * spec.Vocabulary)
		g.stays(4 * spec.Hidden * spec.Vocabulary)
	}
	for i := range spec.Iterations {
		g.iteration()
		g.optimize(i == 0)
	}
	return g.buffers
}

// stage builds the buffers of a Stage.
type stage struct {
	generator
	spec  Stage
	state int64 // bytes of a micro-batch between two layers
	feed  int64 // bytes of a micro-batch in the feed-forward network
	units map[unit]*pass
}

// pass is what a forward leaves for its backward.
type pass struct {
	input  int     // received from the stage before
	layers []layer // in the order of the forward
	head   []int   // of the last stage: what the loss keeps
}

// layer is what one layer keeps. If it recomputes, that is only input until its backward.
type layer struct {
	input int
	saved saved
}

// saved is what a layer's backward reads, by what made it.
type saved struct {
	norm, scale, joint, key, query, attended, sums, middle int
	normFeed, scaleFeed, wide, gated                       int
	turns                                                  []int // cosines and sines of the positions
}

func (g *stage) last() bool { return g.spec.Rank == g.spec.Stages-1 }

func (g *stage) stays(size int64) int {
	b := g.alloc(size)
	g.buffers[b].End = Never
	return b
}

// weights are the numbers of values of a layer's four matrices.
func (g *stage) weights() []int64 {
	h, f := g.spec.Hidden, g.spec.Feed
	return []int64{3 * h * h, h * h, 2 * h * f, h * f}
}

func sum(values []int64) (total int64) {
	for _, v := range values {
		total += v
	}
	return total
}

// iteration is the schedule of the rank (see Pipeline): forwards ahead, one backward after
// each forward, the backwards that are left. What the next forward needs is received before
// this one.
func (g *stage) iteration() {
	spec := g.spec
	units := spec.MicroBatches * spec.Chunks
	ahead := spec.Stages - 1 - spec.Rank
	if spec.Chunks > 1 {
		ahead = 2*ahead + (spec.Chunks-1)*spec.Stages
	}
	ahead = min(units, ahead+1)
	for u := range units + ahead {
		if u < units {
			if u == 0 {
				g.receive(g.unit(0, false))
			}
			if u+1 < units {
				g.receive(g.unit(u+1, false))
			}
			g.forward(g.unit(u, false))
		}
		if u >= ahead {
			g.backward(g.unit(u-ahead, true))
		}
	}
}

// unit is as in generator, whose schedule has the same order.
func (g *stage) unit(u int, back bool) unit {
	order := generator{spec: Pipeline{Stages: g.spec.Stages, Chunks: g.spec.Chunks, MicroBatches: g.spec.MicroBatches}}
	return order.unit(u, back)
}

func (g *stage) receive(u unit) {
	g.units[u] = &pass{input: g.alloc(g.state)}
}

func (g *stage) forward(u unit) {
	p := g.units[u]
	input := p.input
	for range g.spec.Layers / g.spec.Chunks {
		l := layer{input: input}
		var output int
		l.saved, output = g.layer()
		if g.spec.Recompute {
			g.drop(l.saved)
		}
		p.layers = append(p.layers, l)
		input = output
	}
	if g.last() && u.chunk == g.spec.Chunks-1 {
		g.loss(p, input)
		return
	}
	g.free(input) // sent; its place in the graph keeps no memory
}

// layer requests what a layer's forward does, and returns what its backward reads, and its
// output.
func (g *stage) layer() (s saved, output int) {
	s.norm, s.scale = g.alloc(g.state), g.alloc(4*g.spec.Tokens)
	s.joint = g.alloc(3 * g.state)
	s.query = g.rotate(&s)
	s.key = g.rotate(&s)
	s.attended, s.sums = g.alloc(g.state), g.alloc(4*g.spec.Tokens*g.spec.Heads)
	g.free(g.alloc(256)) // state of random numbers
	projected := g.alloc(g.state)
	s.middle = g.alloc(g.state)
	g.free(projected)
	s.normFeed, s.scaleFeed = g.alloc(g.state), g.alloc(4*g.spec.Tokens)
	s.wide = g.alloc(2 * g.feed)
	s.gated = g.alloc(g.feed)
	narrow := g.alloc(g.state)
	output = g.alloc(g.state)
	g.free(narrow)
	return s, output
}

// rotate turns queries or keys by their positions.
func (g *stage) rotate(s *saved) int {
	table := 4 * g.spec.Tokens * g.spec.Hidden / g.spec.Heads
	for range 2 {
		angle := g.alloc(table)
		full := g.alloc(table)
		g.free(angle)
		s.turns = append(s.turns, g.alloc(table/2))
		g.free(full)
	}
	cosine, half := g.alloc(g.state), g.alloc(g.state/2)
	swapped := g.alloc(g.state)
	g.free(half)
	sine := g.alloc(g.state)
	g.free(swapped)
	added := g.alloc(g.state)
	g.freeAll([]int{cosine, sine})
	turned := g.alloc(g.state)
	g.free(added)
	return turned
}

// drop frees what a layer that will recompute does not keep.
func (g *stage) drop(s saved) {
	g.freeAll([]int{s.norm, s.scale, s.joint, s.query, s.key, s.attended, s.sums})
	g.freeAll(s.turns)
	g.freeAll([]int{s.middle, s.normFeed, s.scaleFeed, s.wide, s.gated})
}

// loss keeps the logits in full precision, which become their shares in place.
func (g *stage) loss(p *pass, input int) {
	logits := g.spec.Tokens * g.spec.Vocabulary
	norm, scale := g.alloc(g.state), g.alloc(4*g.spec.Tokens)
	half := g.alloc(2 * logits)
	full := g.alloc(4 * logits)
	g.free(half)
	g.free(g.alloc(4 * g.spec.Tokens)) // the largest of each token
	p.head = []int{input, norm, scale, full}
}

// lossBackward returns the gradient of the last layer's output.
func (g *stage) lossBackward(p *pass) int {
	logits := g.spec.Tokens * g.spec.Vocabulary
	half := g.alloc(2 * logits)
	g.free(p.head[3])
	inner := g.alloc(g.state)
	g.free(g.alloc(2 * g.spec.Hidden * g.spec.Vocabulary))
	g.free(half)
	grad := g.alloc(g.state)
	g.freeAll([]int{inner, p.head[1], p.head[2], p.head[0]})
	return grad
}

func (g *stage) backward(u unit) {
	p := g.units[u]
	delete(g.units, u)
	var grad int
	if g.last() && u.chunk == g.spec.Chunks-1 {
		grad = g.lossBackward(p)
	} else {
		grad = g.alloc(g.state) // received
	}
	for i := len(p.layers) - 1; i >= 0; i-- {
		grad = g.layerBackward(p.layers[i], grad)
	}
	g.free(grad) // sent
}

// layerBackward frees what the layer kept, its input too, and returns the gradient of that.
func (g *stage) layerBackward(l layer, grad int) int {
	s, output := l.saved, -1
	if g.spec.Recompute {
		s, output = g.layer()
	}
	w := g.weights()
	copied := g.alloc(g.state)
	if output >= 0 {
		g.free(output)
	}
	gated := g.alloc(g.feed)
	g.free(g.alloc(2 * w[3]))
	g.free(s.gated)
	wide := g.alloc(2 * g.feed)
	g.freeAll([]int{gated, s.wide})
	norm := g.alloc(g.state)
	g.free(g.alloc(2 * w[2]))
	g.freeAll([]int{wide, s.normFeed})
	inner := g.alloc(g.state)
	g.freeAll([]int{norm, s.middle, s.scaleFeed})
	next := g.alloc(g.state)
	g.free(inner)
	attended := g.alloc(g.state)
	g.free(g.alloc(2 * w[1]))
	query, key, value := g.alloc(g.state), g.alloc(g.state), g.alloc(g.state)
	g.free(g.alloc(2*g.state + 2*g.spec.Tokens*g.spec.Heads))
	g.freeAll([]int{attended, s.key, s.query, s.joint, s.sums, s.attended})
	key = g.rotateBackward(key)
	query = g.rotateBackward(query)
	g.freeAll(s.turns)
	joint := g.alloc(3 * g.state)
	g.freeAll([]int{query, key, value})
	norm = g.alloc(g.state)
	g.free(g.alloc(2 * w[0]))
	g.freeAll([]int{joint, s.norm})
	inner = g.alloc(g.state)
	g.freeAll([]int{norm, s.scale, inner, copied, grad, l.input})
	return next
}

func (g *stage) rotateBackward(turned int) int {
	sine, half := g.alloc(g.state), g.alloc(g.state/2)
	swapped := g.alloc(g.state)
	g.freeAll([]int{sine, half})
	g.free(g.alloc(g.state))
	grad := g.alloc(g.state)
	g.freeAll([]int{turned, swapped})
	return grad
}

// optimize is a step of Adam on copies in full precision, which the first one allocates.
func (g *stage) optimize(first bool) {
	if first {
		for range g.spec.Layers {
			for _, values := range g.weights() {
				for range 3 {
					g.stays(4 * values)
				}
			}
		}
	}
	for range g.spec.Layers {
		for _, values := range g.weights() {
			root := g.alloc(4 * values)
			g.free(g.alloc(4 * values))
			g.free(root)
		}
	}
}
