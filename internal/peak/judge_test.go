package peak

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/callstack"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// bytesOf is what a peak has of a category.
func bytesOf(p *Peak, c Category) (bytes trace.Bytes, count int) {
	for i := range p.Live {
		if l := &p.Live[i]; l.Category == c && !l.Pending {
			bytes += l.Buffer.Size
			count++
		}
	}
	return bytes, count
}

// TestKnownModel: the recording oom is of a model that its script defines: six blocks of
// two layers, 1024 by 4096, in float32, under AdamW, which keeps two tensors and a step
// for each parameter. No stack and no name says what a buffer is.
func TestKnownModel(t *testing.T) {
	r := readRecording(t, "../baseline/testdata/corners/oom.pickle.gz")
	p, err := r.At(Auto)
	if err != nil {
		t.Fatal(err)
	}
	const weights, bias1, bias2 = 1024 * 4096 * 4, 4096 * 4, 1024 * 4
	const model = 6 * (2*weights + bias1 + bias2)
	if got, n := bytesOf(p, Parameters); got != model || n != 24 {
		t.Errorf("%d B of parameters in %d buffers, the model has %d B in 24", got, n, model)
	}
	if got, n := bytesOf(p, OptimizerState); got < 2*model || got > 2*model+24*512 || n < 48 {
		t.Errorf("%d B of optimizer state in %d buffers, AdamW has %d B in 48", got, n, 2*model)
	}
	// Right before the last optimizer step the gradients are there too.
	step := r.phases.steps[len(r.phases.steps)-1]
	if p, err = r.At(step.from - 1); err != nil {
		t.Fatal(err)
	}
	if got, n := bytesOf(p, Gradients); got < model || got > model+2<<20 || n < 24 || n > 26 {
		t.Errorf("%d B of gradients in %d buffers before a step, expected %d B in 24, and at most the batch and the loss besides", got, n, model)
	}
}

// TestFirstIterationFails: in an out-of-memory of the first iteration nothing repeats
// yet, but layers do, and stacks tell what buffers are for.
func TestFirstIterationFails(t *testing.T) {
	r := readRecording(t, "../../examples/lora-oom/lora-oom.pickle.gz")
	p, err := r.At(Auto)
	if err != nil {
		t.Fatal(err)
	}
	if r.Iterations.Count != 0 {
		t.Errorf("%d iterations (%s), but the first never ended", r.Iterations.Count, r.Iterations.Source)
	}
	if m := p.Moment; m.Phase.Iteration != 1 || m.Phase.Part != callstack.PartBackward || m.Failed == nil || !m.Failed.Fatal {
		t.Errorf("%+v, expected a fatal failure in backward of iteration 1", m)
	}
	if got, want := p.Moment.Twin, "loss/loss_utils.py:40 fixed_cross_entropy"; got != want {
		t.Errorf("the request is as large as what %q allocates, expected %q", got, want)
	}
	if cause, missing := p.Why(p.Moment.Failed); cause != CauseFragmented || missing != 0 {
		t.Errorf("cause %d with %d B missing, expected fragmentation", cause, missing)
	}
	// Llama 7B in bfloat16, and adapters in float32.
	if got, _ := bytesOf(p, Parameters); got < 12<<30 || got > 13<<30 {
		t.Errorf("%d B of parameters, expected about 12.6 GiB", got)
	}
	byLine := r.ByLine(p)
	if got := byLine[1].Key; got.Label != "llama/modeling_llama.py:323 forward" || got.From != "workloads.py:52 step" || byLine[1].Count != 31 {
		t.Errorf("second line %+v with %d buffers, expected the residual stream of 31 layers", got, byLine[1].Count)
	}
	for _, h := range r.Holders(p, p.Memory.InTheWay(p.Moment.Failed.Stream)) {
		if h.Free <= h.Bytes/2 || h.Segments == 0 {
			t.Errorf("holder %+v of segments that are mostly free", h)
		}
	}
}

// unwound is a device whose recording ends in an out-of-memory after event at, and in the
// frees of what was allocated since event from: an exception drops the frames of a program.
func unwound(d *trace.Device, tl *lifespan.Timeline, from, at trace.Time) *trace.Device {
	cut := *d
	cut.Events = append([]trace.Event(nil), d.Events[:at+1]...)
	if cut.Events[at].Action != trace.ActionOOM {
		// The request is made where the latest one was.
		last := at
		for d.Events[last].Action != trace.ActionAlloc {
			last--
		}
		cut.Events = append(cut.Events, trace.Event{Action: trace.ActionOOM, Size: 1 << 30, Stack: d.Events[last].Stack})
	}
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		if b.Initial || b.Failed || b.Start < from || b.Start > at || b.CompletedEnd <= at {
			continue
		}
		free := trace.Event{Action: trace.ActionFreeRequested, Addr: b.Addr, Size: b.Requested, Stream: b.Stream, Stack: trace.None}
		if b.RequestedEnd > at {
			cut.Events = append(cut.Events, free)
		}
		free.Action = trace.ActionFreeCompleted
		cut.Events = append(cut.Events, free)
	}
	cut.Annotations = nil
	for _, a := range d.Annotations {
		if a.At <= at {
			cut.Annotations = append(cut.Annotations, a)
		}
	}
	return &cut
}

// TestUnwinding: what a program that ran out of memory frees while its exception drops its
// frames tells nothing of what buffers are for.
func TestUnwinding(t *testing.T) {
	r := readRecording(t, "../../examples/lora-oom/lora-oom.pickle.gz")
	want, err := r.At(Auto)
	if err != nil {
		t.Fatal(err)
	}
	cut := unwound(r.Device, r.Timeline, r.phases.training, want.Moment.At)
	again, err := Read(r.Trace, cut, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := again.At(Auto)
	if err != nil {
		t.Fatal(err)
	}
	if len(cut.Events) < len(r.Device.Events)+400 || len(got.Live) != len(want.Live) {
		t.Fatalf("%d events, %d before; %d buffers live, %d before", len(cut.Events), len(r.Device.Events), len(got.Live), len(want.Live))
	}
	for i := range want.Live {
		if got.Live[i].Verdict != want.Live[i].Verdict {
			t.Errorf("buffer %d: %v (%v), without the frees after the failure %v (%v)", want.Live[i].Index,
				got.Live[i].Category, got.Live[i].Rule, want.Live[i].Category, want.Live[i].Rule)
		}
	}
}

// TestCutOff compares the categories of a recording that runs out of memory, and unwinds, at
// 20 instants of its later iterations with those of the same recording with its end.
// docs/peak.md states the share.
func TestCutOff(t *testing.T) {
	whole := readRecording(t, shared(t, "lora-stacks.pickle.gz"))
	starts := whole.Iterations.Starts
	from, to := starts[2], starts[len(starts)-1]
	var all, agree, passing, passingAgree trace.Bytes
	const instants = 20
	for k := range trace.Time(instants) {
		at := from + (to-from)*(2*k+1)/(2*instants)
		want, err := whole.At(at)
		if err != nil {
			t.Fatal(err)
		}
		begin := whole.starts(at)
		cut, err := Read(whole.Trace, unwound(whole.Device, whole.Timeline, begin, at), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cut.At(Auto)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Live) != len(want.Live) {
			t.Fatalf("at %d: %d buffers live, %d in the whole recording", at, len(got.Live), len(want.Live))
		}
		for i := range want.Live {
			x, y := &want.Live[i], &got.Live[i]
			same := x.Category == y.Category
			all += x.Buffer.Size
			if same {
				agree += x.Buffer.Size
			}
			if x.Buffer.Start >= begin {
				passing += x.Buffer.Size
				if same {
					passingAgree += x.Buffer.Size
				}
				if y.Sure && !same && x.Rule != ruleHeld { // nobody knows what would have outlived the iteration
					t.Errorf("at %d: buffer %d is %v for sure (%v), but %v in the whole recording", at, x.Index, y.Category, y.Rule, x.Category)
				}
			}
		}
	}
	share, passingShare := float64(agree)/float64(all), float64(passingAgree)/float64(passing)
	t.Logf("cut off, %.1f %% of the bytes have the same category, of the iteration's own %.1f %%", 100*share, 100*passingShare)
	if share < 0.95 || passingShare < 0.75 {
		t.Errorf("cut off, %.1f %% of the bytes have the same category, and %.1f %% of the iteration's own; expected at least 95 and 75", 100*share, 100*passingShare)
	}
}

// starts is where the iteration at t begins.
func (r *Recording) starts(t trace.Time) trace.Time {
	var from trace.Time
	for _, s := range r.Iterations.Starts {
		if s <= t {
			from = s
		}
	}
	return from
}

// shared is a larger recording beside the clone.
func shared(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "traces", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no larger recordings beside the clone: %v", err)
	}
	return path
}

// TestWithoutStacks compares what lifetimes alone suggest with what stacks show, at 60
// instants of a recording: docs/peak.md states the share.
func TestWithoutStacks(t *testing.T) {
	with := readRecording(t, shared(t, "lora-stacks.pickle.gz"))
	hidden := *with.Device
	hidden.Events = append([]trace.Event(nil), hidden.Events...)
	for i := range hidden.Events {
		hidden.Events[i].Stack = trace.None
	}
	without, err := Read(&trace.Trace{Name: "hidden", Devices: []trace.Device{hidden}}, &hidden, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all, agree, passing, passingAgree trace.Bytes
	const instants = 60
	for k := range trace.Time(instants) {
		at := with.Timeline.Events * (k + 1) / (instants + 1)
		a, errA := with.At(at)
		b, errB := without.At(at)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		for i := range a.Live {
			x, y := &a.Live[i], &b.Live[i]
			same := x.Category == y.Category
			all += x.Buffer.Size
			if same {
				agree += x.Buffer.Size
			}
			if x.Category == Activations || x.Category == Temporaries || x.Category == Gradients {
				passing += x.Buffer.Size
				if same {
					passingAgree += x.Buffer.Size
				}
			}
		}
	}
	share, passingShare := float64(agree)/float64(all), float64(passingAgree)/float64(passing)
	t.Logf("without stacks %.1f %% of the bytes have the same category, of what comes and goes %.1f %%", 100*share, 100*passingShare)
	if share < 0.95 || passingShare < 0.75 {
		t.Errorf("without stacks %.1f %% of the bytes have the same category, and %.1f %% of what comes and goes; expected at least 95 and 75", 100*share, 100*passingShare)
	}
}
