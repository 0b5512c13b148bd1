package trace

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// FuzzReadSnapshot expects for every file a valid Trace or an error, and memory within
// the bound that ReadSnapshot states.
func FuzzReadSnapshot(f *testing.F) {
	files, err := filepath.Glob("testdata/snapshot/*.pickle*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, v := range []any{oneBlock(), middle(), randomSnapshot(r, 3), shuffled(r, randomSnapshot(r, 2), map[any]any{})} {
		for _, p := range []pickler{{protocol: 2, torchScript: true}, {protocol: 5}} {
			f.Add(p.pickle(v), true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, base bool) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tr, err := readBytes(data, Options{AllowNoEvents: base})
		runtime.ReadMemStats(&after)
		// All allocations count, also those that are garbage by now. The fixed part is
		// for buffers. The bound is not for compressed files, which may grow before they
		// are refused.
		limit := uint64(8<<20 + 400*len(data))
		if plain := len(data) > 0 && data[0] == 0x80; plain && after.TotalAlloc-before.TotalAlloc > limit {
			t.Errorf("%d bytes allocated for a file of %d", after.TotalAlloc-before.TotalAlloc, len(data))
		}
		if (tr == nil) == (err == nil) {
			t.Fatalf("trace %v with error %v", tr, err)
		}
		if err != nil {
			return
		}
		if err := tr.validate(base, entryOf); err != nil {
			t.Error(err)
		}
		if _, err := ReadSnapshot(bytes.NewReader(data), "again", Options{Base: tr, AllowNoEvents: true}); err != nil && len(tr.Devices) == 0 {
			t.Error(err)
		}
	})
}
