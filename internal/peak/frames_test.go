package peak

import (
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// stacked makes a recording with one stack, innermost first.
func stacked(frames ...trace.Frame) *Recording {
	s := trace.Stacks{Frames: frames, Bounds: []int32{0, int32(len(frames))}}
	for i := range frames {
		s.Index = append(s.Index, int32(i))
	}
	tr := &trace.Trace{Stacks: s}
	return &Recording{Trace: tr, frames: newFrames(&tr.Stacks)}
}

const site = "/venv/lib/python3.12/site-packages/"

func called() []trace.Frame {
	return []trace.Frame{{File: site + "torch/nn/modules/module.py", Line: 2, Name: "_call_impl"},
		{File: site + "torch/nn/modules/module.py", Line: 1, Name: "_wrapped_call_impl"}}
}

// TestLinesAndModules reads a stack of a library's model, with a wrapper between a call
// and its forward, and a C++ frame inside.
func TestLinesAndModules(t *testing.T) {
	stack := []trace.Frame{{Name: "at::native::mm"}, {File: site + "torch/nn/modules/linear.py", Line: 134, Name: "forward"}}
	stack = append(stack, called()...)
	stack = append(stack, trace.Frame{File: site + "lib/models/model.py", Line: 20, Name: "forward"}, trace.Frame{File: site + "lib/generic.py", Line: 5, Name: "wrapper"})
	stack = append(stack, called()...)
	stack = append(stack, trace.Frame{File: "/home/me/job/src/step.py", Line: 9, Name: "step"}, trace.Frame{File: "/home/me/job/train.py", Line: 3, Name: "<module>"})
	r := stacked(stack...)
	if got, want := r.Line(0), (Line{"models/model.py:20 forward", "src/step.py:9 step", site + "lib/models/model.py"}); got != want {
		t.Errorf("line %+v, expected %+v", got, want)
	}
	if got, want := r.Modules(0), []string{"models/model.py:20 forward", "modules/linear.py:134 forward"}; !slices.Equal(got, want) {
		t.Errorf("modules %q, expected %q", got, want)
	}
	if got := r.Stack(0); len(got) != 9 || got[0] != "train.py:3 <module>" || got[8] != "modules/linear.py:134 forward" {
		t.Errorf("stack %q", got)
	}
	if got := r.Line(trace.None).Label; got != noPythonStack {
		t.Errorf("without a stack: %q", got)
	}
	if got := stacked(trace.Frame{Name: "at::native::mm"}).Line(0).Label; got != noStack {
		t.Errorf("a recording of C++ stacks alone: %q, expected %q", got, noStack)
	}
	only := stacked(trace.Frame{File: site + "torch/autograd/x.py", Line: 4, Name: "f"}).Line(0)
	if want := "autograd/x.py:4 f " + noOwnLine; only.Label != want || only.File != "" {
		t.Errorf("torch alone: %+v, expected %q", only, want)
	}
}
