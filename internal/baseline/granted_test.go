package baseline

import (
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// TestGranted: with the request that failed served, an allocator without limits holds at
// least that much more than the program held; with the recorded limits it runs out at
// the event at which the recording did.
func TestGranted(t *testing.T) {
	for _, c := range []struct{ path, limits string }{
		{"testdata/corners/oom.pickle.gz", cornerLimits},
		{"testdata/corners/expand_oom.pickle.gz", cornerLimits},
		{"../../examples/lora-oom/lora-oom.pickle.gz", "usable_memory:19188940800"},
	} {
		tr := readTrace(t, filepath.FromSlash(c.path))
		d := onlyDevice(t, tr)
		failures := d.Failures()
		fatal := failures.FatalAt()
		if fatal < 0 {
			t.Fatalf("%s does not end in an out-of-memory", c.path)
		}
		recorded := recordedConfig(t, tr)
		p, err := ReadProgram(d, recorded)
		if err != nil {
			t.Fatal(err)
		}
		granted := p.Granted()
		if len(granted.ops) != len(p.ops)+2 {
			t.Errorf("%s: %d operations, expected 2 more than %d", c.path, len(granted.ops), len(p.ops))
		}
		limited, err := recorded.Apply(c.limits)
		if err != nil {
			t.Fatal(err)
		}
		stopped := simulateOn(t, granted, limited)
		if stopped.OOM == nil || stopped.OOM.Event != fatal {
			t.Errorf("%s: with the recorded limits it stops at %+v, the recording at event %d", c.path, stopped.OOM, fatal)
		}
		if free := simulateOn(t, granted, recorded); free.OOM != nil || free.PeakAllocated < stopped.OOM.Allocated+d.Events[fatal].Size {
			t.Errorf("%s: without limits %+v, expected at least the %d B then held and the %d B that failed", c.path, free, stopped.OOM.Allocated, d.Events[fatal].Size)
		}
	}
}

func simulateOn(t *testing.T, p *Program, c Config) Result {
	t.Helper()
	r, err := Simulate(p, Caching("", "", c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGrantedOthers: nothing changes in a recording that does not end in one.
func TestGrantedOthers(t *testing.T) {
	tr := readTrace(t, filepath.Join("testdata", "corners", "maxsplit.pickle.gz"))
	p, err := ReadProgram(onlyDevice(t, tr), recordedConfig(t, tr))
	if err != nil {
		t.Fatal(err)
	}
	if p.Granted() != p {
		t.Error("another program")
	}
}

// TestReservedAt counts segments as the recording itself does at its end.
func TestReservedAt(t *testing.T) {
	for _, name := range []string{"oom", "expand_oom", "mid"} {
		d := onlyDevice(t, readTrace(t, filepath.Join("testdata", "corners", name+".pickle.gz")))
		var want trace.Bytes
		for _, s := range d.Final {
			want += s.Size
		}
		if got := ReservedAt(d, trace.Time(len(d.Events)-1)); got != want {
			t.Errorf("%s: %d B reserved, the allocator had %d", name, got, want)
		}
	}
}

// TestPeakReservedAt: ReservedAt has the peak first at that event.
func TestPeakReservedAt(t *testing.T) {
	d, c := readFixture(t, "default", "")
	at, most := PeakReservedAt(d), FromRecording(d).PeakReserved
	if at < 1 || ReservedAt(d, at) != most || ReservedAt(d, at-1) >= most {
		t.Errorf("%d B at event %d, %d B before, %d at the peak", ReservedAt(d, at), at, ReservedAt(d, at-1), most)
	}
	// The simulation serves the request whose segment that was: the next allocation.
	r, err := simulate(d, c, nil)
	if err != nil || r.PeakAt != at+1 || d.Events[r.PeakAt].Action != trace.ActionAlloc {
		t.Errorf("%+v, %v, expected a peak at %d", r, err, at+1)
	}
	if at := PeakReservedAt(&trace.Device{}); at != -1 {
		t.Errorf("an empty recording has its peak at %d", at)
	}
}
