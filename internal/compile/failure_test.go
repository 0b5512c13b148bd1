package compile

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

func compiled(t *testing.T, tr *trace.Trace) *planfile.Plan {
	t.Helper()
	p, _, err := Compile(context.Background(), tr, Options{Producer: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestFailedRequestHasPlace: the plan of a recording that ends in an out-of-memory has a
// place for the request that failed, verify demands it, and what would have fitted is
// said of each allocator.
func TestFailedRequestHasPlace(t *testing.T) {
	tr, err := trace.ReadFile("../../examples/lora-oom/lora-oom.pickle.gz", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &tr.Devices[0]
	p, sum, err := Compile(context.Background(), tr, Options{Producer: "test"})
	if err != nil {
		t.Fatal(err)
	}
	last := p.Devices[0].Slots[len(p.Devices[0].Slots)-1]
	f := FailureOf(d)
	if int64(last.Start) != f.Event || int64(last.Requested) != f.Requested || last.RequestedEnd != last.Start+1 {
		t.Errorf("the last slot is %+v, expected the %d B that failed at event %d", last, f.Requested, f.Event)
	}
	row := sum.Devices[0]
	if row.Failure == nil || *row.Failure != *f || row.WouldFit == nil {
		t.Fatalf("%+v and %+v in the summary, expected %+v", row.Failure, row.WouldFit, f)
	}
	// 17.87 GiB: what cut.py left the process.
	if w := row.WouldFit; w.Available == nil || *w.Available != 19188940800 || *w.Native.Fits || !*w.Expandable.Fits || !*w.Plan.Fits {
		t.Errorf("would fit: %+v", w)
	}
	if w := row.WouldFit; w.Native.PeakReserved <= *w.Available || *w.Expandable.Within > *w.Available || w.Plan.PeakReserved != row.PlanBytes {
		t.Errorf("would fit: %+v, the plan takes %d B", w, row.PlanBytes)
	}

	without := *tr
	without.Devices = []trace.Device{*d}
	without.Devices[0].Events = d.Events[:f.Event]
	shorter := compiled(t, &without)
	if shorter.Devices[0].ArenaBytes >= p.Devices[0].ArenaBytes {
		t.Errorf("the plan takes %d B with the request and %d without", p.Devices[0].ArenaBytes, shorter.Devices[0].ArenaBytes)
	}
	// A plan without a place for it is not the plan of this recording.
	forged := *shorter
	forged.Devices = []planfile.Device{shorter.Devices[0]}
	forged.Devices[0].Fingerprint, forged.Devices[0].Events = p.Devices[0].Fingerprint, p.Devices[0].Events
	found := false
	for _, v := range verify.AgainstTrace(&forged, tr) {
		found = found || v.Rule == verify.RuleBuffer
	}
	if !found {
		t.Error("verify accepts a plan without a place for the request that failed")
	}
}

// TestSurvivedRequestHasNone: requests that the program survived are in no plan.
func TestSurvivedRequestHasNone(t *testing.T) {
	tr, err := trace.ReadFile("../baseline/testdata/corners/oom.pickle.gz", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	allocations := 0
	for _, e := range tr.Devices[0].Events {
		if e.Action == trace.ActionAlloc {
			allocations++
		}
	}
	_, sum, err := Compile(context.Background(), tr, Options{Producer: "test"})
	if err != nil {
		t.Fatal(err)
	}
	row := sum.Devices[0]
	if row.Buffers != allocations+1 || row.Failure.Count != 5 {
		t.Errorf("%d buffers and %d failures, expected the %d allocations and the last request, and 5", row.Buffers, row.Failure.Count, allocations)
	}
	// The driver had 136 GiB, so a limit that is not recorded stopped it: what fits is
	// said of what the process once held and of nothing more.
	w := row.WouldFit
	if w.Available != nil || *w.Native.Fits || w.Expandable.Fits != nil || w.Plan.Fits == nil || !*w.Plan.Fits || w.Plan.PeakReserved > w.Held {
		t.Errorf("would fit: %+v", w)
	}
}

// TestFailureAnywhere: a recording that runs out of memory anywhere, at the boundary of
// a step or within one, compiles to a plan that proves itself, with the request counted.
func TestFailureAnywhere(t *testing.T) {
	for _, name := range []string{"resnet50", "evaluation"} {
		whole, err := trace.ReadFile("../../examples/"+name+"/"+name+".pickle.gz", trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &whole.Devices[0]
		periodic := 0
		for _, c := range cutsOf(d) {
			cut := cutOut(d, c[0], c[1])
			const request = 3 << 30
			cut.Events = append(slices.Clone(cut.Events), trace.Event{Action: trace.ActionOOM, Addr: 1 << 20, Size: request, Stack: trace.None})
			rec := &trace.Trace{Name: fmt.Sprintf("%s [%d, %d)", name, c[0], c[1]), Devices: []trace.Device{cut}}
			p, sum, err := Compile(context.Background(), rec, Options{Producer: "test"})
			if err != nil {
				t.Errorf("%s: %v", rec.Name, err)
				continue
			}
			row := sum.Devices[0]
			if row.WouldFit == nil || row.PeakAllocated < request || row.WouldFit.Plan.PeakReserved < row.PeakAllocated {
				t.Errorf("%s: peak allocated %d B and would fit %+v; expected the %d B that failed in both", rec.Name, row.PeakAllocated, row.WouldFit, request)
			}
			if p.Devices[0].Mode == planfile.ModePeriodic {
				periodic++
			}
		}
		if periodic == 0 {
			t.Errorf("%s: no plan was periodic", name)
		}
	}
}
