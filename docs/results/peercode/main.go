// Command peercode runs the code of GMLake and of STAlloc, built by build.sh, over recordings,
// beside stplan's simulators of them, and prints a table of where they differ.
//
//	peercode gmlake FOLDER/gmlake TRACE…
//	peercode stalloc FOLDER TRACE…
//	peercode fixture FOLDER FILE
//
// Both get the same requests in the same order. Reserved bytes are compared after each. The
// last has STAlloc's code serve made-up jobs and writes what it reserved, for the test that
// compares ours without its code (testdata/stalloc.txt).
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/trace"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peercode:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("expected gmlake, stalloc or fixture, what build.sh made, and files; found %d arguments", len(args))
	}
	switch args[0] {
	case "gmlake":
		return compareGMLake(args[1], args[2:])
	case "stalloc":
		return compareSTAlloc(args[1], args[2:])
	case "fixture":
		return writeFixture(args[1], args[2])
	}
	return fmt.Errorf("expected gmlake, stalloc or fixture, found %q", args[0])
}

// lastLine is the last line of what a program printed that is not about a file of its own.
func lastLine(printed string) string {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if l := lines[i]; strings.Contains(l, "Error") {
			return strings.TrimSpace(l)
		}
	}
	return lines[len(lines)-1]
}

// name is a recording's, without folder and endings.
func name(path string) string {
	base, _, _ := strings.Cut(filepath.Base(path), ".")
	return base
}

// recording is one device of a file, ready to be simulated.
type recording struct {
	device   *trace.Device
	recorded baseline.Config
	program  *baseline.Program
}

func open(path string) (*recording, error) {
	t, err := trace.ReadFile(path, trace.Options{})
	if err != nil {
		return nil, err
	}
	if len(t.Devices) != 1 {
		return nil, fmt.Errorf("%s: expected one device, found %d", path, len(t.Devices))
	}
	r := &recording{device: &t.Devices[0]}
	if r.recorded, err = baseline.RecordedConfig(t.Settings); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.program, err = baseline.ReadProgram(r.device, r.recorded)
	return r, err
}

// course is what an allocator had reserved after each operation, and what came of it.
type course struct {
	baseline.Result
	at       []trace.Time
	reserved []trace.Bytes
}

func follow(p *baseline.Program, a baseline.Allocator) (c course, err error) {
	c.Result, err = baseline.Follow(p, a, nil, func(at trace.Time, reserved trace.Bytes) {
		c.at = append(c.at, at)
		c.reserved = append(c.reserved, reserved)
	})
	return c, err
}

// difference compares two courses of one program.
type difference struct {
	operations int        // of the longer one
	differ     int        // at which reserved bytes differ, or that one of the two did not come to
	first      trace.Time // entry of the first difference
	worst      float64    // the largest, of what theirs has reserved then
}

func compare(ours, theirs course) difference {
	both := min(len(ours.reserved), len(theirs.reserved))
	d := difference{operations: max(len(ours.reserved), len(theirs.reserved)), first: -1}
	for i := range both {
		o, t := ours.reserved[i], theirs.reserved[i]
		if o == t {
			continue
		}
		if d.differ++; d.differ == 1 {
			d.first = ours.at[i]
		}
		off := float64(o-t) / float64(max(t, 1))
		if off < 0 {
			off = -off
		}
		d.worst = max(d.worst, off)
	}
	d.differ += d.operations - both
	return d
}
