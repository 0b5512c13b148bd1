package compile

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/trace"
)

// BenchmarkFewerWaits packs each recording beside the repository and then looks
// for fewer waits: docs/results/waits.py makes its figures a table. Forced is
// how many pending waits no placement of that size is without (forcedWaits).
func BenchmarkFewerWaits(b *testing.B) {
	files, err := filepath.Glob("../../../shared/traces/*.pickle.gz")
	if err != nil || len(files) == 0 {
		b.Skip("no recordings in ../shared/traces")
	}
	for _, file := range inShort(files) {
		b.Run(strings.TrimSuffix(filepath.Base(file), ".pickle.gz"), func(b *testing.B) {
			p, uses := problemOf(b, file)
			packed, err := packing.Pack(context.Background(), p, packing.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if len(packing.Waits(p, uses, packed)) == 0 {
				b.Skip("no waits")
			}
			var calm packing.Placement
			for b.Loop() {
				if calm, err = packing.FewerWaits(context.Background(), p, uses, packed, packing.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			reportWaits(b, p, packing.Waits(p, uses, packed), "before")
			reportWaits(b, p, packing.Waits(p, uses, calm), "after")
			b.ReportMetric(float64(forcedWaits(p, uses, packed.Makespan)), "forced")
		})
	}
}

// BenchmarkWaitsForMemory is how many waits between streams are left if a plan of the
// recorded process may take more memory than it has to. None are left only if each stream
// has memory of its own, which takes apart-% more.
func BenchmarkWaitsForMemory(b *testing.B) {
	files, err := filepath.Glob("../../../shared/traces/*fsdp*.pickle.gz")
	if err != nil || len(files) == 0 {
		b.Skip("no recordings in ../shared/traces")
	}
	for _, file := range inShort(files) {
		p, uses := problemOf(b, file)
		packed, err := packing.Pack(context.Background(), p, packing.Options{})
		if err != nil {
			b.Fatal(err)
		}
		apart, err := packing.ApartLoad(p, (&line{uses: uses}).streams())
		if err != nil {
			b.Fatal(err)
		}
		for _, perMille := range []packing.Bytes{0, 1, 5, 10} {
			if testing.Short() && perMille < 10 {
				continue
			}
			name := strings.TrimSuffix(filepath.Base(file), ".pickle.gz")
			b.Run(fmt.Sprintf("%s/more=%.1f%%", name, float64(perMille)/10), func(b *testing.B) {
				larger := packed
				larger.Makespan += packed.Makespan / 1000 * perMille / p.Alignment * p.Alignment
				var calm packing.Placement
				for b.Loop() {
					if calm, err = packing.FewerWaits(context.Background(), p, uses, larger, packing.Options{}); err != nil {
						b.Fatal(err)
					}
				}
				reportWaits(b, p, packing.Waits(p, uses, calm), "after")
				b.ReportMetric(100*float64(apart-packed.LowerBound)/float64(packed.LowerBound), "apart-%")
			})
		}
	}
}

// inShort is the first file alone with -short: it shows that a benchmark still runs.
func inShort(files []string) []string {
	if testing.Short() {
		return files[:1]
	}
	return files
}

func problemOf(b *testing.B, file string) (*packing.Problem, []packing.Use) {
	b.Helper()
	t, err := trace.ReadFile(file, trace.Options{})
	if err != nil {
		b.Fatal(err)
	}
	tl, err := lifespan.Build(&t.Devices[0])
	if err != nil {
		b.Fatal(err)
	}
	l := newLine(newDraft(tl, nil, lifespan.EndRequested))
	return &l.problem, l.uses
}

func reportWaits(b *testing.B, p *packing.Problem, waits []packing.Wait, when string) {
	var bytes packing.Bytes
	var slack []packing.Time
	cross := 0
	for _, w := range waits {
		bytes += w.Bytes
		slack = append(slack, p.Buffers[w.Later].Start-p.Buffers[w.Earlier].End)
		if w.CrossStream {
			cross++
		}
	}
	b.ReportMetric(float64(len(waits)), "waits-"+when)
	b.ReportMetric(float64(cross), "cross-"+when)
	b.ReportMetric(float64(bytes>>20), "MiB-"+when)
	if len(slack) > 0 {
		slices.Sort(slack)
		b.ReportMetric(float64(slack[len(slack)/2]), "slack-"+when)
	}
}

// forcedWaits counts the buffers that somebody has to wait for in any placement
// of that size: while their last use goes on, less room is left than they take.
func forcedWaits(p *packing.Problem, uses []packing.Use, size packing.Bytes) int {
	last := packing.Time(0)
	for _, b := range p.Buffers {
		last = max(last, b.End)
	}
	aligned := func(n packing.Bytes) packing.Bytes { return (n + p.Alignment - 1) / p.Alignment * p.Alignment }
	load := make([]packing.Bytes, last+1)
	for _, b := range p.Buffers {
		load[b.Start] += aligned(b.Size)
		load[b.End] -= aligned(b.Size)
	}
	for t := packing.Time(1); t <= last; t++ {
		load[t] += load[t-1]
	}
	forced := 0
	for i, b := range p.Buffers {
		until := min(uses[i].Settled, last+1)
		if b.End < until && slices.Max(load[b.End:until]) > size-aligned(b.Size) {
			forced++
		}
	}
	return forced
}
