package lifespan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// job is a made-up training run. Its allocations follow the usual order of a step; no
// figure is taken from a real job.
type job struct {
	name             string
	layers, micro    int
	steps            int
	variableSizes    bool        // another length for every micro-batch
	skips            int         // an expert gets no tokens with probability 1/skips; 0 for never
	keepGradients    bool        // gradients are allocated once, not every step
	evaluateEvery    int         // number of steps between two evaluations
	evaluations      int         // forward passes of each evaluation, and of a final one
	optimizers       int         // number of optimizers, 1 if 0
	recordedFromStep int         // the step at which recording begins
	jitter           int         // percent that every size varies by, up and down
	extraIn          int         // the step that makes one tensor more than others, from 1
	keepLosses       bool        // a list of losses grows for ever
	prefetched       int         // number of steps that inputs are made ahead
	inputSize        trace.Bytes // of an input, at least 4 KiB
	copyStream       bool        // inputs are on a stream of their own
	doubleBuffers    bool        // inputs are made before the last ones are freed
	late             int         // number of frees that are pending at a time
	recompute        bool        // forward keeps the input of a layer, and backward computes the rest again
	paddedFrom       trace.Bytes // inputs of this length or more make two tensors more in each layer; 0 for never
	lean             bool        // an evaluation keeps what two layers make, not what all make
	evaluated        trace.Bytes // length of the inputs of an evaluation; 0 for any that steps have
}

// run executes a job and records it.
type run struct {
	job
	r            *rand.Rand
	d            *trace.Device
	next         uint64
	free         []uint64
	begins, ends []trace.Time // of steps
	grads        []uint64
	inputs       []uint64
	pending      []uint64
	stream       uint64
	stack        int32 // of the next allocations, into jobStacks
}

// jobStacks are the stacks of a job: the script alone, and a module that it calls. Backward has
// none (trace.None).
var jobStacks = trace.Stacks{
	Frames: []trace.Frame{{File: "/home/me/train.py", Line: 3, Name: "<module>"}, {File: "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", Line: 1, Name: "_call_impl"}},
	Index:  []int32{0, 1, 0},
	Bounds: []int32{0, 1, 3},
}

const stackForward = 1

func (j job) record(seed uint64) *run {
	x := &run{job: j, r: rand.New(rand.NewPCG(seed, 5)), d: &trace.Device{}}
	for range j.layers * 5 {
		x.alloc(1 << 20)
	}
	for s := range j.steps {
		if s > 0 && s == j.recordedFromStep {
			x.forget()
		}
		x.step(s == 0)
		if j.evaluateEvery > 0 && (s+1)%j.evaluateEvery == 0 {
			x.evaluate()
		}
	}
	if j.evaluateEvery > 0 {
		x.evaluate()
	}
	return x
}

// forget drops the recorded events and makes what is live the initial state.
func (x *run) forget() {
	sizes := map[uint64]trace.Bytes{}
	for _, e := range x.d.Events {
		if e.Action == trace.ActionAlloc {
			sizes[e.Addr] = e.Size
		} else {
			delete(sizes, e.Addr)
		}
	}
	s := trace.Segment{}
	for addr, size := range sizes {
		s.Blocks = append(s.Blocks, trace.Block{Address: addr, Requested: size, State: trace.BlockAllocated})
	}
	x.d, x.begins, x.ends = &trace.Device{Initial: []trace.Segment{s}}, nil, nil
}

func (x *run) alloc(size trace.Bytes) uint64 {
	if x.jitter > 0 {
		size += size * trace.Bytes(x.r.IntN(2*x.jitter+1)-x.jitter) / 100
	}
	addr := x.next
	if n := len(x.free); n > 0 {
		addr, x.free = x.free[n-1], x.free[:n-1]
	} else {
		x.next += 1 << 32
	}
	x.d.Events = append(x.d.Events, trace.Event{Action: trace.ActionAlloc, Addr: addr, Size: size, Stream: x.stream, Stack: x.stack})
	return addr
}

func (x *run) release(addrs ...uint64) {
	for _, a := range addrs {
		x.d.Events = append(x.d.Events, trace.Event{Action: trace.ActionFreeRequested, Addr: a})
		x.pending = append(x.pending, a)
		if len(x.pending) > x.late {
			done := x.pending[0]
			x.d.Events = append(x.d.Events, trace.Event{Action: trace.ActionFreeCompleted, Addr: done})
			x.free, x.pending = append(x.free, done), x.pending[1:]
		}
	}
}

// temporaries allocates n+1 buffers in turn and holds two at a time.
func (x *run) temporaries(n int, size trace.Bytes) {
	last := x.alloc(size)
	for range n {
		a := x.alloc(size)
		x.release(last)
		last = a
	}
	x.release(last)
}

func (x *run) forward(length trace.Bytes) (saved []uint64) {
	x.stack = stackForward
	defer func() { x.stack = 0 }()
	for range x.layers {
		layer := x.layer(length)
		if x.recompute {
			x.release(layer[1:]...)
			layer = layer[:1]
		}
		saved = append(saved, layer...)
	}
	return saved
}

func (x *run) layer(length trace.Bytes) (saved []uint64) {
	x.temporaries(3, 4096*length)
	saved = append(saved, x.alloc(8192*length), x.alloc(1024*length))
	if x.paddedFrom > 0 && length >= x.paddedFrom {
		x.temporaries(1, 2048*length)
	}
	for range 3 {
		if x.skips == 0 || x.r.IntN(x.skips) > 0 {
			x.temporaries(2, 512*length)
			saved = append(saved, x.alloc(2048*length))
		}
	}
	return saved
}

func (x *run) backward(saved []uint64, length trace.Bytes, first bool) {
	x.stack = trace.None
	defer func() { x.stack = 0 }()
	for i, a := range slices.Backward(saved) {
		if x.recompute {
			x.release(x.layer(length)...)
		}
		x.temporaries(2, 4096*length)
		if i%2 == 1 {
			g := x.alloc(1 << 19)
			if first {
				x.grads = append(x.grads, g)
			} else {
				x.release(g)
			}
		}
		x.release(a)
	}
}

func (x *run) length() trace.Bytes {
	if x.variableSizes {
		return 1 + trace.Bytes(x.r.IntN(1000))
	}
	return 100
}

func (x *run) step(first bool) {
	x.begins = append(x.begins, trace.Time(len(x.d.Events)))
	if len(x.begins) == x.extraIn {
		x.temporaries(0, 64<<10)
	}
	for m := range x.micro {
		n := x.length()
		x.backward(x.forward(n), n, m == 0 && (first || !x.keepGradients))
	}
	if !x.doubleBuffers {
		x.consume(x.prefetched)
	}
	if x.keepLosses {
		x.alloc(512)
	}
	if x.prefetched > 0 {
		if x.copyStream {
			x.stream = 7
		}
		x.inputs = append(x.inputs, x.alloc(max(1<<12, x.inputSize)))
		x.stream = 0
		x.consume(x.prefetched + 1)
	}
	x.temporaries(x.layers, 512) // gradient clipping
	for range max(1, x.optimizers) {
		x.mark(false)
		if first {
			for range x.layers * 10 {
				x.alloc(1 << 20)
			}
		}
		x.temporaries(2*x.layers, 1<<18)
		x.mark(true)
	}
	x.ends = append(x.ends, trace.Time(len(x.d.Events)))
	if !x.keepGradients {
		x.release(x.grads...)
		x.grads = nil
	}
}

// consume frees the oldest input if there are as many as given.
func (x *run) consume(inputs int) {
	if inputs > 0 && len(x.inputs) == inputs {
		x.release(x.inputs[0])
		x.inputs = x.inputs[1:]
	}
}

func (x *run) mark(end bool) {
	x.d.Annotations = append(x.d.Annotations, trace.Annotation{Name: "Optimizer.step#AdamW.step", End: end, At: trace.Time(len(x.d.Events))})
}

func (x *run) evaluate() {
	for range x.evaluations {
		length := x.evaluated
		if length == 0 {
			length = x.length()
		}
		if !x.lean {
			x.release(x.forward(length)...)
			continue
		}
		var last []uint64
		for range x.layers {
			layer := x.layer(length)
			x.release(last...)
			last = layer
		}
		x.release(last...)
	}
}

var jobs = []job{
	{name: "dense", layers: 12, micro: 1, steps: 4},
	{name: "three steps", layers: 12, micro: 2, steps: 3},
	{name: "accumulation", layers: 8, micro: 8, steps: 4},
	{name: "many steps", layers: 4, micro: 2, steps: 60},
	{name: "kept gradients", layers: 12, micro: 4, steps: 5, keepGradients: true},
	{name: "variable length", layers: 12, micro: 2, steps: 5, variableSizes: true},
	{name: "experts", layers: 16, micro: 2, steps: 5, skips: 20},
	{name: "evaluation every second step", layers: 8, micro: 4, steps: 6, evaluateEvery: 2, evaluations: 3},
	{name: "rare large evaluation", layers: 8, micro: 2, steps: 12, evaluateEvery: 6, evaluations: 40},
	{name: "two optimizers", layers: 12, micro: 2, steps: 4, optimizers: 2},
	{name: "three optimizers", layers: 12, micro: 2, steps: 4, optimizers: 3},
	{name: "recorded later", layers: 12, micro: 2, steps: 7, recordedFromStep: 2},
}

// TestLayersAreNoIterations: a recording that ends in the backward of its first step repeats the
// layers of its model. Stacks show that these are no iterations, and take nothing from a job that
// has some, with evaluations between them or without any backward.
func TestLayersAreNoIterations(t *testing.T) {
	counts := func(d *trace.Device) (without, with int) {
		tl := build(t, d)
		plain, err := FindIterations(&trace.Stacks{}, d, tl, nil)
		if err != nil {
			t.Fatal(err)
		}
		read, err := FindIterations(&jobStacks, d, tl, nil)
		if err != nil {
			t.Fatal(err)
		}
		return plain.Count, read.Count
	}
	for _, j := range jobs {
		d := withoutAnnotations(j.record(1).d)
		if without, with := counts(d); without == 0 || with != without {
			t.Errorf("%s: %d iterations without stacks, %d with them", j.name, without, with)
		}
	}
	x := job{layers: 32, micro: 1, steps: 1}.record(1)
	d := withoutAnnotations(x.d)
	first := slices.IndexFunc(d.Events, func(e trace.Event) bool { return e.Stack == trace.None })
	d.Events = d.Events[:first+first/16] // early in backward
	if without, with := counts(d); without == 0 || with != 0 {
		t.Errorf("out of memory in the first backward: %d iterations without stacks, %d with them", without, with)
	}
	inference := job{layers: 8, evaluations: 20, evaluateEvery: 1}.record(1)
	if without, with := counts(inference.d); without == 0 || with != without {
		t.Errorf("inference: %d iterations without stacks, %d with them", without, with)
	}
}

// TestJobs finds the steps of made-up jobs, with and without annotations.
func TestJobs(t *testing.T) {
	for _, j := range jobs {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s/%d", j.name, seed), func(t *testing.T) {
				x := j.record(seed)
				d, ends := x.d, x.ends
				tl := build(t, d)
				marked := find(t, d, tl)
				if want := append([]trace.Time{0}, ends...); !slices.Equal(marked.Starts, want) || marked.Count != len(ends) {
					t.Fatalf("from %s: %d iterations, %v, expected %v", marked.Source, marked.Count, marked.Starts, want)
				}
				steady := 1
				if j.recordedFromStep > 0 {
					steady = 0
				}
				if marked.SteadyStart != marked.Starts[steady] || marked.SteadyCount != marked.Count-steady {
					t.Errorf("steady from %d for %d, expected from iteration %d of %v", marked.SteadyStart, marked.SteadyCount, steady, marked.Starts)
				}
				found := find(t, withoutAnnotations(d), tl)
				if found.Source != "periodicity" {
					t.Fatalf("found %d from %s without annotations", found.Count, found.Source)
				}
				comparePeriods(t, marked, found, x.begins)
			})
		}
	}
}

// TestRecordingThatEndsInAStep: a step whose end is missing counts as whole if all of its
// allocations are there. With several optimizers that goes for the last of them only.
func TestRecordingThatEndsInAStep(t *testing.T) {
	for _, optimizers := range []int{1, 2} {
		x := job{layers: 12, micro: 2, steps: 5, optimizers: optimizers}.record(0)
		ends := slices.DeleteFunc(slices.Clone(x.d.Annotations), func(a trace.Annotation) bool { return !a.End })
		for missing := range optimizers {
			last := ends[len(ends)-1-missing].At
			for _, cut := range []trace.Time{0, 20} {
				d := &trace.Device{Events: x.d.Events[:last-cut]}
				for _, a := range x.d.Annotations {
					if a.At < last {
						d.Annotations = append(d.Annotations, a)
					}
				}
				want := 4
				if missing == 0 && cut == 0 {
					want = 5
				}
				it := find(t, d, build(t, d))
				if it.Count != want || it.Starts[want] > last || want == 5 && it.Starts[5] != last {
					t.Errorf("%d optimizers, %d without an end, %d events cut off: %d iterations, %v, expected %d", optimizers, missing+1, cut, it.Count, it.Starts, want)
				}
			}
		}
	}
}

// TestIterationsDoNotDependOnNames renames every address and stream.
func TestIterationsDoNotDependOnNames(t *testing.T) {
	d := jobs[6].record(1).d
	before := find(t, withoutAnnotations(d), build(t, d))
	other := &trace.Device{Events: slices.Clone(d.Events)}
	for i := range other.Events {
		other.Events[i].Addr = other.Events[i].Addr*3 + 11
		other.Events[i].Stream = 0x7f00_1234_5678
		other.Events[i].Size = 512 + other.Events[i].Size/512*512
	}
	if after := find(t, other, build(t, other)); !slices.Equal(after.Starts, before.Starts) {
		t.Fatalf("%v with other names, %v before", after.Starts, before.Starts)
	}
}

// TestNoIterations wants none if nothing repeats.
func TestNoIterations(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		d := randomDevice(r, 10<<r.IntN(12), allKinds[0])
		if it := find(t, d, build(t, d)); it.Count != 0 || it.Source != "none" || it.Starts != nil || it.SteadyCount != 0 {
			t.Errorf("seed %d, %d events: %d iterations from %s", seed, len(d.Events), it.Count, it.Source)
		}
	}
}

// TestOneStep wants no iterations from the sequence of a single step, though its layers
// repeat.
func TestOneStep(t *testing.T) {
	x := job{layers: 12, micro: 1, steps: 1}.record(0)
	d, ends := x.d, x.ends
	tl := build(t, d)
	if it := find(t, d, tl); it.Count != 1 || it.Starts[1] != ends[0] || it.SteadyCount != 0 {
		t.Errorf("annotated: %+v", it)
	}
	if it := find(t, withoutAnnotations(d), tl); it.Count > 1 && it.Starts[1] < ends[0]/2 {
		t.Errorf("%d iterations, %v, of one step that ends at %v", it.Count, it.Starts, ends)
	}
}

func BenchmarkBuild(b *testing.B) {
	d := job{layers: 32, micro: 4, steps: 40}.record(0).d
	for b.Loop() {
		if _, err := Build(d); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(d.Events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

func BenchmarkFindIterations(b *testing.B) {
	for _, j := range []job{{name: "dense", layers: 32, micro: 4, steps: 40}, {name: "experts", layers: 32, micro: 4, steps: 40, skips: 20}} {
		d := j.record(0).d
		tl := build(b, d)
		for name, d := range map[string]*trace.Device{"annotations": d, "periodicity": withoutAnnotations(d)} {
			b.Run(j.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if _, err := FindIterations(&trace.Stacks{}, d, tl, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(d.Events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
			})
		}
	}
}
