package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

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
	t, err := a.openRecording(path, opt)
	if err != nil {
		return nil, err
	}
	for _, n := range t.Notes {
		a.note("%s: %s", t.Name, n)
	}
	return t, nil
}

// openRecording is the one place that opens a recording by its name.
func (a *app) openRecording(path string, opt trace.Options) (*trace.Trace, error) {
	if path == "-" || store.Is(path) {
		return a.readStream(path, opt)
	}
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
		if store.Is(path) {
			a.outputs.remote.inputs = append(a.outputs.remote.inputs, path)
		} else if info, err := os.Stat(path); err == nil {
			a.outputs.reads(info)
		}
	}
}
