package trace

import (
	"os"
	"path/filepath"
	"testing"
)

// sharedTrace opens a real recording, or skips the test if the shared traces are not
// beside the checkout.
func sharedTrace(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "traces", name))
	if err != nil {
		t.Skipf("the shared traces are not here: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func BenchmarkReadSnapshot(b *testing.B) {
	for _, name := range []string{"qwen3-moe-eager.pickle.gz", "lora-stacks.pickle.gz"} {
		b.Run("trace="+name, func(b *testing.B) {
			f := sharedTrace(b, name)
			b.ReportAllocs()
			var events int
			for range b.N {
				if _, err := f.Seek(0, 0); err != nil {
					b.Fatal(err)
				}
				t, err := ReadSnapshot(f, name, Options{})
				if err != nil {
					b.Fatal(err)
				}
				events = len(t.Devices[0].Events)
			}
			b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
