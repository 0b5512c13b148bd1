package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
)

// replayed runs a replay and returns what it prints.
func replayed(t *testing.T, arguments string) (out report.Replayed) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := execute(strings.Fields("-q replay --json "+arguments), strings.NewReader(""), &stdout, &stderr); code != exitOK {
		t.Fatalf("%s: exit code %d: %s", arguments, code, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLearningInTheRun: a first run that learns its plan reserves no more than without, moves
// at most twice as much and what putting a plan in place moves, and is right throughout. A run
// that moves all the time gets its plan, which then serves it whole. What was live when the plan
// came moves out of its way once, so a run twice as long moves not a byte more. A run that
// reserves what it allocates goes on as it is.
func TestLearningInTheRun(t *testing.T) {
	if testing.Short() {
		t.Skip("replays long runs, which takes seconds")
	}
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	const iterations = "12"
	serves := map[string]bool{"llama7b-pp4-VR": true, "resnet50": false, "evaluation": false, "gpt2-xl-ckpt": false} // lora-oom ends in its first iteration
	for name, served := range serves {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("..", "..", "examples", name, name+".pickle.gz")
			pool := replayed(t, "--no-plan --repeat "+iterations+" "+path)
			got := replayed(t, "--no-plan --learn --repeat "+iterations+" "+path)
			l := got.Learned
			if got.Overlaps != 0 || got.Allocations != pool.Allocations || got.PeakAllocated != pool.PeakAllocated {
				t.Errorf("%d overlaps, %d allocations, peak of %d B; without learning %d and %d B", got.Overlaps, got.Allocations, got.PeakAllocated, pool.Allocations, pool.PeakAllocated)
			}
			if got.PeakReserved > pool.PeakReserved+pool.PeakReserved/200 {
				t.Errorf("%d B reserved, without learning %d", got.PeakReserved, pool.PeakReserved)
			}
			if most := 2*pool.Moved + uint64(l.Installs)*got.PeakReserved; got.Moved > most {
				t.Errorf("%d B moved, expected at most %d", got.Moved, most)
			}
			if len(l.Plans) == 0 || l.Plans[0].Iterations != 4 {
				t.Errorf("plans %+v, expected the first of 4 iterations", l.Plans)
			}
			if !served {
				if l.Installs == 0 && got.Moved != pool.Moved {
					t.Errorf("%d B moved, without learning %d", got.Moved, pool.Moved)
				}
				return
			}
			longer := replayed(t, "--no-plan --learn --repeat 24 "+path)
			if longer.Learned.Moved != l.Moved || longer.Moved != got.Moved {
				t.Errorf("%d B moved with the plan and %d in all, in a run twice as long %d and %d", l.Moved, got.Moved, longer.Learned.Moved, longer.Moved)
			}
			if l.Installs != 1 || l.PlannedBytes < 0.999 || l.Moved > got.PeakReserved/50 || l.Efficiency < 0.99 {
				t.Errorf("%d plans in place, since then %.4f of the bytes on plan, %d B moved, efficiency %.4f", l.Installs, l.PlannedBytes, l.Moved, l.Efficiency)
			}
		})
	}
}

// resnetPlan compiles the example's plan and returns its path.
func resnetPlan(t *testing.T) string {
	t.Helper()
	plan := filepath.Join(t.TempDir(), "plan.bin")
	var stdout, stderr bytes.Buffer
	if code := execute([]string{"-q", "compile", resnet, "-o", plan}, strings.NewReader(""), &stdout, &stderr); code != exitOK {
		t.Fatal(stderr.String())
	}
	return plan
}

// TestLearningInARunWithAPlan: a plan that was found and fits stays.
func TestLearningInARunWithAPlan(t *testing.T) {
	if testing.Short() {
		t.Skip("replays a long run, which takes seconds")
	}
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	plan := resnetPlan(t)
	got := replayed(t, "--learn --repeat 12 "+plan+" "+resnet)
	if l := got.Learned; len(l.Plans) != 0 || l.Installs != 0 || got.PlannedBytes < 0.999 {
		t.Errorf("plans %+v, %d in place, %.4f of the bytes on plan", l.Plans, l.Installs, got.PlannedBytes)
	}
}

// TestReplayOfAProvenPlan: --proven has larger granules, which a run that follows its plan hardly
// notices in memory: no more than one of them.
func TestReplayOfAProvenPlan(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	plan := resnetPlan(t)
	without, proven := replayed(t, plan+" "+resnet), replayed(t, "--proven "+plan+" "+resnet)
	const granule = 4 << 20 // of a plan of 11 GiB
	if more := proven.PeakReserved - without.PeakReserved; more <= 0 || more > granule {
		t.Errorf("%d B more are reserved if the plan is proven, expected some, and at most %d", more, granule)
	}
	if proven.PlannedBytes != without.PlannedBytes || proven.Overlaps != 0 {
		t.Errorf("%.6f of the bytes on plan, %.6f if it is not proven; %d overlaps", proven.PlannedBytes, without.PlannedBytes, proven.Overlaps)
	}
}
