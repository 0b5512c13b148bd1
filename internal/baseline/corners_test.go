package baseline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// cornerLimits are the limits of the recordings that ran out of memory on purpose.
const cornerLimits = "per_process_memory_fraction:0.02,device_memory:150109880320"

// TestCorners reproduces, to the last address, recordings of what training seldom
// does.
func TestCorners(t *testing.T) {
	for _, c := range []struct{ name, limits string }{
		{"graphs", ""},               // a CUDA graph's private pool
		{"compile", ""},              // graphs that torch.compile captures
		{"mempool", ""},              // a MemPool of the user's
		{"oom", cornerLimits},        // out of memory, caught, and retried
		{"expand_oom", cornerLimits}, // the same with expandable segments
		{"maxsplit", ""},             // max split, a list of divisions, garbage collection
		{"mid", ""},                  // recording began in the middle, a free pending
		{"ring", ""},                 // the oldest entries were overwritten
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := readTrace(t, filepath.Join("testdata", "corners", c.name+".pickle.gz"))
			conf, err := recordedConfig(t, tr).Apply(c.limits)
			if err != nil {
				t.Fatal(err)
			}
			checkExact(t, onlyDevice(t, tr), conf)
		})
	}
}

// TestCornerBase expects the initial state to be exact with the snapshot taken when
// recording began, and the state inferred without it to agree.
func TestCornerBase(t *testing.T) {
	read := func(name string, opt trace.Options) *trace.Trace {
		f, err := os.Open(filepath.Join("testdata", "corners", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		tr, err := trace.ReadSnapshot(f, name, opt)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	inferred := onlyDevice(t, read("base.pickle.gz", trace.Options{}))
	tr := read("base.pickle.gz", trace.Options{Base: read("base0.pickle.gz", trace.Options{AllowNoEvents: true})})
	exact := onlyDevice(t, tr)
	if exact.InitialInferred || !inferred.InitialInferred {
		t.Errorf("inferred: %v with a base, %v without", exact.InitialInferred, inferred.InitialInferred)
	}
	checkExact(t, exact, recordedConfig(t, tr))
	if got, want := FromRecording(inferred), FromRecording(exact); got != want {
		t.Errorf("without the base %+v, with it %+v", got, want)
	}
}
