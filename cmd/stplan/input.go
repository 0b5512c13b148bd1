package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/store"
	"github.com/stplan/stplan/internal/trace"
)

// readTrace reads a recording in either form; "-" is standard input.
func (a *app) readTrace(path string, opt trace.Options) (*trace.Trace, error) {
	if a.subjectOf < 2 {
		a.working(path, 1, 1)
	}
	bar := a.progress("reading")
	defer bar.done()
	opt.Progress = bar.update
	var t *trace.Trace
	var err error
	if path == "-" || store.Is(path) {
		t, err = a.readStream(path, opt)
	} else {
		t, err = openRecording(path, opt)
	}
	if err != nil {
		return nil, err
	}
	for _, n := range t.Notes {
		a.note("%s: %s", t.Name, n)
	}
	return t, nil
}

// openRecording is the one place that opens a recording by its name. Standard input is not
// one.
func openRecording(path string, opt trace.Options) (*trace.Trace, error) {
	return trace.ReadFile(path, opt)
}

// readPlan reads a plan; "-" is standard input. What is wrong with the plan
// itself is a *planfile.FormatError, but that it is a recording is not.
func (a *app) readPlan(path string) (*planfile.Plan, error) {
	r, err := a.open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := bufio.NewReaderSize(r, 1<<16)
	const beginning = 8                 // bytes: as many as a file's form is told by
	head, _ := b.Peek(beginning)        // what fails here fails again below
	head = append([]byte(nil), head...) // a buffer that is read goes on to other bytes
	p, err := planfile.Read(b)
	var format *planfile.FormatError
	switch {
	case errors.As(err, &format) && format.Class == planfile.ClassBadMagic && trace.LooksLike(head):
		return nil, &hinted{fmt.Errorf("%s: this looks like a recording; expected a plan", inputName(path)),
			"the plan comes first, and its recording after --trace, or second in replay; \"stplan compile\" makes a plan of a recording"}
	case errors.As(err, &format):
		return nil, fmt.Errorf("%s: %w", inputName(path), err)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot read: %w", inputName(path), cause(err))
	}
	return p, nil
}

// planDeviceByOrdinal finds a device of the plan. If there is none of that number,
// the error names those that there are.
func planDeviceByOrdinal(p *planfile.Plan, ordinal int, name string) (*planfile.Device, error) {
	var have string
	for i := range p.Devices {
		if int64(p.Devices[i].Ordinal) == int64(ordinal) {
			return &p.Devices[i], nil
		}
		have += fmt.Sprintf(" %d", p.Devices[i].Ordinal)
	}
	if have == "" {
		return nil, fmt.Errorf("%s: the plan has no devices", name)
	}
	return nil, fmt.Errorf("%s: no device %d in the plan; it has%s", name, ordinal, have)
}

// demandInputs proves, before the work, that files can be read, and notes them, so
// that no output overwrites one. "-" and "" are none.
func (a *app) demandInputs(paths ...string) error {
	for _, path := range paths {
		if path == "-" || path == "" {
			continue
		}
		if store.Is(path) {
			if err := a.outputs.demandObject(path); err != nil {
				return err
			}
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("%s: cannot read: %w", path, cause(err))
		}
		a.outputs.reads(info)
		if !info.Mode().IsRegular() {
			continue // a pipe is opened once; a folder is refused by who reads it
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("%s: cannot read: %w", path, cause(err))
		}
		f.Close()
	}
	return nil
}

// noteInputs has no output overwrite one of these files. One that is missing is reported by
// who reads it.
func (a *app) noteInputs(paths []string) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			a.outputs.reads(info)
		}
	}
}

// oneStdin refuses to read two inputs from standard input.
func oneStdin(path, other, name, otherName string) error {
	if path == "-" && other == "-" {
		return fmt.Errorf("only one of %s and %s can be standard input", name, otherName)
	}
	return nil
}

func inputName(path string) string {
	switch {
	case path == "-":
		return "standard input"
	case store.Is(path):
		return store.Name(path)
	}
	return path
}

// recordingSuffixes are what a recording's name may end with, compression last.
var recordingSuffixes = [][]string{
	{".gz", ".zst"},
	{".pickle", ".pkl", ".parquet", ".history"},
}

// outputName replaces a recording's suffixes: run.pickle.gz with ".bin" is
// run.bin, in the same folder. A name that is nothing but a suffix stays.
func outputName(path, suffix string) string {
	path = inputName(path)
	for _, group := range recordingSuffixes {
		for _, s := range group {
			stem := len(path) - len(s)
			if stem > 0 && strings.EqualFold(path[stem:], s) && !os.IsPathSeparator(path[stem-1]) {
				path = path[:stem]
				break
			}
		}
	}
	return path + suffix
}
