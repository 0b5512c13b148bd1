package lifespan

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// sharedTraces are the folders with real recordings, beside the checkout: of programs that
// were written to be recorded, and of programs that were not. A clone alone has neither.
var sharedTraces = []string{"../../../shared/traces", "../../../shared/traces-third-party"}

type recording struct {
	path           string // of the file
	foreign        bool   // of a program that was not written to be recorded
	File           string `json:"file"`
	Kind           string `json:"kind"`
	Events         int    `json:"events"`
	Device         int    `json:"device"`
	PeakAllocated  int64  `json:"peak_allocated_bytes"`
	PeakActive     int64  `json:"peak_active_bytes"`
	OptimizerSteps int    `json:"optimizer_steps"`
}

// forShared runs check for each real recording, and skips the test if there are none.
func forShared(t *testing.T, check func(t *testing.T, r recording, d *trace.Device)) {
	for _, r := range sharedRecordings(t) {
		t.Run(r.File, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && r.Events > 200_000 {
				t.Skip("long recording")
			}
			tr, err := trace.ReadFile(r.path, trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range tr.Devices {
				if d := &tr.Devices[i]; d.Ordinal == r.Device {
					check(t, r, d)
					return
				}
			}
			t.Fatalf("no device %d", r.Device)
		})
	}
}

// sharedRecordings lists the real recordings, and skips the test if there are none.
func sharedRecordings(t *testing.T) []recording {
	var all []recording
	for i, folder := range sharedTraces {
		raw, err := os.ReadFile(filepath.Join(folder, "MANIFEST.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var manifest []recording
		if err := errors.Join(err, json.Unmarshal(raw, &manifest)); err != nil {
			t.Fatal(err)
		}
		for _, r := range manifest {
			r.path, r.foreign = filepath.Join(folder, r.File), i > 0
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		t.Skip("no recordings beside this checkout")
	}
	return all
}

// withoutAnnotations is d as a recorder without annotations would have made it.
func withoutAnnotations(d *trace.Device) *trace.Device {
	bare := *d
	bare.Annotations = nil
	return &bare
}

// TestShared compares the peaks with the known peaks of the recordings, the iterations
// with the number of optimizer steps, and the iterations found from the sequence alone
// with those from annotations.
func TestShared(t *testing.T) {
	forShared(t, func(t *testing.T, r recording, d *trace.Device) {
		if len(d.Events) != r.Events {
			t.Fatalf("%d events, expected %d", len(d.Events), r.Events)
		}
		tl := build(t, d)
		if int64(tl.PeakAllocated.Bytes) != r.PeakAllocated || int64(tl.PeakActive.Bytes) != r.PeakActive {
			t.Errorf("peaks %v and %v, expected %d and %d", tl.PeakAllocated, tl.PeakActive, r.PeakAllocated, r.PeakActive)
		}
		found := find(t, withoutAnnotations(d), tl)
		if found.Source != "periodicity" {
			t.Fatalf("without annotations: %d iterations from %s", found.Count, found.Source)
		}
		if r.OptimizerSteps == 0 {
			t.Logf("%d iterations, %v", found.Count, found.Starts)
			return
		}
		marked := find(t, d, tl)
		compareWithSteps(t, r, d, marked)
		comparePeriods(t, marked, found, stepBegins(marked))
	})
}

func find(t testing.TB, d *trace.Device, tl *Timeline) Iterations {
	it, err := FindIterations(&trace.Stacks{}, d, tl, nil)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// compareWithSteps checks the iterations from annotations: one for each step, or one for
// each pair of steps without an allocation between them.
func compareWithSteps(t *testing.T, r recording, d *trace.Device, it Iterations) {
	marker, err := FindIterations(&trace.Stacks{}, d, build(t, d), regexp.MustCompile("^Optimizer.step"))
	steps := r.OptimizerSteps
	if n := len(d.Annotations); d.Annotations[n-1].At == trace.Time(len(d.Events)) && !d.Annotations[n-1].End {
		steps-- // the recording ends where the last one begins, so that begins no iteration
	}
	if err != nil || marker.Count != steps {
		t.Errorf("%d iterations with the optimizer's steps as markers, expected %d (%v)", marker.Count, steps, err)
	}
	if per := r.OptimizerSteps / it.Count; per*it.Count != r.OptimizerSteps || per > 2 || it.Source == "none" {
		t.Errorf("%d iterations of %d steps, from %s", it.Count, r.OptimizerSteps, it.Source)
	}
	if it.SteadyStart != it.Starts[1] || it.SteadyCount != it.Count-1 {
		t.Errorf("steady from %d on for %d iterations; expected all but the first, of %v", it.SteadyStart, it.SteadyCount, it.Starts)
	}
}

// stepBegins estimates where steps begin, as late as may be: the shortest steady iteration
// before they end. What runs before that is an evaluation or a checkpoint.
func stepBegins(it Iterations) []trace.Time {
	shortest := it.Starts[it.Count] - it.Starts[it.Count-1]
	for i := 1; i < it.Count; i++ {
		shortest = min(shortest, it.Starts[i+1]-it.Starts[i])
	}
	begins := []trace.Time{0}
	for _, end := range it.Starts[2:] {
		begins = append(begins, end-shortest)
	}
	return begins
}

// comparePeriods wants the same number of iterations, cut at nearly the same places:
// those of marked end with the optimizer's step, those of found at the place near it
// with the least live bytes. begins are the starts of the steps if they are known: what
// runs between two steps may belong to either.
func comparePeriods(t *testing.T, marked, found Iterations, begins []trace.Time) {
	if found.Count != marked.Count {
		t.Fatalf("%d iterations, %v, expected %d, %v", found.Count, found.Starts, marked.Count, marked.Starts)
	}
	var shifts []trace.Time
	for i := 1; i <= marked.Count; i++ {
		low, high := marked.Starts[i], marked.Starts[i]
		if i < len(begins) {
			high = begins[i]
		}
		slack := (marked.Starts[i] - marked.Starts[i-1]) / 8
		if got := found.Starts[i]; got < low-slack || got > high+slack {
			t.Errorf("iteration %d ends at %d, expected in [%d, %d] or near", i-1, got, low, high)
		}
		shifts = append(shifts, found.Starts[i]-low)
	}
	if found.SteadyCount != marked.SteadyCount {
		t.Errorf("%d steady iterations, expected %d", found.SteadyCount, marked.SteadyCount)
	}
	t.Logf("%d iterations, shifted by %v of %v", found.Count, shifts, marked.Starts)
}
