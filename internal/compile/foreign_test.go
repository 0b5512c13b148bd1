package compile

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/synth"
	"github.com/stplan/stplan/internal/trace"
)

// foreignMost is what a plan of another job may reserve at most, compared with no plan.
const foreignMost = 1.01

// scales are factors of all sizes of a recording: a smaller job shows more, as its granules
// and its small blocks weigh more. No size of one is a size of the other, so a plan and a
// run of different scales have nothing in common but their shape.
var scales = []float64{1, 0.22}

// A run is a job to be served, and its plan.
type run struct {
	name, job string
	program   *replay.Program
	long      *replay.Program // the same for more iterations; nil if it has no steady ones
	pool      replay.Cost
	longPool  replay.Cost
	plan      []byte // nil if compile advises against it
	ordinal   int
}

// TestForeignPlans serves every recording by the plan of every other job. STPLAN_TRACES
// names the folders with the recordings; without it they are those of examples. A few
// made-up jobs are among them. Recordings of another seed, another rank or another
// allocator are of the same job, and of recordings with the same requests there is one.
func TestForeignPlans(t *testing.T) {
	runs := foreignRuns(t)
	var once, repeated []outcome
	random := rand.New(rand.NewPCG(1, 0))
	for i := range runs {
		for j := range runs {
			if runs[i].plan == nil || runs[i].job == runs[j].job {
				continue
			}
			once = append(once, serveBy(t, &runs[i], &runs[j], runs[j].program, runs[j].pool))
			if runs[j].long != nil && random.IntN(4) == 0 {
				repeated = append(repeated, serveBy(t, &runs[i], &runs[j], runs[j].long, runs[j].longPool))
			}
		}
	}
	demandCheap(t, "as recorded", once)
	demandCheap(t, fmt.Sprintf("%d iterations longer, every fourth pair", longer), repeated)
}

// outcome is a run with the plan of another job.
type outcome struct {
	plan, serves string
	ratio        float64 // peak reserved / that without a plan
	moved        float64 // bytes / peak reserved
}

func serveBy(t *testing.T, plan, of *run, program *replay.Program, pool replay.Cost) outcome {
	cost, err := simdevice.Serve(program, plan.plan, plan.ordinal)
	if err != nil {
		t.Fatalf("plan of %s, serving %s: %v", plan.name, of.name, err)
	}
	return outcome{plan.name, of.name, float64(cost.Reserved) / float64(pool.Reserved), float64(cost.Moved) / float64(cost.Reserved)}
}

// demandCheap prints the worst pairs, and fails if one costs too much.
func demandCheap(t *testing.T, title string, got []outcome) {
	if len(got) == 0 {
		t.Fatalf("%s: no pairs", title)
	}
	slices.SortStableFunc(got, func(a, b outcome) int { return cmp.Compare(b.ratio, a.ratio) })
	above := 0
	for above < len(got) && got[above].ratio > foreignMost {
		above++
	}
	dearer := 0
	for dearer < len(got) && got[dearer].ratio > 1 {
		dearer++
	}
	var table strings.Builder
	for _, o := range got[:min(12, len(got))] {
		fmt.Fprintf(&table, "\n| %s | %s | %.4f | %.2f |", o.plan, o.serves, o.ratio, o.moved)
	}
	t.Logf("%s: %d pairs, %d above %g, %d above 1\n| plan of | serves | of no plan | moved |\n|---|---|---|---|%s", title, len(got), above, foreignMost, dearer, table.String())
	if above > 0 {
		t.Errorf("%s: %d of %d pairs reserve more than %g of what no plan does", title, above, len(got), foreignMost)
	}
}

// longer is the number of iterations by which a recording is repeated.
const longer = 8

// foreignRuns reads or makes the recordings, at every scale, and compiles their plans. It skips the
// test if that would take too long, or if there is no runtime.
func foreignRuns(t *testing.T) []run {
	if testing.Short() {
		t.Skip("serves many runs, which takes seconds, and minutes under the race detector")
	}
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	var runs []run
	seen := map[uint64]bool{}
	add := func(name string, d *trace.Device) {
		tl, err := lifespan.Build(d)
		if err != nil {
			t.Fatal(err)
		}
		if key := requestsOf(tl); !seen[key] {
			seen[key] = true
			for _, scale := range scales {
				runs = append(runs, makeRun(t, name, scaled(d, tl, scale), scale))
			}
		}
	}
	for _, file := range recordings(t) {
		tr, err := trace.ReadFile(file, trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range tr.Devices {
			if HasAllocations(&tr.Devices[i]) {
				add(strings.TrimSuffix(filepath.Base(file), ".pickle.gz"), &tr.Devices[i])
			}
		}
	}
	for i, spec := range madeUp {
		add(fmt.Sprintf("made-up-%d", i+1), pipelineDevice(spec, uint64(i+1)))
	}
	return runs
}

// recordings are the files in the folders of STPLAN_TRACES, or those of examples.
func recordings(t *testing.T) []string {
	patterns := []string{filepath.Join("..", "..", "examples", "*", "*.pickle.gz")}
	if folders := os.Getenv("STPLAN_TRACES"); folders != "" {
		patterns = nil
		for _, folder := range filepath.SplitList(folders) {
			patterns = append(patterns, filepath.Join(folder, "*.pickle.gz"))
		}
	}
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no recordings match %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	return files
}

// requestsOf is a hash of the sizes, streams and order of a recording's requests.
func requestsOf(tl *lifespan.Timeline) uint64 {
	h := fnv.New64a()
	for i := range tl.Buffers {
		fmt.Fprintln(h, tl.Buffers[i].Requested, tl.Buffers[i].Stream)
	}
	return h.Sum64()
}

// sameJob is what the name of a recording has besides its job: another seed, another rank
// of a real group, another allocator.
var sameJob = regexp.MustCompile(`-seed\d+|-real-r\d+|-expandable`)

func makeRun(t *testing.T, name string, d *trace.Device, scale float64) run {
	r := run{name: fmt.Sprintf("%s x %g", name, scale), job: sameJob.ReplaceAllString(name, ""), ordinal: d.Ordinal}
	tl, err := lifespan.Build(d)
	if err != nil {
		t.Fatal(err)
	}
	r.program = replay.NewProgram(tl)
	r.pool = servePool(t, r.program)
	if it, err := lifespan.FindIterations(&trace.Stacks{}, d, tl, nil); err == nil && scale == 1 {
		if made, _, err := lifespan.Lengthen(tl, it, longer, 1); err == nil {
			if tl, err = lifespan.Build(made); err != nil {
				t.Fatal(err)
			}
			r.long = replay.NewProgram(tl)
			r.longPool = servePool(t, r.long)
		}
	}
	recording := &trace.Trace{Name: r.name, Devices: []trace.Device{*d}}
	p, _, err := Compile(context.Background(), recording, Options{Producer: "test", Serve: simdevice.Serve})
	if err != nil {
		t.Fatal(err)
	}
	if p.Devices[0].Advice != planfile.AdviceNone {
		return r
	}
	if r.plan, err = planfile.Encode(p); err != nil {
		t.Fatal(err)
	}
	return r
}

func servePool(t *testing.T, program *replay.Program) replay.Cost {
	cost, err := simdevice.Serve(program, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return cost
}

// scaled is the recording with all sizes multiplied, in new memory.
func scaled(d *trace.Device, tl *lifespan.Timeline, scale float64) *trace.Device {
	if scale == 1 {
		return d
	}
	lives := make([]life, len(tl.Buffers))
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		lives[i] = life{start: b.Start, requested: b.RequestedEnd, completed: b.CompletedEnd, stays: b.Resident, stream: b.Stream,
			size: trace.Bytes(max(1, float64(b.Requested)*scale))}
	}
	return deviceOf(d.Ordinal, lives, d.Annotations)
}

// life is a buffer that a recording is made of.
type life struct {
	start, requested, completed trace.Time // requested and completed: of the free
	stays                       bool       // it is never freed
	size                        trace.Bytes
	stream                      uint64
}

// deviceOf is the recording of some buffers and annotations, whose times are in one clock.
// Every buffer has addresses of its own.
func deviceOf(ordinal int, lives []life, annotations []trace.Annotation) *trace.Device {
	type act struct {
		at    trace.Time
		event trace.Event
	}
	var acts []act
	next := uint64(1) << 21
	for _, l := range lives {
		e := trace.Event{Addr: next, Size: l.size, Stream: l.stream, Stack: trace.None, UserMetadata: trace.None, CompileContext: trace.None, Pool: -1}
		next += uint64(trace.RoundUp(l.size))
		for _, a := range []struct {
			action trace.Action
			at     trace.Time
		}{{trace.ActionAlloc, l.start}, {trace.ActionFreeRequested, l.requested}, {trace.ActionFreeCompleted, l.completed}} {
			if e.Action = a.action; a.action == trace.ActionAlloc || !l.stays {
				acts = append(acts, act{a.at, e})
			}
		}
	}
	// Of acts at one time, the free of a buffer comes before what takes its place.
	order := map[trace.Action]int{trace.ActionFreeRequested: 0, trace.ActionFreeCompleted: 1, trace.ActionAlloc: 2}
	slices.SortStableFunc(acts, func(a, b act) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(order[a.event.Action], order[b.event.Action]))
	})
	d := &trace.Device{Ordinal: ordinal}
	for _, a := range acts {
		d.Events = append(d.Events, a.event)
	}
	for _, n := range annotations {
		at, _ := slices.BinarySearchFunc(acts, n.At, func(a act, at trace.Time) int { return cmp.Compare(a.at, at) })
		n.At = trace.Time(at)
		d.Annotations = append(d.Annotations, n)
	}
	return d
}

// madeUp are jobs of one or two gigabytes, with weights of the same sizes.
var madeUp = []synth.Pipeline{
	{Layers: 8, Chunks: 2, Stages: 4, MicroBatches: 8, Iterations: 4, PerLayer: 6, Recompute: true, Varied: true, Optimizer: 8},
	{Layers: 8, Chunks: 1, Stages: 2, MicroBatches: 8, Iterations: 4, PerLayer: 6, Varied: true, Optimizer: 2},
	{Layers: 12, Chunks: 1, Stages: 1, MicroBatches: 4, Iterations: 4, PerLayer: 9, Varied: true, Optimizer: 24},
}

// madeUpScale makes a gigabyte of the activations of the made-up jobs. Weights stay as they are.
const madeUpScale = 16

// pipelineDevice is the recording of a made-up job.
func pipelineDevice(spec synth.Pipeline, seed uint64) *trace.Device {
	buffers := synth.Generate(spec, seed)
	lives := make([]life, len(buffers))
	for i, b := range buffers {
		end := trace.Time(b.End)
		lives[i] = life{start: trace.Time(b.Start), requested: end, completed: end, size: trace.Bytes(b.Size)}
		if i < 2*spec.Layers {
			lives[i].stays = true
		} else {
			lives[i].size *= madeUpScale
		}
	}
	return deviceOf(0, lives, nil)
}
