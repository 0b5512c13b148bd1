package compile

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// recordedSteps is a run of the program that a seed stands for.
func recordedSteps(name string, seed uint64, steps int) *trace.Trace {
	j := &steadyJob{r: rand.New(rand.NewPCG(seed, 8)), next: 1 << 20}
	j.record(steps, 6, int(seed%3), seed%2 == 0)
	return &trace.Trace{Name: name, Devices: []trace.Device{j.d}}
}

// TestMerge: a plan of two runs proves itself and both of them, has a pass for every steady
// iteration of either but one (the cut may lie within iterations), and is as large as the
// larger run's. The optimizer's state comes after the first step, so two are not steady.
func TestMerge(t *testing.T) {
	opt := Options{Mode: planfile.ModePeriodic, Producer: "test"}
	for seed := range uint64(20) {
		a, b := recordedSteps("a", seed, 4), recordedSteps("b", seed, 7)
		p, sum, err := Merge(context.Background(), []*trace.Trace{a, b}, opt)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		joined, err := Join([]*trace.Trace{a, b}, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if v := append(verify.Plan(p, nil), verify.AgainstTrace(p, joined)...); len(v) > 0 {
			t.Fatalf("seed %d: %s", seed, v[0].Message)
		}
		if n := len(p.Devices[0].Passes); n < 2+5-1 || sum.Trace != "a + b" {
			t.Errorf("seed %d: %d passes of %s", seed, n, sum.Trace)
		}
		alone, _, err := Compile(context.Background(), b, opt)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got, least := p.Devices[0].Certificate.LowerBound, alone.Devices[0].Certificate.LowerBound; got < least || seed%2 == 1 && got > least {
			t.Errorf("seed %d: lower bound %d, of the longer run alone %d", seed, got, least)
		}
	}
}

// TestMergeRefuses: recordings that have little in common, and a process that has no such
// device, are no runs of the same program.
func TestMergeRefuses(t *testing.T) {
	usual := recordedSteps("a", 1, 5)
	j := &steadyJob{r: rand.New(rand.NewPCG(1, 8)), next: 1 << 20}
	j.record(1, 6, 1, false)
	for range 4 {
		for i := range 60 {
			j.free(j.alloc(4<<10, uint64(i%2)*32))
		}
		j.mark("Optimizer.step#SGD.step")
	}
	for want, other := range map[string]*trace.Trace{
		"of its steady allocations have a slot in common": {Name: "b", Devices: []trace.Device{j.d}},
		"expected allocations, as in the first recording": {Name: "b"},
	} {
		_, _, err := Merge(context.Background(), []*trace.Trace{usual, other}, Options{Producer: "test"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected one with %q", err, want)
		}
	}
	two := recordedSteps("b", 1, 5)
	two.Devices = append(two.Devices, two.Devices[0])
	two.Devices[1].Ordinal = 1
	if _, _, err := Merge(context.Background(), []*trace.Trace{usual, two}, Options{}); err == nil || !strings.Contains(err.Error(), "expected allocations on 1 devices, found them on 2") {
		t.Errorf("error %v for another number of devices", err)
	}
}
