//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/synth"
)

// scaleCases are pipelines from 50 thousand to 5 million buffers. Their seeds
// and shapes were chosen beforehand; nothing in the packer was fitted to them.
var scaleCases = []struct {
	name string
	spec synth.Pipeline
	seed uint64
}{
	{"regular-2M", synth.Pipeline{Layers: 32, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 22, PerLayer: 22}, 101},
	{"regular-2M-one-iteration", synth.Pipeline{Layers: 32, Chunks: 4, Stages: 4, MicroBatches: 1408, Iterations: 1, PerLayer: 22}, 101},
	{"varied-2M", synth.Pipeline{Layers: 32, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 22, PerLayer: 22, Varied: true, Optimizer: 40}, 102},
	{"recompute-2M", synth.Pipeline{Layers: 32, Chunks: 2, Stages: 8, MicroBatches: 64, Iterations: 22, PerLayer: 14, Varied: true, Recompute: true}, 103},
	{"1f1b-2M", synth.Pipeline{Layers: 24, Chunks: 1, Stages: 8, MicroBatches: 128, Iterations: 16, PerLayer: 20, Varied: true}, 104},
	{"regular-50k", synth.Pipeline{Layers: 16, Chunks: 4, Stages: 4, MicroBatches: 16, Iterations: 7, PerLayer: 14}, 105},
	{"regular-500k", synth.Pipeline{Layers: 16, Chunks: 4, Stages: 4, MicroBatches: 16, Iterations: 67, PerLayer: 14}, 105},
	{"regular-5M", synth.Pipeline{Layers: 16, Chunks: 4, Stages: 4, MicroBatches: 16, Iterations: 670, PerLayer: 14}, 105},
	{"jittered-200k", synth.Pipeline{Layers: 16, Chunks: 4, Stages: 4, MicroBatches: 32, Iterations: 9, PerLayer: 22, Jitter: 0.1}, 106},
	{"jittered-200k-small-layers", synth.Pipeline{Layers: 8, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 18, PerLayer: 10, Jitter: 0.1}, 107},
	{"jittered-200k-varied", synth.Pipeline{Layers: 16, Chunks: 2, Stages: 4, MicroBatches: 32, Iterations: 9, PerLayer: 22, Jitter: 0.05, Varied: true}, 108},
	{"drifting-200k", synth.Pipeline{Layers: 16, Chunks: 4, Stages: 4, MicroBatches: 32, Iterations: 9, PerLayer: 22, Drift: 0.2}, 109},
	{"jittered-200k-recompute", synth.Pipeline{Layers: 16, Chunks: 4, Stages: 4, MicroBatches: 32, Iterations: 6, PerLayer: 22, Jitter: 0.1, Recompute: true}, 110},
	{"jittered-2M", synth.Pipeline{Layers: 32, Chunks: 4, Stages: 4, MicroBatches: 64, Iterations: 22, PerLayer: 22, Jitter: 0.1}, 111},
}

// BenchmarkScale runs the whole of `stplan pack` in a process of its own: reading
// the file, packing, checking. It reports the gap in percent, the seconds of the
// packing alone, and the peak memory.
func BenchmarkScale(b *testing.B) {
	dir := b.TempDir()
	binary := filepath.Join(dir, "stplan")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v: %s", err, out)
	}
	limit := "0" // none
	if testing.Short() {
		limit = "2s"
	}
	for _, c := range scaleCases {
		b.Run("trace="+c.name, func(b *testing.B) {
			buffers := synth.Generate(c.spec, c.seed)
			if testing.Short() && len(buffers) > 100_000 {
				b.Skip("-short: seconds to minutes, and up to gigabytes of memory")
			}
			file := filepath.Join(dir, "instance.csv")
			if err := writeInstance(file, buffers); err != nil {
				b.Fatal(err)
			}
			n := float64(len(buffers))
			for b.Loop() {
				cmd := exec.Command(binary, "-q", "pack", file, "--alignment", "512", "--json", "--time-limit", limit)
				out, err := cmd.Output()
				if err != nil {
					b.Fatal(err)
				}
				var sum report.Packed
				if err := json.Unmarshal(out, &sum); err != nil {
					b.Fatal(err)
				}
				b.Logf("%d buffers: %s", len(buffers), sum.Heuristic)
				b.ReportMetric(100*sum.Gap, "%gap")
				b.ReportMetric(sum.Seconds, "pack-s")
				b.ReportMetric((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), "cpu-s")
				b.ReportMetric(float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)/1024, "peak-MiB")
			}
			b.ReportMetric(n, "buffers")
		})
	}
}

func writeInstance(name string, buffers []synth.Buffer) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "id,lower,upper,size")
	for i, b := range buffers {
		fmt.Fprintf(w, "%d,%d,%d,%d\n", i, b.Start, b.End, b.Size)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
