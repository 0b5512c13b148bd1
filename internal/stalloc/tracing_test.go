package stalloc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// TestTraceIsInItsForm writes what STAlloc's tracing library would: raw sizes, a line where
// each iteration begins, a layer around what has a hook, and at the end what still lives is
// freed.
func TestTraceIsInItsForm(t *testing.T) {
	tl := &lifespan.Timeline{Events: 9, Buffers: []lifespan.Buffer{
		{Start: 0, RequestedEnd: 9, Requested: 1000, Size: 1024, Resident: true},
		{Start: 2, RequestedEnd: 3, Requested: 700, Size: 1024, Stream: 7},
		{Start: 4, RequestedEnd: 6, Requested: 512, Size: 512},
		{Start: 8, RequestedEnd: 9, Requested: 1, Size: 512},
	}}
	tr := &Trace{tl: tl, loops: []trace.Time{2, 4, 5}, hooks: &hooks{roles: []role{0, roleDynamic, 0, 0}}}
	got := tr.text()
	want := `1 0x200 1000 0
Iteration Index : 0
layers.0.mlp->MoELayer Layer : F-start
1 0x400 700 7
0 0x400 700 7
Iteration Index : 1
layers.0.mlp->MoELayer Layer : F-end
1 0x600 512 0
Iteration Index : end
0 0x200 1000 0
0 0x600 512 0
`
	if got != want {
		t.Errorf("found\n%s\nexpected\n%s", got, want)
	}
}

// TestLoopsBeginAtTheStep has iterations that were found by repetition and begin at the
// optimizer, with three requests, and a first one that begins with the model.
func TestLoopsBeginAtTheStep(t *testing.T) {
	tl := &lifespan.Timeline{}
	add := func(sizes ...trace.Bytes) (first trace.Time) {
		first = trace.Time(len(tl.Buffers))
		for _, n := range sizes {
			tl.Buffers = append(tl.Buffers, lifespan.Buffer{Start: trace.Time(len(tl.Buffers)), Requested: n, Size: trace.RoundUp(n)})
		}
		return first
	}
	step := make([]trace.Bytes, alike+8)
	for i := range step {
		step[i] = trace.Bytes(1000 + 512*i)
	}
	optimizer := []trace.Bytes{9000001, 9000002, 9000003}
	starts := []trace.Time{add(5000001, 5000002, 5000003)}
	want := []trace.Time{add(step...)}
	for range 3 {
		starts = append(starts, add(optimizer...))
		want = append(want, add(step...))
	}
	starts = append(starts, trace.Time(len(tl.Buffers)))
	if got := loops(tl, lifespan.Iterations{Starts: starts, Count: 4, Source: lifespan.SourcePeriodicity}, 3); !slices.Equal(got, want) {
		t.Errorf("found %v, expected %v", got, want)
	}
}

// TestLoopsOfMarkedStepsHaveTheirGradients has steps of two micro-batches, whose sizes and
// numbers vary, and whose gradients are freed behind the mark, as zero_grad does. The first
// step asks for a workspace and for the optimizer's states besides, which stay.
func TestLoopsOfMarkedStepsHaveTheirGradients(t *testing.T) {
	tl := &lifespan.Timeline{}
	now := trace.Time(0)
	alloc := func(size trace.Bytes, resident bool) int {
		tl.Buffers = append(tl.Buffers, lifespan.Buffer{Start: now, Requested: size, Size: trace.RoundUp(size), Resident: resident})
		now++
		return len(tl.Buffers) - 1
	}
	free := func(buffers ...int) {
		for _, b := range buffers {
			tl.Buffers[b].RequestedEnd = now
			now++
		}
	}
	for range 5 {
		alloc(5000001, true) // the weights, and what their set-up takes for a while
		free(alloc(9000001, false))
	}
	starts := []trace.Time{0}
	var want []trace.Time
	for k := range 4 {
		want = append(want, now)
		var gradients []int
		for micro := range 2 {
			var activations []int
			for i := range 40 + 3*k {
				if k == 0 && micro == 0 && i == 2 {
					alloc(8000001, true)
				}
				activations = append(activations, alloc(trace.Bytes(1000+512*i+7*k), false))
			}
			if micro == 0 {
				for i := range 10 {
					gradients = append(gradients, alloc(trace.Bytes(700001+i), false))
				}
			}
			free(activations...)
		}
		if k == 0 {
			for i := range 20 {
				alloc(trace.Bytes(600001+i), true)
			}
		}
		starts = append(starts, now)
		free(gradients...)
	}
	tl.Events = now
	it := lifespan.Iterations{Starts: starts, Count: 4, Source: "annotation Optimizer.step"}
	if got := loops(tl, it, 3); !slices.Equal(got, want) {
		t.Errorf("found %v, expected %v", got, want)
	}
	// Behind the last step nothing is asked for, but gradients are freed.
	if got := loops(tl, it, 4); got[4] != now {
		t.Errorf("found %v, expected %d at the end", got, now)
	}
}

// text is the trace in STAlloc's form. Each buffer has an address of its own, and each
// run of requests with a hook is one layer of experts.
func (t *Trace) text() string {
	var w strings.Builder
	next, layer := 0, false
	for _, l := range t.lines() {
		for ; next < len(t.loops) && l.at >= t.loops[next]; next++ {
			if next == len(t.loops)-1 {
				fmt.Fprintln(&w, "Iteration Index : end")
			} else {
				fmt.Fprintf(&w, "Iteration Index : %d\n", next)
			}
		}
		if hooked := t.Hooked(l.buffer); !l.free && hooked != layer {
			layer = hooked
			fmt.Fprintf(&w, "layers.0.mlp->MoELayer Layer : F-%s\n", map[bool]string{true: "start", false: "end"}[layer])
		}
		kind := 1
		if l.free {
			kind = 0
		}
		b := &t.tl.Buffers[l.buffer]
		fmt.Fprintf(&w, "%d %#x %d %d\n", kind, 512*(l.buffer+1), requested(b), b.Stream)
	}
	return w.String()
}
