package packing

import (
	"math/rand/v2"

	"github.com/stplan/stplan/internal/synth"
)

// pipeline is a synthetic trace (internal/synth).
type pipeline = synth.Pipeline

// generate is the problem of a synthetic pipeline.
func generate(spec pipeline, seed uint64) *Problem {
	p := &Problem{Alignment: 512}
	for _, b := range synth.Generate(spec, seed) {
		p.Buffers = append(p.Buffers, Buffer{Start: Time(b.Start), End: Time(b.End), Size: Bytes(b.Size)})
	}
	return p
}

// randomProblem is n buffers with small random sizes and lives.
func randomProblem(rng *rand.Rand, n, span, size int) *Problem {
	p := &Problem{Alignment: 1}
	for range n {
		start := rng.IntN(span)
		p.Buffers = append(p.Buffers, Buffer{Start: Time(start), End: Time(start + 1 + rng.IntN(span)), Size: Bytes(1 + rng.IntN(size))})
	}
	return p
}
