package compile

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
)

// cutOut is the recording of the events [from, to) of a device: what lived before is
// its initial state, each block in a segment of its own.
func cutOut(d *trace.Device, from, to int) trace.Device {
	cut := *d
	cut.Events, cut.Annotations, cut.Initial, cut.Final = d.Events[from:to], nil, nil, nil
	live := map[uint64]*trace.Block{}
	streams := map[uint64]uint64{}
	var order []uint64
	for i := range d.Events[:from] {
		switch e := &d.Events[i]; e.Action {
		case trace.ActionAlloc:
			live[e.Addr] = &trace.Block{Address: e.Addr, Size: trace.RoundUp(e.Size), Requested: e.Size, State: trace.BlockAllocated, Stack: trace.None}
			streams[e.Addr] = e.Stream
			order = append(order, e.Addr)
		case trace.ActionFreeRequested:
			if b := live[e.Addr]; b != nil {
				b.State = trace.BlockPendingFree
			}
		case trace.ActionFreeCompleted:
			delete(live, e.Addr)
		}
	}
	for _, addr := range order {
		if b := live[addr]; b != nil {
			cut.Initial = append(cut.Initial, trace.Segment{Address: addr, Size: b.Size, Stream: streams[addr], Blocks: []trace.Block{*b}})
			delete(live, addr)
		}
	}
	for _, a := range d.Annotations {
		if a.At >= trace.Time(from) && a.At <= trace.Time(to) {
			a.At -= trace.Time(from)
			cut.Annotations = append(cut.Annotations, a)
		}
	}
	return cut
}

// TestCutRecordings: a recording that begins or ends anywhere, at a step's boundary or
// within a step, compiles to a plan that proves itself and belongs to it.
func TestCutRecordings(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.pickle.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings in examples: %v", err)
	}
	for _, file := range files {
		whole, err := trace.ReadFile(file, trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &whole.Devices[0]
		for _, c := range cutsOf(d) {
			cut := cutOut(d, c[0], c[1])
			rec := &trace.Trace{Name: fmt.Sprintf("%s [%d, %d)", filepath.Base(file), c[0], c[1]), Devices: []trace.Device{cut}}
			p, _, err := Compile(context.Background(), rec, Options{Producer: "test"})
			if err != nil {
				t.Errorf("%s: %v", rec.Name, err)
				continue
			}
			if v := verify.AgainstTrace(p, rec); len(v) > 0 {
				t.Errorf("%s: %s", rec.Name, v[0].Message)
			}
		}
	}
}

// cutsOf are the pieces of a recording to compile: from and up to the first allocation
// after each optimizer's step and the middle between two of them, and a few around a step.
// With -short there are two: without the first step, and without the last ones.
func cutsOf(d *trace.Device) [][2]int {
	var marks []int
	for _, a := range d.Annotations {
		if a.End && strings.HasPrefix(a.Name, "Optimizer.step") {
			at := int(a.At)
			for at < len(d.Events) && d.Events[at].Action != trace.ActionAlloc {
				at++
			}
			marks = append(marks, at)
		}
	}
	n := len(d.Events)
	if len(marks) == 0 { // it ran out of memory before its first step
		return [][2]int{{n / 3, n}, {0, n / 2}}
	}
	if testing.Short() {
		return [][2]int{{marks[0], n}, {0, marks[len(marks)/2]}}
	}
	var cuts [][2]int
	for i, at := range marks {
		if i > 1 && i < len(marks)-1 && !large() {
			continue // steps in the middle are alike
		}
		cuts = append(cuts, [2]int{at, n}, [2]int{0, at})
		if i > 0 {
			middle := (marks[i-1] + at) / 2
			cuts = append(cuts, [2]int{middle, n}, [2]int{0, middle})
		}
	}
	for _, near := range []int{-3, -1, 1, 2, 5} {
		if at := marks[len(marks)/2] + near; at > 0 && at < n {
			cuts = append(cuts, [2]int{at, n}, [2]int{0, at})
		}
	}
	kept := cuts[:0]
	for _, c := range cuts {
		if c[1]-c[0] > 100 {
			kept = append(kept, c)
		}
	}
	return kept
}
