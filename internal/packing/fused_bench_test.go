package packing

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/fusion"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// BenchmarkFusion reports, for the recorded pipelines beside the repository, how many
// objects are left by each reduction, and the gap in percent that its rules reach by
// themselves.
func BenchmarkFusion(b *testing.B) {
	files, err := filepath.Glob("../../../shared/traces/*pp*.pickle.gz")
	if err != nil {
		b.Fatal(err)
	}
	if len(files) == 0 {
		b.Skip("no recordings in ../shared/traces")
	}
	for _, file := range inShort(files) {
		b.Run("trace="+filepath.Base(file), func(b *testing.B) {
			t, err := trace.ReadFile(file, trace.Options{})
			if err != nil {
				b.Fatal(err)
			}
			tl, err := lifespan.Build(&t.Devices[0])
			if err != nil {
				b.Fatal(err)
			}
			p := &Problem{Alignment: 512}
			for _, b := range tl.Buffers {
				p.Buffers = append(p.Buffers, Buffer{Start: Time(b.Start), End: Time(b.RequestedEnd), Size: Bytes(b.Size)})
			}
			for b.Loop() {
				fold, err := fusion.Fold(roundedBuffers(p))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(p.Buffers)), "buffers")
				b.ReportMetric(float64(len(fold.Buffers)), "folded")
				for i, name := range []string{"folded", "coarse", "fine"} {
					reduced, err := reductions[i].reduce(fold)
					if err != nil {
						b.Fatal(err)
					}
					f := fused{problem: p, opt: Options{Workers: 2}}
					if err := f.try(context.Background(), i, reductions[i], reduced); err != nil {
						b.Fatal(err)
					}
					if _, err := f.answer(); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(len(reduced.Buffers)), name)
					b.ReportMetric(100*float64(f.best.Makespan-f.best.MaxLoad.Load)/float64(f.best.MaxLoad.Load), "%gap-"+name)
				}
			}
		})
	}
}
