package peak

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stplan/stplan/internal/callstack"
	"github.com/stplan/stplan/internal/trace"
)

// frames are the frames and stacks of a trace, with their names.
type frames struct {
	*callstack.Reader
	files  []string // by frame: its file, shortened
	labels []string // by frame: FILE:LINE NAME
}

func newFrames(s *trace.Stacks) *frames {
	f := &frames{Reader: callstack.Read(s), files: make([]string, len(s.Frames)), labels: make([]string, len(s.Frames))}
	f.shorten()
	return f
}

// shorten gives every frame its label: the file of an installed package by its last
// folder and name, the user's own file below the folder that all of them share.
func (f *frames) shorten() {
	root := ""
	first := true
	for i := range f.Stacks.Frames {
		if f.Origins[i] != callstack.Own {
			continue
		}
		dir := path.Dir(f.Stacks.Frames[i].File) + "/"
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
	for i := range f.Stacks.Frames {
		fr := &f.Stacks.Frames[i]
		f.files[i] = strings.TrimPrefix(fr.File, root)
		if f.Origins[i] != callstack.Own {
			f.files[i] = lastTwo(fr.File)
		}
		f.labels[i] = f.files[i] + ":" + strconv.Itoa(int(fr.Line)) + " " + fr.Name
		if f.Origins[i] == callstack.Native {
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
	v := f.View(stack)
	switch {
	case v.Line != trace.None:
		frame := &f.Stacks.Frames[v.Line]
		l := Line{Label: f.labels[v.Line], File: frame.File}
		if v.Owner != trace.None && v.Owner != v.Line {
			l.From = f.labels[v.Owner]
		}
		return l
	case v.Inner != trace.None:
		return Line{Label: f.labels[v.Inner] + " " + noOwnLine}
	case !f.Python:
		return Line{Label: noStack}
	}
	return Line{Label: noPythonStack}
}

// owner is the line of the user's own code of a stack, without a file if it has none.
func (r *Recording) owner(stack int32) Line {
	f := r.frames
	v := f.View(stack)
	if v.Owner == trace.None {
		return Line{}
	}
	frame := &f.Stacks.Frames[v.Owner]
	return Line{Label: f.labels[v.Owner], File: frame.File}
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
	for _, k := range slices.Backward(f.Stacks.At(stack)) {
		name := f.Stacks.Frames[k].Name
		switch {
		case f.Roles[k]&callstack.RoleCall != 0:
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
	if r.frames.Origins[frame] == callstack.Native {
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
	for _, k := range slices.Backward(r.frames.Stacks.At(stack)) {
		if r.frames.Origins[k] != callstack.Native {
			out = append(out, r.frames.labels[k])
		}
	}
	return out
}
