package fit_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/synth"
	"github.com/stplan/stplan/internal/trace"
)

// training is a recording of a made-up training job with sequences of a length.
func training(t *testing.T, length int64) *fit.Job {
	t.Helper()
	return made(t, synth.Training{Layers: 6, MicroBatches: [2]int{2, 2}, Steps: 4, Length: length})
}

// made is a recording of a made-up training job.
func made(t *testing.T, spec synth.Training) *fit.Job {
	t.Helper()
	buffers, steps := spec.Generate(1)
	events := map[int64]trace.Event{}
	var last int64
	for i, b := range buffers {
		addr := uint64(i+1) << 32
		events[b.Start] = trace.Event{Action: trace.ActionAlloc, Addr: addr, Size: trace.Bytes(b.Size), Stack: trace.None}
		last = max(last, b.Start)
		if b.End != synth.Never {
			events[b.End] = trace.Event{Action: trace.ActionFreeCompleted, Addr: addr, Size: trace.Bytes(b.Size), Stack: trace.None}
			last = max(last, b.End)
		}
	}
	d := trace.Device{AddressesInvented: true}
	for at := range last + 1 {
		if e, ok := events[at]; ok {
			d.Events = append(d.Events, e)
		}
	}
	for _, s := range steps { // every tick has an event
		const name = "Optimizer.step#AdamW.step"
		d.Annotations = append(d.Annotations,
			trace.Annotation{Name: name, At: trace.Time(s.Optimizer)}, trace.Annotation{Name: name, At: trace.Time(s.End), End: true})
	}
	tr := &trace.Trace{Name: "made up", Devices: []trace.Device{d}}
	j, err := fit.NewJob(tr, &tr.Devices[0], baseline.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// reserved is what an allocator takes for a job without a limit.
func reserved(t *testing.T, key string, j *fit.Job) trace.Bytes {
	t.Helper()
	for _, a := range fit.Allocators(j.Recorded, nil, nil) {
		if a.Key == key {
			answer, err := a.Try(context.Background(), j, 1<<50, 1<<50)
			if err != nil {
				t.Fatal(err)
			}
			return answer.Reserved
		}
	}
	t.Fatalf("no allocator %s", key)
	return 0
}

// TestLawsPredict: from two recordings of a job, in which weights stay and activations
// grow, the laws give every size of a third, whichever three they are, with the lengths or
// without.
func TestLawsPredict(t *testing.T) {
	lengths := []int64{128, 320, 512, 1024, 3000}
	jobs := map[int64]*fit.Job{}
	for _, n := range lengths {
		jobs[n] = training(t, n)
	}
	for _, a := range lengths {
		for _, b := range lengths {
			for _, c := range lengths {
				if a == b || b == c || a == c {
					continue
				}
				given, err := fit.FindLaws([]*fit.Job{jobs[a], jobs[b]}, []float64{float64(a), float64(b)})
				if err != nil {
					t.Fatal(err)
				}
				found, err := fit.FindLaws([]*fit.Job{jobs[a], jobs[b]}, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range []*fit.Laws{given, found} {
					x := float64(c)
					if !l.Given {
						x /= float64(a)
					}
					j, err := l.At(x)
					if err != nil {
						t.Fatal(err)
					}
					for i := range j.Timeline.Buffers {
						got, want := j.Timeline.Buffers[i], jobs[c].Timeline.Buffers[i]
						if got.Size != want.Size || got.RequestedEnd != want.RequestedEnd {
							t.Fatalf("%d and %d: buffer %d at %d is %+v, expected %+v", a, b, i, c, got, want)
						}
					}
					if got, want := reserved(t, baseline.KeyNative, j), reserved(t, baseline.KeyNative, jobs[c]); got != want {
						t.Errorf("%d and %d: native takes %d B at %d, expected %d B", a, b, got, c, want)
					}
				}
			}
		}
	}
}

// TestLawsFindSizes: recordings need not come in order, and those that do not differ are
// refused.
func TestLawsFindSizes(t *testing.T) {
	l, err := fit.FindLaws([]*fit.Job{training(t, 512), training(t, 1024), training(t, 384)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0.75, 1, 2} {
		if math.Abs(l.Sizes[i]-want) > 1e-9 {
			t.Errorf("sizes %v, expected 0.75, 1 and 2", l.Sizes)
		}
	}
	if _, err := fit.FindLaws([]*fit.Job{training(t, 512), training(t, 512)}, nil); err == nil {
		t.Error("two recordings of one size were taken")
	}
}

// TestLargest: the largest size that fits does, and the next one does not, under each
// allocator that can be tried; no allocator holds more than what is allocated allows.
func TestLargest(t *testing.T) {
	l, err := fit.FindLaws([]*fit.Job{training(t, 256), training(t, 512), training(t, 768)}, []float64{256, 512, 768})
	if err != nil {
		t.Fatal(err)
	}
	allocators := fit.Allocators(baseline.Config{}, nil, nil)
	checks, err := l.Check(context.Background(), allocators)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !c.Independent || c.Allocated.Predicted != c.Allocated.Found || c.Reserved[0].Predicted != c.Reserved[0].Found {
			t.Errorf("%+v: expected no error", c)
		}
	}
	for _, memory := range []trace.Bytes{80 << 20, 110 << 20, 150 << 20, 1 << 30} {
		largest, _, err := l.Largest(context.Background(), allocators, checks, fit.Budget{Device: memory}, func(int64, int64) {})
		if err != nil {
			t.Fatal(err)
		}
		for i, one := range largest {
			for step, want := range []bool{true, false} {
				if one.Size+float64(step) == 0 {
					continue
				}
				j, err := l.At(one.Size + float64(step))
				if err != nil {
					t.Fatal(err)
				}
				answer, err := allocators[i].Try(context.Background(), j, memory, memory)
				if err != nil || answer.Fits != want {
					t.Errorf("%d B: %s: size %g: fits %v, expected %v, %v", memory, one.Allocator.Title, one.Size+float64(step), answer.Fits, want, err)
				}
			}
			if one.Low > one.Size || one.High < one.Size {
				t.Errorf("%+v: the error bar does not hold the size", one)
			}
		}
	}
}

// TestLawsOfOtherJobs: recordings of different jobs are refused.
func TestLawsOfOtherJobs(t *testing.T) {
	a := training(t, 128)
	d := trace.Device{AddressesInvented: true}
	for i := range 1000 { // each as short-lived as can be
		d.Events = append(d.Events, trace.Event{Action: trace.ActionAlloc, Addr: uint64(i+1) << 32, Size: 512, Stack: trace.None},
			trace.Event{Action: trace.ActionFreeCompleted, Addr: uint64(i+1) << 32, Size: 512, Stack: trace.None})
	}
	other := &trace.Trace{Name: "another", Devices: []trace.Device{d}}
	b, err := fit.NewJob(other, &other.Devices[0], baseline.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = fit.FindLaws([]*fit.Job{a, b}, []float64{1, 2})
	if err == nil || !strings.Contains(err.Error(), "another: device 0: expected a recording of the same job as made up") {
		t.Errorf("laws of two jobs: %v", err)
	}
}

// TestLawsFarAway: a law far beyond the recordings does not overflow.
func TestLawsFarAway(t *testing.T) {
	l, err := fit.FindLaws([]*fit.Job{training(t, 512), training(t, 1024)}, []float64{512, 1024})
	if err != nil {
		t.Fatal(err)
	}
	j, err := l.At(1e12)
	if err != nil {
		t.Fatal(err)
	}
	if got := j.Allocated(); got < 1<<44 {
		t.Errorf("allocated %d B at 1e9 times the size, expected more than any device has", got)
	}
}
