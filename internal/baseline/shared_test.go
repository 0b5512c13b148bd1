package baseline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// sharedTraces is the folder of recordings beside the repository. A clone does not
// have it; the fixtures in testdata cover the same code.
func sharedTraces(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../../../shared/traces")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no recordings beside the repository: ", err)
	}
	return dir
}

func readTrace(t testing.TB, path string) *trace.Trace {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := trace.ReadSnapshot(f, filepath.Base(path), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// onlyDevice is the device with events.
func onlyDevice(t testing.TB, tr *trace.Trace) *trace.Device {
	t.Helper()
	for i := range tr.Devices {
		if len(tr.Devices[i].Events) > 0 {
			return &tr.Devices[i]
		}
	}
	t.Fatal("no device has events")
	return nil
}

func recordedConfig(t testing.TB, tr *trace.Trace) Config {
	t.Helper()
	c, err := RecordedConfig(tr.Settings)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// limits are those of the recordings that ran under limits, by file.
var limits = map[string]string{"c.pickle.gz": "per_process_memory_fraction:0.05,device_memory:150110011392"}

type manifestEntry struct {
	File          string
	PeakReserved  trace.Bytes `json:"peak_reserved_bytes_recorded"`
	PeakAllocated trace.Bytes `json:"peak_allocated_bytes"`
	PeakActive    trace.Bytes `json:"peak_active_bytes"`
}

// thirdParty is the folder, beside the one of sharedTraces, with recordings of programs
// that were not written to be recorded.
const thirdParty = "../traces-third-party"

func manifest(t testing.TB) map[string]manifestEntry {
	t.Helper()
	m := make(map[string]manifestEntry)
	for _, folder := range []string{".", thirdParty} {
		raw, err := os.ReadFile(filepath.Join(sharedTraces(t), folder, "MANIFEST.json"))
		if err != nil {
			t.Fatal(err)
		}
		var list []manifestEntry
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			m[e.File] = e
		}
	}
	return m
}

// measuredExpandable are peaks of reserved memory that were measured on a GPU
// with expandable segments, for jobs recorded without.
var measuredExpandable = map[string]trace.Bytes{
	"llama-7b-lora-varlen.pickle.gz":        20_040_384_512,
	"gpt2-xl-ckpt.pickle.gz":                24_171_773_952,
	"llama-3b-fsdp2-world8-seed1.pickle.gz": 41_655_730_176,
	"qwen3-moe-eager.pickle.gz":             43_232_788_480,
	"llama7b-pp4-VR.pickle.gz":              46_879_735_808,
	"moe16-pp2-N.pickle.gz":                 27_814_526_976,
}

// TestSharedRecordings does with every recording beside the repository what diff
// does: find its peaks, reproduce it, and simulate the other allocator.
func TestSharedRecordings(t *testing.T) {
	dir := sharedTraces(t)
	expected := manifest(t)
	var files []string
	for _, pattern := range []string{"*.pickle.gz", "sim/*.pickle*", thirdParty + "/*.pickle.gz"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 30 {
		t.Fatalf("only %d recordings in %s", len(files), dir)
	}
	for _, path := range files {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			tr := readTrace(t, path)
			d := onlyDevice(t, tr)
			c, err := recordedConfig(t, tr).Apply(limits[name])
			if err != nil {
				t.Fatal(err)
			}
			checkExact(t, d, c)
			checkOwnPeaks(t, d, c)
			if want, ok := expected[name]; ok {
				checkManifest(t, d, want)
				delete(expected, name)
			}
			if measured, ok := measuredExpandable[name]; ok {
				checkMeasured(t, d, Expandable(c), measured)
			}
			if native, ok := strings.CutSuffix(name, "-expandable.pickle.gz"); ok {
				checkNativeOf(t, d, Native(c), readTrace(t, filepath.Join(dir, native+".pickle.gz")))
			}
		})
	}
	for name := range expected {
		t.Errorf("%s is in the manifest and not among the files", name)
	}
}

func checkExact(t *testing.T, d *trace.Device, c Config) {
	t.Helper()
	k, err := selfCheck(d, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if k.Matched != k.Total || k.First != nil || k.Total == 0 {
		t.Errorf("self-check %d / %d: %v %v", k.Matched, k.Total, k.First, k.Hints)
	}
}

// checkOwnPeaks simulates the recorded allocator without the recorded driver.
func checkOwnPeaks(t *testing.T, d *trace.Device, c Config) {
	t.Helper()
	r, err := simulate(d, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := FromRecording(d)
	if r.PeakReserved != rec.PeakReserved || r.OOM != nil {
		t.Errorf("simulated peak reserved %d, recorded %d; out of memory: %v", r.PeakReserved, rec.PeakReserved, r.OOM)
	}
	if r.PeakAllocated < rec.PeakAllocated || r.PeakActive < rec.PeakActive || r.PeakActive > r.PeakReserved {
		t.Errorf("simulated peaks: allocated %d, active %d, reserved %d; recorded %+v", r.PeakAllocated, r.PeakActive, r.PeakReserved, rec)
	}
}

func checkManifest(t *testing.T, d *trace.Device, want manifestEntry) {
	t.Helper()
	rec := FromRecording(d)
	if got := (manifestEntry{want.File, rec.PeakReserved, rec.PeakAllocated, rec.PeakActive}); got != want {
		t.Errorf("recorded peaks %+v, expected %+v", got, want)
	}
}

// checkMeasured allows half a per cent: another run differs a little from the
// recorded one.
func checkMeasured(t *testing.T, d *trace.Device, c Config, measured trace.Bytes) {
	t.Helper()
	r, err := simulate(d, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	off := 100 * float64(r.PeakReserved-measured) / float64(measured)
	message := fmt.Sprintf("expandable: simulated %d, measured %d, %+.3f %%", r.PeakReserved, measured, off)
	if off < -0.5 || off > 0.5 {
		t.Error(message)
	}
	t.Log(message)
}

// checkNativeOf simulates the native allocator from a recording made under
// expandable segments and compares it with a recording of the same job.
func checkNativeOf(t *testing.T, d *trace.Device, c Config, native *trace.Trace) {
	t.Helper()
	r, err := simulate(d, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := FromRecording(onlyDevice(t, native)).PeakReserved; r.PeakReserved != want {
		t.Errorf("native from the expandable recording: %d, recorded natively: %d", r.PeakReserved, want)
	}
}
