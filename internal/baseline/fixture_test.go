package baseline

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// fixtures are the recordings in testdata with the limits that they do not hold.
var fixtures = []struct{ name, limits string }{
	{"default", ""},
	{"expandable", ""},
	{"limited", "per_process_memory_fraction:0.05,device_memory:150110011392"},
}

func readFixture(t testing.TB, name, limits string) (*trace.Device, Config) {
	t.Helper()
	tr := readTrace(t, filepath.Join("testdata", name+".pickle.gz"))
	c, err := recordedConfig(t, tr).Apply(limits)
	if err != nil {
		t.Fatal(err)
	}
	return onlyDevice(t, tr), c
}

func TestFixtures(t *testing.T) {
	for _, f := range fixtures {
		t.Run(f.name, func(t *testing.T) {
			d, c := readFixture(t, f.name, f.limits)
			checkExact(t, d, c)
			checkOwnPeaks(t, d, c)
		})
	}
}

// TestOtherAllocators simulates each kind of allocator on the recording of the other
// kind, and compares what it reserves with what was recorded under it: both fixtures
// are of one program.
func TestOtherAllocators(t *testing.T) {
	native, c := readFixture(t, "default", "")
	expandable, e := readFixture(t, "expandable", "")
	for _, tc := range []struct {
		name     string
		from, to *trace.Device
		c        Config
	}{
		{"expandable from native", native, expandable, Expandable(c)},
		{"native from expandable", expandable, native, Native(e)},
	} {
		r, err := simulate(tc.from, tc.c, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := FromRecording(tc.to).PeakReserved
		off := float64(r.PeakReserved-want) / float64(want)
		t.Logf("%s: simulated %d, recorded %d, %+.3f %%", tc.name, r.PeakReserved, want, 100*off)
		if off < -0.005 || off > 0.005 {
			t.Errorf("%s: simulated %d, recorded %d", tc.name, r.PeakReserved, want)
		}
	}
}

// TestPerturbedRules shows that the self-check can fail: it notices each change of a
// rule that the recording depends on.
func TestPerturbedRules(t *testing.T) {
	for _, tc := range []struct {
		name, fixture string
		change        func(*Config)
	}{
		{"no fraction", "limited", func(c *Config) { c.MemoryFraction = 0 }},
		{"larger fraction", "limited", func(c *Config) { c.MemoryFraction = 0.055 }},
		{"smaller fraction", "limited", func(c *Config) { c.MemoryFraction = 0.045 }},
		{"collection threshold", "limited", func(c *Config) { c.GCThreshold = 0.6 }},
		{"non-split rounding", "limited", func(c *Config) { c.MaxNonSplitRounding = 64 * mib }},
		{"maximal split size", "limited", func(c *Config) { c.MaxSplitSize = 128 * mib }},
		{"divisions", "limited", func(c *Config) { c.Divisions[5] = 8 }},
		{"large segments", "default", func(c *Config) { c.LargeSegmentSize = 24 * mib }},
		{"divisions on", "default", func(c *Config) { c.Divisions[0] = 8 }},
		{"another kind", "default", func(c *Config) { c.Expandable = true }},
		{"a full card", "default", func(c *Config) { c.DeviceMemory = 1024 * mib }},
		{"larger pages", "expandable", func(c *Config) { c.LargeSegmentSize = 24 * mib }},
		{"another kind", "expandable", func(c *Config) { c.Expandable = false }},
	} {
		for _, f := range fixtures {
			if f.name != tc.fixture {
				continue
			}
			d, c := readFixture(t, f.name, f.limits)
			tc.change(&c)
			k, err := selfCheck(d, c, nil)
			if err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			if k.Matched >= k.Total || k.First == nil {
				t.Errorf("%s of %s: the self-check still finds %d / %d", tc.name, tc.fixture, k.Matched, k.Total)
			}
		}
	}
}

func TestMismatchText(t *testing.T) {
	d, c := readFixture(t, "default", "")
	c.LargeSegmentSize = 24 * mib
	k, err := selfCheck(d, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "entry 18: recorded segment_alloc of 20971520 B at 0x7f78f0000000 for stream 0, " +
		"simulated segment_alloc of 25165824 B at 0x7f78f0000000 for stream 0"
	if got := k.First.String(); got != want {
		t.Errorf("first mismatch:\n%s\nexpected:\n%s", got, want)
	}
	d, c = readFixture(t, "limited", "")
	if k, err = selfCheck(d, c, nil); err != nil {
		t.Fatal(err)
	}
	if len(k.Hints) != 1 || k.Hints[0] != "garbage collection works against a memory fraction, which the recording does not hold" {
		t.Errorf("hints: %q", k.Hints)
	}
}

// readRows reads a compressed JSON array of arrays.
func readRows(t *testing.T, path string) (rows [][]any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// logged is one line of what the recorded program saw.
type logged struct {
	act                 string
	requested, addr     int64
	reserved, allocated trace.Bytes
}

func readLog(t *testing.T, path string) []logged {
	t.Helper()
	var log []logged
	for _, l := range readRows(t, path) {
		n := len(l)
		e := logged{act: l[0].(string), reserved: trace.Bytes(l[n-2].(float64)), allocated: trace.Bytes(l[n-1].(float64))}
		switch e.act {
		case "a":
			e.requested, e.addr = int64(l[1].(float64)), int64(l[3].(float64))
		case "f":
			e.addr = int64(l[1].(float64))
		}
		log = append(log, e)
	}
	return log
}

// TestRunningTotals compares the counters after every operation with those that
// PyTorch reported to the program at the time.
func TestRunningTotals(t *testing.T) {
	for _, f := range fixtures {
		t.Run(f.name, func(t *testing.T) {
			d, c := readFixture(t, f.name, f.limits)
			log := readLog(t, filepath.Join("testdata", f.name+".log.json.gz"))
			p, err := ReadProgram(d, c)
			if err != nil {
				t.Fatal(err)
			}
			k, err := newChecker(p, c)
			if err != nil {
				t.Fatal(err)
			}
			next := 0
			advance := func(kind opKind) *op {
				for {
					o := &p.ops[next]
					next++
					k.step(o)
					if o.kind == kind {
						return o
					}
				}
			}
			for i, l := range log {
				switch l.act {
				case "a":
					b := p.buffers[advance(opAlloc).buffer]
					if int64(b.Size) != l.requested || int64(b.addr) != l.addr {
						t.Fatalf("line %d: the log has %+v, the recording %+v", i, l, b)
					}
				case "f":
					if b := p.buffers[advance(opFree).buffer]; int64(b.addr) != l.addr {
						t.Fatalf("line %d: the log has %+v, the recording %+v", i, l, b)
					}
				case "e":
					advance(opEmptyCache)
				}
				if now := k.allocator.Stats(); now.Reserved != l.reserved || now.Allocated != l.allocated {
					t.Fatalf("line %d, %s: reserved %d and allocated %d, simulated %+v", i, l.act, l.reserved, l.allocated, now)
				}
			}
			if len(log) < 2000 {
				t.Errorf("the log has only %d lines", len(log))
			}
		})
	}
}

func TestOutOfMemory(t *testing.T) {
	d, c := readFixture(t, "default", "")
	free, err := simulate(d, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.DeviceMemory = free.PeakReserved * 3 / 4
	r, err := simulate(d, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := r.OOM
	if o == nil || r.Retries == 0 {
		t.Fatalf("a card of three quarters of the peak was large enough: %+v", r)
	}
	e := d.Events[o.Event]
	if e.Action != trace.ActionAlloc || e.Size != o.Requested || e.Stream != o.Stream {
		t.Errorf("out of memory at %+v: %+v", e, o)
	}
	if r.PeakReserved > c.DeviceMemory || o.Reserved > c.DeviceMemory || o.Usage != r.final || o.Reserved+o.Requested <= c.DeviceMemory {
		t.Errorf("card of %d B: %+v, out of memory %+v", c.DeviceMemory, r, o)
	}
	c.UsableMemory, c.DeviceMemory = free.PeakReserved, 2*free.PeakReserved
	if r, err = simulate(d, c, nil); err != nil || r.OOM != nil || r.PeakReserved != free.PeakReserved {
		t.Errorf("with just enough memory: %+v, %v", r, err)
	}
}
