// Package callstack reads what the stacks of a recording show: whose code allocates, and which part
// of an iteration runs. Forward and backward are told apart by Python stacks alone.
package callstack

import (
	"regexp"
	"strings"

	"github.com/stplan/stplan/internal/trace"
)

// Part is what a program does within an iteration.
type Part uint8

// The parts of an iteration.
const (
	PartUnknown   Part = iota // forward or backward
	PartForward               // a module's forward runs
	PartRecompute             // backward runs, and recomputes a part of forward
	PartBackward              // backward runs
	PartStep                  // an optimizer steps
	PartOther                 // Python code outside of modules: data, loss, logging
)

var partNames = [...]string{
	PartUnknown: "", PartForward: "forward", PartRecompute: "recomputation in backward",
	PartBackward: "backward", PartStep: "optimizer step", PartOther: "outside of modules",
}

func (p Part) String() string { return partNames[p] }

// Parts are the names of all of them, in the order of their numbers.
func Parts() []string { return partNames[:len(partNames):len(partNames)] }

// Origin says whose code a frame is.
type Origin uint8

// Whose code a frame can be.
const (
	Native  Origin = iota // C++: no file or no line
	Python                // Python's own library
	Torch                 // torch and what it generates
	Library               // any other installed package
	Own                   // everything else: the user's
)

var (
	// inPackages cuts the path of an installed package after the folder it is
	// installed in.
	inPackages = regexp.MustCompile(`^.*/(?:site|dist)-packages/`)
	// torchPackages are the installed packages that are torch's.
	torchPackages = regexp.MustCompile(`^(?:torch|functorch|torchgen|triton)/`)
	// torchSources are files of a torch that runs from its sources, and the code that
	// its compiler writes.
	torchSources = regexp.MustCompile(`/torch/(?:_[a-z]\w*|amp|autograd|cuda|distributed|fx|jit|nn|optim|utils)(?:/|\.py)` +
		`|/torch/(?:functional|overrides|serialization)\.py$|/torchinductor_[^/]*/`)
	// stepping are the functions of torch.optim that run in a step.
	stepping = regexp.MustCompile(`^(?:step$|_single_tensor|_multi_tensor|_fused)`)
	// standardLibrary is Python's own library.
	standardLibrary = regexp.MustCompile(`/lib(?:64)?/python\d+(?:\.\d+)?/|^<frozen `)
)

func originOf(f *trace.Frame) Origin {
	file := f.File
	switch {
	case f.Line == 0 || file == "" || file == "??":
		return Native
	case inPackages.MatchString(file):
		if torchPackages.MatchString(inPackages.ReplaceAllString(file, "")) {
			return Torch
		}
		return Library
	case torchSources.MatchString(file):
		return Torch
	case standardLibrary.MatchString(file):
		return Python
	}
	return Own
}

// role is what a frame says of the moment: that a module's forward runs, that an
// optimizer steps, that backward recomputes.
type Role uint8

// What a frame can say.
const (
	RoleCall      Role = 1 << iota // torch calls a module
	RoleBuild                      // a module is built or moved
	RoleStep                       // an optimizer steps
	RoleState                      // an optimizer makes its state
	RoleBackward                   // backward runs, in Python
	RoleRecompute                  // backward recomputes a part of forward
)

// roleOf reads a frame of torch. The names are those of torch 2.0 to 2.11.
func roleOf(f *trace.Frame) Role {
	file := inPackages.ReplaceAllString(f.File, "")
	if i := strings.LastIndex(file, "torch/"); i > 0 {
		file = file[i:] // a torch that runs from its sources
	}
	switch {
	case file == "torch/nn/modules/module.py" && (f.Name == "_call_impl" || f.Name == "_slow_forward"):
		return RoleCall
	case file == "torch/nn/modules/module.py" && (f.Name == "_apply" || f.Name == "convert" || f.Name == "register_parameter"),
		strings.HasPrefix(file, "torch/nn/modules/") && (f.Name == "__init__" || f.Name == "reset_parameters"):
		return RoleBuild
	case strings.HasPrefix(file, "torch/optim/") && f.Name == "_init_group":
		return RoleStep | RoleState
	case strings.HasPrefix(file, "torch/optim/") && stepping.MatchString(f.Name):
		return RoleStep
	case file == "torch/utils/checkpoint.py" && (f.Name == "unpack_hook" || f.Name == "recompute_fn" || f.Name == "backward"):
		return RoleBackward | RoleRecompute
	case file == "torch/autograd/function.py" && f.Name == "apply",
		file == "torch/_tensor.py" && f.Name == "backward",
		file == "torch/autograd/graph.py" && f.Name == "_engine_run_backward":
		return RoleBackward
	}
	return 0
}

// Reader knows the frames and stacks of a recording. Each was looked at once.
type Reader struct {
	Stacks  *trace.Stacks
	Origins []Origin // by frame
	Roles   []Role   // by frame
	Python  bool     // some stack has a frame of Python

	views   []View // by stack
	nothing View   // of an allocation without a stack
}

// View is what a stack shows at a glance.
type View struct {
	Line   int32 // the innermost frame outside torch and Python's library, or trace.None
	Owner  int32 // the innermost frame of the user's own code, or trace.None
	Inner  int32 // the innermost frame of Python at all, or trace.None
	Roles  Role  // of all its frames
	Called bool  // a module's forward runs
}

// Read looks at all frames and stacks.
func Read(s *trace.Stacks) *Reader {
	r := &Reader{Stacks: s, nothing: View{Line: trace.None, Owner: trace.None, Inner: trace.None}}
	r.Origins, r.Roles = make([]Origin, len(s.Frames)), make([]Role, len(s.Frames))
	for i := range s.Frames {
		r.Origins[i] = originOf(&s.Frames[i])
		if r.Origins[i] == Torch {
			r.Roles[i] = roleOf(&s.Frames[i])
		}
		r.Python = r.Python || r.Origins[i] != Native
	}
	r.views = make([]View, s.Len())
	for i := range r.views {
		r.views[i] = r.look(s.At(int32(i)))
	}
	return r
}

func (r *Reader) look(stack []int32) View {
	v := r.nothing
	for _, k := range stack {
		v.Roles |= r.Roles[k]
		if v.Inner == trace.None && r.Origins[k] != Native {
			v.Inner = k
		}
		if v.Line == trace.None && r.Origins[k] >= Library {
			v.Line = k
		}
		if v.Owner == trace.None && r.Origins[k] == Own {
			v.Owner = k
		}
	}
	v.Called = v.Roles&RoleCall != 0
	return v
}

// View is what a stack shows; trace.None is no stack.
func (r *Reader) View(stack int32) *View {
	if stack == trace.None {
		return &r.nothing
	}
	return &r.views[stack]
}

// Part is the part of an iteration in which an allocation with this stack lies. It is
// PartUnknown if the recording has no Python stacks.
func (r *Reader) Part(stack int32) Part {
	v := r.View(stack)
	switch {
	case v.Roles&RoleStep != 0:
		return PartStep
	case !r.Python:
		return PartUnknown
	case v.Roles&RoleRecompute != 0:
		return PartRecompute
	case v.Roles&RoleBackward != 0 || v.Inner == trace.None:
		return PartBackward // C++ runs backward, in a thread without Python
	case v.Called:
		return PartForward
	}
	return PartOther
}
