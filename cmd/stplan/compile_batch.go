package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/trace"
)

// batch compiles many recordings into one folder: each program once, on all cores, within a
// bound of memory. A recording that cannot be compiled does not stop the others.
type batch struct {
	app     *app
	opt     compile.Options
	folder  *planFolderRecords
	mu      sync.Mutex
	classes map[string]*class
	rows    []batchRow // by index of the recording
	done    int64
	now     int // programs that were compiled by this call
	before  int // recordings that were done before it
	notes   map[string]*batchNote
	bar     *progress
}

// batchNote is something to know of one or more recordings.
type batchNote struct {
	first string
	count int
}

// class is one program, and the recordings of it that wait for its plan.
type class struct {
	ready   bool
	record  *programRecord
	err     error
	waiting []rank
}

// runBatch compiles the recordings of in into the folder of f, and prints one table.
func (a *app) runBatch(ctx context.Context, in inputs, outputs []string, f compileFlags, opt compile.Options) error {
	records := a.recordsOf(f.output, opt.ID())
	if err := records.place.demand(); err != nil {
		return err
	}
	if err := records.expect(outputs); err != nil {
		return err
	}
	paths := in.paths
	if f.part.of > 0 {
		paths, outputs = f.part.take(paths), f.part.take(outputs)
	} else {
		a.noteUnsharded(len(paths))
	}
	b := &batch{
		app: a, opt: opt, folder: records, classes: map[string]*class{},
		rows: make([]batchRow, len(paths)), notes: map[string]*batchNote{},
	}
	a.resumes.Store(true)
	b.run(ctx, paths, outputs)
	a.resumes.Store(false)
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.report(in, paths, f)
}

// run compiles all recordings.
func (b *batch) run(ctx context.Context, paths, outputs []string) {
	b.app.subject = fmt.Sprintf("%d recordings", len(paths))
	b.bar = b.app.progress("compiling")
	defer b.bar.done()
	inParallel(paths, func(i int, fits func(size int64)) error {
		if ctx.Err() != nil {
			return nil
		}
		return b.one(ctx, i, paths[i], outputs[i], fits)
	}, func(i int, err error) {
		if err != nil {
			b.finish(i, inputName(paths[i]), outputs[i], nil, err)
		}
	})
}

// one does recording i, or leaves it with those that wait for its program. An error is the
// recording's own.
func (b *batch) one(ctx context.Context, i int, path, output string, fits func(size int64)) error {
	name := inputName(path)
	stat, err := b.app.statRecording(path)
	if err != nil {
		return err
	}
	if sum := b.folder.doneBefore(name, output, stat); sum != nil {
		b.mu.Lock()
		b.before++
		b.mu.Unlock()
		b.finish(i, name, output, sum, nil)
		return nil
	}
	fits(stat.Size)
	t, err := b.app.openRecording(path, trace.Options{})
	if err != nil {
		return err
	}
	id := compile.Identity(t, b.opt)
	r := rank{index: i, path: name, output: output, stat: stat, program: hex.EncodeToString(id[:]), notes: t.Notes, ordinals: compile.Ordinals(t)}
	c, first := b.join(r)
	if !first {
		return nil
	}
	c.err = noPanic(path, func() (err error) {
		c.record, err = b.program(ctx, t, r)
		return err
	})
	b.mu.Lock()
	c.ready = true
	waiting := c.waiting
	c.waiting = nil
	b.mu.Unlock()
	for _, r := range waiting {
		b.serve(c, r)
	}
	return nil
}

// join adds a recording to those of its program. first says that it is the one to compile;
// if the program is ready, the recording is done at once.
func (b *batch) join(r rank) (c *class, first bool) {
	b.mu.Lock()
	c, known := b.classes[r.program]
	if !known {
		c = &class{}
		b.classes[r.program] = c
	}
	ready := c.ready
	if !ready {
		c.waiting = append(c.waiting, r)
	}
	b.mu.Unlock()
	if ready {
		b.serve(c, r)
	}
	return c, !known
}

// program finds the plan of a program in the folder, or compiles it from the recording.
func (b *batch) program(ctx context.Context, t *trace.Trace, r rank) (*programRecord, error) {
	if record := b.folder.program(r.program); record != nil {
		return record, nil
	}
	opt := b.opt
	opt.Note = func(text string) { b.note(r.path, strings.TrimPrefix(text, t.Name+": ")) }
	opt.Progress = nil
	p, sum, err := compile.Compile(ctx, t, opt)
	if err != nil {
		return nil, err
	}
	data, err := planfile.Encode(p)
	if err != nil {
		return nil, &bug{err}
	}
	b.mu.Lock()
	b.now++
	b.mu.Unlock()
	return b.folder.keepProgram(r.program, data, sum)
}

// serve gives a recording the plan of its program.
func (b *batch) serve(c *class, r rank) {
	if c.err != nil {
		b.finish(r.index, r.path, r.output, nil, c.err)
		return
	}
	for _, text := range r.notes {
		b.note(r.path, text)
	}
	sum, err := b.folder.keepRank(c.record, r)
	b.finish(r.index, r.path, r.output, sum, err)
}

// finish notes what has become of recording i.
func (b *batch) finish(i int, path, output string, sum *report.Compiled, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		// If the folder cannot be written, that is mostly what err says already.
		if kept := b.folder.keepFailure(path, output, err); kept != nil && !ofEnvironment(err) {
			err = errors.Join(err, kept)
		}
	}
	b.mu.Lock()
	b.rows[i] = batchRow{path, output, sum, err}
	b.done++
	b.bar.update(b.done, int64(len(b.rows)))
	b.mu.Unlock()
}

// note keeps something that holds for a recording. What holds for many is said once.
func (b *batch) note(path, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, ok := b.notes[text]
	if !ok {
		n = &batchNote{first: path}
		b.notes[text] = n
	}
	n.count++
	n.first = min(n.first, path)
}

// mostNotes is how many different notes a batch prints: what can be read.
const mostNotes = 10

func (b *batch) printNotes() {
	texts := slices.SortedFunc(maps.Keys(b.notes), strings.Compare)
	for _, text := range texts[:min(len(texts), mostNotes)] {
		n := b.notes[text]
		if n.count == 1 {
			b.app.note("%s: %s", n.first, text)
		} else {
			b.app.note("%s and %d more: %s", n.first, n.count-1, text)
		}
	}
	if more := len(texts) - mostNotes; more > 0 {
		b.app.note("%d more notes of other kinds", more)
	}
}

// report prints the table of the batch.
func (b *batch) report(in inputs, paths []string, f compileFlags) error {
	b.printNotes()
	var plans []report.Compiled
	s := several{app: b.app}
	s.lacks(in.failed)
	for i, row := range b.rows {
		if row.plan == nil && row.err == nil {
			row.path = inputName(paths[i])
			row.err = &bug{fmt.Errorf("%s: was not compiled", row.path)}
		}
		s.asked++
		if row.err != nil {
			s.failed = append(s.failed, failure{row.path, row.err})
		} else {
			plans = append(plans, *row.plan)
		}
	}
	all := report.NewCompiledAll(plans, reportFailed(s.failed))
	all.Fleet.Compiled, all.Fleet.Done = b.now, b.before
	return s.printAnswer(all, f.json, "recordings")
}
