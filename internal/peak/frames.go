package peak

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stplan/stplan/internal/trace"
)

// origin says whose code a frame is.
type origin uint8

const (
	native  origin = iota // C++: no file or no line
	python                // Python's own library
	torch                 // torch and what it generates
	library               // any other installed package
	own                   // everything else: the user's
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

func originOf(f *trace.Frame) origin {
	file := f.File
	switch {
	case f.Line == 0 || file == "" || file == "??":
		return native
	case inPackages.MatchString(file):
		if torchPackages.MatchString(inPackages.ReplaceAllString(file, "")) {
			return torch
		}
		return library
	case torchSources.MatchString(file):
		return torch
	case standardLibrary.MatchString(file):
		return python
	}
	return own
}

// role is what a frame says of the moment: that a module's forward runs, that an
// optimizer steps, that backward recomputes.
type role uint8

const (
	roleCall      role = 1 << iota // torch calls a module
	roleBuild                      // a module is built or moved
	roleStep                       // an optimizer steps
	roleState                      // an optimizer makes its state
	roleBackward                   // backward runs, in Python
	roleRecompute                  // backward recomputes a part of forward
)

// roleOf reads a frame of torch. The names are those of torch 2.0 to 2.11.
func roleOf(f *trace.Frame) role {
	file := inPackages.ReplaceAllString(f.File, "")
	if i := strings.LastIndex(file, "torch/"); i > 0 {
		file = file[i:] // a torch that runs from its sources
	}
	switch {
	case file == "torch/nn/modules/module.py" && (f.Name == "_call_impl" || f.Name == "_slow_forward"):
		return roleCall
	case file == "torch/nn/modules/module.py" && (f.Name == "_apply" || f.Name == "convert" || f.Name == "register_parameter"),
		strings.HasPrefix(file, "torch/nn/modules/") && (f.Name == "__init__" || f.Name == "reset_parameters"):
		return roleBuild
	case strings.HasPrefix(file, "torch/optim/") && f.Name == "_init_group":
		return roleStep | roleState
	case strings.HasPrefix(file, "torch/optim/") && stepping.MatchString(f.Name):
		return roleStep
	case file == "torch/utils/checkpoint.py" && (f.Name == "unpack_hook" || f.Name == "recompute_fn" || f.Name == "backward"):
		return roleBackward | roleRecompute
	case file == "torch/autograd/function.py" && f.Name == "apply",
		file == "torch/_tensor.py" && f.Name == "backward",
		file == "torch/autograd/graph.py" && f.Name == "_engine_run_backward":
		return roleBackward
	}
	return 0
}

// frames knows the frames and stacks of a trace. Each is looked at once.
type frames struct {
	stacks  *trace.Stacks
	origins []origin // by frame
	roles   []role   // by frame
	stack   []view   // by stack
	python  bool     // some stack has a frame of Python
	files   []string // by frame: its file, shortened
	labels  []string // by frame: FILE:LINE NAME
	nothing view     // of an allocation without a stack
}

// view is what a stack shows at a glance.
type view struct {
	line   int32 // the innermost frame outside torch and Python's library, or None
	owner  int32 // the innermost frame of the user's own code, or None
	inner  int32 // the innermost frame of Python at all, or None
	roles  role  // of all its frames
	called bool  // a module's forward runs
}

func newFrames(s *trace.Stacks) *frames {
	f := &frames{stacks: s, nothing: view{line: trace.None, owner: trace.None, inner: trace.None}}
	f.origins, f.roles = make([]origin, len(s.Frames)), make([]role, len(s.Frames))
	f.files, f.labels = make([]string, len(s.Frames)), make([]string, len(s.Frames))
	for i := range s.Frames {
		f.origins[i] = originOf(&s.Frames[i])
		if f.origins[i] == torch {
			f.roles[i] = roleOf(&s.Frames[i])
		}
		f.python = f.python || f.origins[i] != native
	}
	f.shorten()
	f.stack = make([]view, s.Len())
	for i := range f.stack {
		f.stack[i] = f.look(s.At(int32(i)))
	}
	return f
}

func (f *frames) look(stack []int32) view {
	v := f.nothing
	for _, k := range stack {
		v.roles |= f.roles[k]
		if v.inner == trace.None && f.origins[k] != native {
			v.inner = k
		}
		if v.line == trace.None && f.origins[k] >= library {
			v.line = k
		}
		if v.owner == trace.None && f.origins[k] == own {
			v.owner = k
		}
	}
	v.called = v.roles&roleCall != 0
	return v
}

func (f *frames) view(stack int32) *view {
	if stack == trace.None {
		return &f.nothing
	}
	return &f.stack[stack]
}

// shorten gives every frame its label: the file of an installed package by its last
// folder and name, the user's own file below the folder that all of them share.
func (f *frames) shorten() {
	root := ""
	first := true
	for i := range f.stacks.Frames {
		if f.origins[i] != own {
			continue
		}
		dir := path.Dir(f.stacks.Frames[i].File) + "/"
		if first {
			root, first = dir, false
		}
		for !strings.HasPrefix(dir, root) {
			root = path.Dir(strings.TrimSuffix(root, "/"))
			if root == "." || root == "/" {
				root = ""
				break
			}
			root += "/"
		}
	}
	for i := range f.stacks.Frames {
		fr := &f.stacks.Frames[i]
		f.files[i] = strings.TrimPrefix(fr.File, root)
		if f.origins[i] != own {
			f.files[i] = lastTwo(fr.File)
		}
		f.labels[i] = f.files[i] + ":" + strconv.Itoa(int(fr.Line)) + " " + fr.Name
		if f.origins[i] == native {
			f.labels[i] = fr.Name
		}
	}
}

// lastTwo is a file with its folder, without those above.
func lastTwo(file string) string {
	dir, name := path.Split(file)
	if parent := path.Base(dir); parent != "." && parent != "/" {
		return parent + "/" + name
	}
	return name
}

// Labels of buffers that have no line of code.
const (
	noStack       = "(no stack)"
	noPythonStack = "(no Python stack: backward in C++)"
	noOwnLine     = "(torch alone)"
)

// Line is the line of code that a stack allocates in: its innermost frame outside torch
// and Python's own library. From is the innermost frame of the user's own code, empty
// if it is the same or if there is none.
type Line struct{ Label, From, File string }

// Line names the line of code of a stack.
func (r *Recording) Line(stack int32) Line {
	f := r.frames
	v := f.view(stack)
	switch {
	case v.line != trace.None:
		frame := &f.stacks.Frames[v.line]
		l := Line{Label: f.labels[v.line], File: frame.File}
		if v.owner != trace.None && v.owner != v.line {
			l.From = f.labels[v.owner]
		}
		return l
	case v.inner != trace.None:
		return Line{Label: f.labels[v.inner] + " " + noOwnLine}
	case !f.python:
		return Line{Label: noStack}
	}
	return Line{Label: noPythonStack}
}

// owner is the line of the user's own code of a stack, without a file if it has none.
func (r *Recording) owner(stack int32) Line {
	f := r.frames
	v := f.view(stack)
	if v.owner == trace.None {
		return Line{}
	}
	frame := &f.stacks.Frames[v.owner]
	return Line{Label: f.labels[v.owner], File: frame.File}
}

// Modules are the forward calls of nn.Modules in a stack, outermost first: of each the
// line of its forward that was running. Torch calls a module in one frame of its own;
// between that and the forward may be wrappers.
func (r *Recording) Modules(stack int32) []string {
	if stack == trace.None {
		return nil
	}
	f := r.frames
	var out []string
	inside, running := false, trace.None // in a call; its forward, or what torch called
	end := func() {
		if running != trace.None {
			out = append(out, f.labels[running])
		}
		running = trace.None
	}
	for _, k := range slices.Backward(f.stacks.At(stack)) {
		name := f.stacks.Frames[k].Name
		switch {
		case f.roles[k]&roleCall != 0:
			end()
			inside = true
		case !inside:
		case running == trace.None:
			running = k
			inside = name != forward
		case name == forward:
			running, inside = k, false
		}
	}
	end()
	return out
}

// forward is the name of what a module does.
const forward = "forward"

// Function names the function of a frame with its file, so that functions of one name in
// two files are told apart.
func (r *Recording) Function(frame int32) string {
	f := &r.Trace.Stacks.Frames[frame]
	if r.frames.origins[frame] == native {
		return f.Name
	}
	return r.frames.files[frame] + " " + f.Name
}

// Stack are the labels of a stack's frames, outermost first, without the frames of C++.
func (r *Recording) Stack(stack int32) []string {
	if stack == trace.None {
		return nil
	}
	var out []string
	for _, k := range slices.Backward(r.frames.stacks.At(stack)) {
		if r.frames.origins[k] != native {
			out = append(out, r.frames.labels[k])
		}
	}
	return out
}
