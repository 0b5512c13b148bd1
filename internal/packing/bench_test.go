package packing

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// benchInstances is an instance of testdata and two generated pipelines. With -short the
// pipelines have one iteration of a few micro-batches.
func benchInstances(b *testing.B) []benchInstance {
	if testing.Short() {
		return []benchInstance{
			{"minimalloc-A", readInstance(b, "minimalloc-A.csv")},
			{"1f1b-1k", generate(pipeline{Layers: 8, Chunks: 1, Stages: 4, MicroBatches: 4, Iterations: 1, PerLayer: 22}, 1)},
			{"interleaved-2k", generate(pipeline{Layers: 8, Chunks: 2, Stages: 4, MicroBatches: 4, Iterations: 1, PerLayer: 22, Jitter: 0.1}, 1)},
		}
	}
	return []benchInstance{
		{"minimalloc-A", readInstance(b, "minimalloc-A.csv")},
		{"1f1b-25k", generate(pipeline{Layers: 8, Chunks: 1, Stages: 4, MicroBatches: 16, Iterations: 4, PerLayer: 22}, 1)},
		{"interleaved-25k", generate(pipeline{Layers: 8, Chunks: 2, Stages: 4, MicroBatches: 16, Iterations: 4, PerLayer: 22, Jitter: 0.1}, 1)},
	}
}

type benchInstance struct {
	name string
	p    *Problem
}

// BenchmarkPack reports each rule's makespan over the load beside its time.
func BenchmarkPack(b *testing.B) {
	for _, c := range benchInstances(b) {
		name, p := c.name, c.p
		in, err := newInstance(p)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range portfolio {
			b.Run("instance="+name+"/heuristic="+r.name, func(b *testing.B) {
				var l layout
				for b.Loop() {
					l, _ = r.run(alone(in))
				}
				b.ReportMetric(float64(l.makespan)/float64(in.bound), "makespan/load")
			})
		}
		b.Run("instance="+name+"/heuristic=all", func(b *testing.B) {
			var pl Placement
			for b.Loop() {
				pl = mustPack(b, p, Options{})
			}
			b.ReportMetric(float64(pl.Makespan)/float64(loadOf(p).Load), "makespan/load")
		})
	}
}

// BenchmarkFirstPlan is the time to a first plan of 2 million buffers: cutting the
// problem into sections and one sweep.
func BenchmarkFirstPlan(b *testing.B) {
	p := generate(pipeline{Layers: 32, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 22, PerLayer: 22, Jitter: 0.1}, 1)
	var gap float64
	for b.Loop() {
		in, err := newInstance(p)
		if err != nil {
			b.Fatal(err)
		}
		l, _ := portfolio[0].run(alone(in))
		gap = 100 * float64(l.makespan-in.bound) / float64(in.bound)
	}
	b.ReportMetric(gap, "%gap")
	b.ReportMetric(float64(len(p.Buffers)*b.N)/b.Elapsed().Seconds(), "buffers/s")
}

// inShort is the first file alone with -short: it shows that a benchmark still runs.
func inShort(files []string) []string {
	if testing.Short() {
		return files[:1]
	}
	return files
}

// BenchmarkShared packs the public instances of minimalloc and idealloc that lie beside
// the repository.
func BenchmarkShared(b *testing.B) {
	files, err := filepath.Glob("../../../shared/instances/*/*.csv")
	if err != nil {
		b.Fatal(err)
	}
	if len(files) == 0 {
		b.Skip("no ../shared/instances beside the repository")
	}
	for _, file := range inShort(files) {
		p := readInstance(b, filepath.Join("..", file))
		bound := loadOf(p).Load
		b.Run("instance="+filepath.Base(file)+"/heuristic=all", func(b *testing.B) {
			var pl Placement
			for b.Loop() {
				var err error
				if pl, err = Pack(context.Background(), p, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(pl.Makespan)/float64(bound), "makespan/load")
		})
	}
}

// BenchmarkExact decides minimalloc's hard instances at their capacity.
func BenchmarkExact(b *testing.B) {
	files, err := filepath.Glob("../../../shared/instances/minimalloc/[A-K].*.csv")
	if err != nil {
		b.Fatal(err)
	}
	if len(files) == 0 {
		b.Skip("no ../shared/instances beside the repository")
	}
	for _, file := range files {
		in, err := newInstance(readInstance(b, filepath.Join("..", file)))
		if err != nil {
			b.Fatal(err)
		}
		b.Run("instance="+filepath.Base(file), func(b *testing.B) {
			for b.Loop() {
				if v := newExact(in).decide(1<<20, 1<<40, never); v != fits {
					b.Fatalf("verdict %d", v)
				}
			}
		})
	}
}

// BenchmarkFewerWaits searches a jittered pipeline on two streams, in which buffers
// settle up to 200 instants after their end.
func BenchmarkFewerWaits(b *testing.B) {
	spec := pipeline{Layers: 8, Chunks: 2, Stages: 4, MicroBatches: 64, Iterations: 4, PerLayer: 22, Jitter: 0.1}
	if testing.Short() {
		spec.MicroBatches, spec.Iterations = 8, 1
	}
	p := generate(spec, 1)
	rng := rand.New(rand.NewPCG(31, 1))
	uses := make([]Use, len(p.Buffers))
	for i, buf := range p.Buffers {
		uses[i] = Use{Stream: int32(rng.IntN(50) / 49), Settled: buf.End + Time(rng.IntN(200))}
	}
	in, err := newInstance(p)
	if err != nil {
		b.Fatal(err)
	}
	l, _ := firstFit(alone(in), bySize.sorted(in))
	pl := in.placement(l)
	var after int
	for b.Loop() {
		after = len(Waits(p, uses, fewerWaits(b, p, uses, pl, 2)))
	}
	b.ReportMetric(float64(len(p.Buffers)), "buffers")
	b.ReportMetric(float64(len(Waits(p, uses, pl))), "before")
	b.ReportMetric(float64(after), "after")
}
