package fit_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/synth"
)

// TestLengths: from one recording in which every micro-batch has another length, the job
// with the longest everywhere is predicted, and so are shorter and longer ones.
func TestLengths(t *testing.T) {
	for _, batches := range []int{1, 2, 3} {
		spec := synth.Training{Layers: 6, MicroBatches: [2]int{batches, batches}, Steps: 6, Lengths: true}
		varied := made(t, spec)
		l, err := fit.FindLengths(varied)
		if err != nil || l == nil {
			t.Fatalf("%d micro-batches: %v, %v", batches, l, err)
		}
		for _, x := range []float64{0.5, 1, 2, 8} {
			got, err := l.At(x)
			if err != nil {
				t.Fatal(err)
			}
			last := got.Timeline.Buffers[len(got.Timeline.Buffers)/2:]
			longest := slices.MaxFunc(last, func(a, b lifespan.Buffer) int { return cmp.Compare(a.Requested, b.Requested) })
			spec.Lengths, spec.Length = false, int64(longest.Requested/4096) // outputs have 4096 B for each token
			want := made(t, spec)
			if got.Allocated() != want.Allocated() {
				t.Errorf("%d micro-batches, %g times the longest: %d B, expected %d B", batches, x, got.Allocated(), want.Allocated())
			}
			// The first iteration keeps the sizes that it had, and with them some segments.
			a, b := float64(reserved(t, baseline.KeyNative, got)), float64(reserved(t, baseline.KeyNative, want))
			if math.Abs(a/b-1) > 0.04 {
				t.Errorf("%d micro-batches, %g times the longest: native takes %.0f B, expected %.0f B", batches, x, a, b)
			}
		}
	}
	if l, err := fit.FindLengths(training(t, 512)); l != nil || err != nil {
		t.Errorf("iterations that are all alike: %+v, %v", l, err)
	}
}

// TestLengthsOfRecording: the laws of a real job with batches of varying length say what
// the same job takes that was recorded again, with other lengths and more of them.
func TestLengthsOfRecording(t *testing.T) {
	job, again := sharedJob(t, "llama-7b-lora-varlen"), sharedJob(t, "llama-7b-lora-varlen-seed1")
	l, err := fit.FindLengths(job)
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	if m := l.Matching(1); m.Matched*100 < m.Allocations*95 {
		t.Errorf("%d of %d allocations have a law", m.Matched, m.Allocations)
	}
	// Its longest micro-batch, by the largest buffer, which the laws do not know about.
	longest := func(j *fit.Job) float64 {
		return float64(slices.MaxFunc(j.Timeline.Buffers, func(a, b lifespan.Buffer) int { return cmp.Compare(a.Requested, b.Requested) }).Requested)
	}
	one, err := l.At(1)
	if err != nil {
		t.Fatal(err)
	}
	predicted, err := l.At(longest(again) / longest(one))
	if err != nil {
		t.Fatal(err)
	}
	if off := float64(predicted.Allocated())/float64(again.Allocated()) - 1; math.Abs(off) > 0.01 {
		t.Errorf("predicted %d B at %.3f times the longest, found %d B: %+.2f %%", predicted.Allocated(), longest(again)/longest(one), again.Allocated(), 100*off)
	}
	t.Logf("at %.3f times the longest: %d B predicted, %d B found", longest(again)/longest(one), predicted.Allocated(), again.Allocated())
}
