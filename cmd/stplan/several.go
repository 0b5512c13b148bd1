package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stplan/stplan/internal/store"
)

// several asks one question of several files, and goes on after a file that has no answer.
type several struct {
	app    *app
	failed []failure
	asked  int
}

// askEach asks it of all files, as many at once as there are cores and as fit into memory. The
// question gets the file's index, and an app of its own, which shows no progress; what that notes
// comes in the order of the files. So do the answers, which take gets, also that of a question
// that failed. paths are the recordings that take the most memory.
func askEach[T any](s *several, what string, paths []string, question func(a *app, i int) (T, error), take func(T)) {
	type reply struct {
		answer T
		err    error
		said   bytes.Buffer
	}
	replies := make([]reply, len(paths))
	if len(paths) == 1 { // with its own progress
		s.app.working(paths[0], 1, 1)
		replies[0].answer, replies[0].err = question(s.app, 0)
	} else {
		s.app.subject = fmt.Sprintf("%d files", len(paths))
		bar := s.app.progress(what)
		var done atomic.Int64
		inParallel(paths, func(i int, fits func(size int64)) error {
			size := int64(0)
			if stat, err := s.app.statRecording(paths[i]); err == nil { // if not, the question will say so
				size = stat.Size
			}
			fits(size)
			var err error
			replies[i].answer, err = question(s.app.beside(&replies[i].said, len(paths)), i)
			return err
		}, func(i int, err error) {
			replies[i].err = err
			bar.update(done.Add(1), int64(len(paths)))
		})
		bar.done()
	}
	for i := range replies {
		r := &replies[i]
		s.asked++
		_, _ = r.said.WriteTo(s.app.stderr)
		take(r.answer)
		if r.err != nil {
			s.failed = append(s.failed, failure{inputName(paths[i]), r.err})
		}
	}
}

// beside is an app that works on one of several files while others work on the rest.
func (a *app) beside(said io.Writer, of int) *app {
	return &app{stdin: a.stdin, stdout: a.stdout, stderr: said, quiet: a.quiet, outputs: a.outputs, subjectOf: of}
}

// inParallel works on recordings, as many at once as there are cores and as fit into memory. do
// gets the index of one. It calls fits, with the size of the recording's file, before it takes
// memory for it; fits waits until there is enough, which is given back when do returns. ended gets
// what do has returned, or its panic, which is a bug.
func inParallel(paths []string, do func(i int, fits func(size int64)) error, ended func(i int, err error)) {
	memory := newMemoryShare()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memory.total))
	one := func(i int) error {
		release := func() {}
		defer func() { release() }()
		return noPanic(paths[i], func() error {
			return do(i, func(size int64) { release = memory.acquire(estimate(inputName(paths[i]), size)) })
		})
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(paths)) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range next {
				ended(i, one(i))
			}
		}()
	}
	for i := range paths {
		next <- i
	}
	close(next)
	workers.Wait()
}

// noPanic works on a recording, and makes a panic a bug that names it.
func noPanic(path string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &bug{fmt.Errorf("%s: panic: %v\n%s", inputName(path), p, debug.Stack())}
		}
	}()
	return do()
}

// lacks notes arguments that name no file, which count as well.
func (s *several) lacks(failed []failure) {
	s.failed = append(s.failed, failed...)
	s.asked += len(failed)
}

// answer is no if any file had no answer because of what it is. A failure of another cause is not
// an answer: the worst of them is the result, a bug before a fault of the environment.
func (s *several) answer(what string) error {
	if len(s.failed) == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %d %s failed", len(s.failed), s.asked, what)
	outside := 0
	for _, f := range s.failed {
		switch {
		case isBug(f.err):
			return &bug{err}
		case ofEnvironment(f.err):
			outside++
		}
	}
	if outside == 0 {
		return &negative{err.Error()}
	}
	return &hinted{&environment{err}, fmt.Sprintf("%d of them for a reason outside of them, such as a disk or a server; once that is cured, the same command may succeed", outside)}
}

// printAnswer prints one table of all files, or JSON. The result is that of answer, unless
// nobody could read it.
func (s *several) printAnswer(table interface{ Write(w io.Writer) error }, asJSON bool, what string) error {
	if err := s.app.print(table, asJSON); err != nil {
		return err
	}
	return s.answer(what)
}

// pairedPlan is a plan and the recording of its name, "" if none was asked for.
type pairedPlan struct{ plan, trace string }

// recordingsOf are the recordings of pairs.
func recordingsOf(pairs []pairedPlan) []string {
	recordings := make([]string, len(pairs))
	for i, p := range pairs {
		recordings[i] = p.trace
	}
	return recordings
}

// pair finds the recording of each plan by the name that compile gives it: plans/run.bin is
// the plan of traces/run.pickle.gz.
func pair(plans, traces inputs) (pairs []pairedPlan, failed []failure) {
	failed = append(append(failed, plans.failed...), traces.failed...)
	byName := map[string]string{}
	for _, t := range traces.paths {
		byName[filepath.Base(outputName(t, ""))] = t
	}
	for _, p := range plans.paths {
		if t, ok := byName[planName(p)]; ok {
			pairs = append(pairs, pairedPlan{p, t})
			delete(byName, planName(p))
		} else {
			failed = append(failed, failure{inputName(p), errors.New("no recording of this name")})
		}
	}
	for _, t := range traces.paths {
		if byName[filepath.Base(outputName(t, ""))] == t {
			failed = append(failed, failure{inputName(t), errors.New("no plan of this name")})
		}
	}
	return pairs, failed
}

// fileOfEach names a file for each of several inputs: in a folder, which it makes, or, if that is
// "", beside the input. flag names the folder's flag, and done is what is done with an input, for
// messages.
func (a *app) fileOfEach(paths []string, flag, folder, suffix, done string) ([]string, error) {
	if folder == "-" {
		return nil, fmt.Errorf("%s: expected a folder for the files of %d inputs, found standard output", flag, len(paths))
	}
	files := make([]string, len(paths))
	for i, path := range paths {
		name := outputName(strings.TrimSuffix(path, ".bin"), suffix)
		if files[i] = name; folder != "" {
			files[i] = inFolder(folder, filepath.Base(name))
		}
	}
	if err := oneEach(paths, files, done); err != nil {
		return nil, err
	}
	if folder == "" || len(files) == 0 {
		return files, nil
	}
	if store.Is(folder) {
		return files, a.outputs.demand(files[0])
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, fmt.Errorf("%s: cannot make the folder: %w", folder, cause(err))
	}
	return files, nil
}

// oneEach refuses outputs of which two have one name. done says what the paths are.
func oneEach(paths, outputs []string, done string) error {
	from := map[string]string{}
	for i, output := range outputs {
		if other, ok := from[output]; ok {
			return fmt.Errorf("%s and %s would both be %s to %s", other, paths[i], done, output)
		}
		from[output] = paths[i]
	}
	return nil
}
