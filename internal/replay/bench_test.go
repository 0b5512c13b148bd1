package replay

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// recorded answers with the addresses of the recording.
type recorded struct {
	buffers []lifespan.Buffer
	next    int
}

func (r *recorded) Malloc(uint64, uint64) (uint64, int, error) {
	r.next++
	return r.buffers[r.next-1].Addr, 0, nil
}

func (r *recorded) Free(uint64, uint64) error               { return nil }
func (r *recorded) RecordStream(uint64, uint64) error       { return nil }
func (r *recorded) Operations(into []Operation) []Operation { return into }

// BenchmarkJudge judges the addresses of the example recordings.
func BenchmarkJudge(b *testing.B) {
	names, err := filepath.Glob("../../examples/*/*.pickle.gz")
	if err != nil || len(names) == 0 {
		b.Fatal("no recordings in examples", err)
	}
	for _, name := range names {
		t, err := trace.ReadFile(name, trace.Options{})
		if err != nil {
			b.Fatal(err)
		}
		tl, err := lifespan.Build(&t.Devices[0])
		if err != nil {
			b.Fatal(err)
		}
		p := NewProgram(tl)
		b.Run("recording="+strings.TrimSuffix(filepath.Base(name), ".pickle.gz"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Run(p, &recorded{buffers: tl.Buffers}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
