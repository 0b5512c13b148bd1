package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/stplan/stplan/internal/report"
)

// several asks one question of several files, and goes on after a file that has no answer.
type several struct {
	app    *app
	failed []report.FailedTrace
	asked  int
	bug    bool
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
		memory := newMemoryShare()
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(memory.total))
		s.app.subject = fmt.Sprintf("%d files", len(paths))
		bar := s.app.progress(what)
		var done atomic.Int64
		inParallel(len(paths), func(i int) {
			r := &replies[i]
			defer func() {
				if p := recover(); p != nil {
					r.err = &bug{fmt.Errorf("%s: panic: %v\n%s", inputName(paths[i]), p, debug.Stack())}
				}
				bar.update(done.Add(1), int64(len(paths)))
			}()
			size := int64(0)
			if stat, err := s.app.statRecording(paths[i]); err == nil { // if not, the question will say so
				size = stat.Size
			}
			defer memory.acquire(estimate(paths[i], size))()
			r.answer, r.err = question(s.app.beside(&r.said, len(paths)), i)
		})
		bar.done()
	}
	for i := range replies {
		r := &replies[i]
		s.asked++
		_, _ = r.said.WriteTo(s.app.stderr)
		take(r.answer)
		if r.err != nil {
			s.failed = append(s.failed, report.FailedTrace{Trace: inputName(paths[i]), Error: message(r.err)})
			s.bug = s.bug || isBug(r.err)
		}
	}
}

// beside is an app that works on one of several files while others work on the rest.
func (a *app) beside(said io.Writer, of int) *app {
	return &app{stdin: a.stdin, stdout: a.stdout, stderr: said, quiet: a.quiet, outputs: a.outputs, subjectOf: of}
}

// inParallel calls do with 0 to n-1, as many at once as there are cores.
func inParallel(n int, do func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range next {
				do(i)
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// lacks notes arguments that name no file, which count as well.
func (s *several) lacks(failed []report.FailedTrace) {
	s.failed = append(s.failed, failed...)
	s.asked += len(failed)
}

// answer is no if any file had no answer.
func (s *several) answer(what string) error {
	if len(s.failed) == 0 {
		return nil
	}
	err := fmt.Errorf("%d of %d %s failed", len(s.failed), s.asked, what)
	if s.bug {
		return &bug{err}
	}
	return &negative{err.Error()}
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
func pair(plans, traces inputs) (pairs []pairedPlan, failed []report.FailedTrace) {
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
			failed = append(failed, report.FailedTrace{Trace: inputName(p), Error: "no recording of this name"})
		}
	}
	for _, t := range traces.paths {
		if byName[filepath.Base(outputName(t, ""))] == t {
			failed = append(failed, report.FailedTrace{Trace: inputName(t), Error: "no plan of this name"})
		}
	}
	return pairs, failed
}

// notNilFailed is an empty list in JSON if nothing failed.
func notNilFailed(failed []report.FailedTrace) []report.FailedTrace {
	if failed == nil {
		return []report.FailedTrace{}
	}
	return failed
}
