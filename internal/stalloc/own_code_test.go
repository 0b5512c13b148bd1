package stalloc

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// TestReservesAsItsOwnCode compares the simulator with what STAlloc's own code
// (github.com/infinigence/STAlloc at 3a9f97f), compiled as it is against a simulated device,
// reserved for made-up jobs of which three iterations were traced. A line of
// testdata/own_code.txt is "JOB ENTRY BYTES": reserved bytes after the operation of this entry, if
// they were others after the one before.
func TestReservesAsItsOwnCode(t *testing.T) {
	text, err := os.ReadFile("testdata/own_code.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	var got []string
	for n, job := range madeUpJobs() {
		last := trace.Bytes(-1)
		_, err := baseline.Follow(job.program, job.traced(t).Allocator(), nil, func(at trace.Time, reserved trace.Bytes) {
			if reserved != last {
				got = append(got, fmt.Sprint(n, at, reserved))
			}
			last = reserved
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("line %d is missing, expected %q", i+1, want[i])
		case i >= len(want):
			t.Fatalf("line %d is %q, expected none", i+1, got[i])
		case got[i] != want[i]:
			t.Fatalf("line %d is %q, expected %q", i+1, got[i], want[i])
		}
	}
}

// madeUpJob is a job that was never run.
type madeUpJob struct {
	device  *trace.Device
	program *baseline.Program
}

// traced is the trace of the job's first three iterations.
func (j *madeUpJob) traced(t *testing.T) *Trace {
	tl, err := lifespan.Build(j.device)
	if err != nil {
		t.Fatal(err)
	}
	it, err := lifespan.FindIterations(&trace.Stacks{}, j.device, tl, nil)
	if err != nil {
		t.Fatal(err)
	}
	traced, why := NewTrace(tl, it, 3)
	if why != "" {
		t.Fatalf("not traced: %s", why)
	}
	return traced
}

// madeUp is a job drawn from a seed, with this number of requests in each step: weights, states that
// the first optimizer step leaves, requests whose lives cross, some of them into the next step
// or from before the first, requests of 128 MiB and more, more small ones in the ninth step
// than before, and after step changed one request more in each.
func madeUp(seed, requests, changed int) *madeUpJob {
	d := &trace.Device{}
	size := make(map[uint64]trace.Bytes)
	next := uint64(1) << 40
	alloc := func(n trace.Bytes) uint64 {
		next += 1 << 32
		size[next] = n
		d.Events = append(d.Events, trace.Event{Action: trace.ActionAlloc, Addr: next, Size: n, Pool: -1})
		return next
	}
	free := func(a uint64) {
		for _, action := range []trace.Action{trace.ActionFreeRequested, trace.ActionFreeCompleted} {
			d.Events = append(d.Events, trace.Event{Action: action, Addr: a, Size: size[a], Pool: -1})
		}
	}
	const steps = 11
	sizes := []trace.Bytes{700, 4000, 4096, 1 << 20, 1500000, 3<<20 + 4, 4 << 20, 5 << 20, 9 << 20, 24<<20 + 1536, 130 << 20}
	for i := range 12 {
		alloc(trace.Bytes(1<<20 + 1000*i))
	}
	crossing := []uint64{alloc(6 << 20), alloc(6 << 20)}
	for step := range steps {
		kept := crossing
		crossing = nil
		x := uint32(seed) // each step draws the same numbers
		draw := func(n int) int {
			x = x*1664525 + 1013904223
			return int(x>>16) % n
		}
		if step > changed {
			free(alloc(5000))
		}
		for i := range requests {
			a := alloc(sizes[draw(len(sizes))])
			if i%9 == 8 {
				crossing = append(crossing, a)
			} else {
				kept = append(kept, a)
			}
			for range draw(3) {
				if len(kept) > 0 {
					k := draw(len(kept))
					free(kept[k])
					kept = append(kept[:k], kept[k+1:]...)
				}
			}
		}
		for range 3 + step/8*5 {
			kept = append(kept, alloc(300))
		}
		for i := range 6 {
			if step == 0 {
				alloc(trace.Bytes(2<<20 + 100*i))
			}
		}
		for _, end := range []bool{false, true} {
			d.Annotations = append(d.Annotations, trace.Annotation{Name: "Optimizer.step#SGD.step", End: end, At: trace.Time(len(d.Events))})
		}
		for _, a := range kept {
			free(a)
		}
	}
	j := &madeUpJob{device: d}
	var err error
	if j.program, err = baseline.ReadProgram(d, baseline.Config{}); err != nil {
		panic(err) // the job is ours
	}
	return j
}

// madeUpJobs are the jobs of testdata/own_code.txt: one that goes on as it was traced, and two
// that change.
func madeUpJobs() []*madeUpJob {
	return []*madeUpJob{madeUp(1, 200, 99), madeUp(2, 60, 99), madeUp(2, 90, 5), madeUp(3, 60, 7), madeUp(11, 200, 4)}
}
