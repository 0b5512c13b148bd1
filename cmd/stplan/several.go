package main

import (
	"fmt"
	"path/filepath"

	"github.com/stplan/stplan/internal/report"
)

// several asks one question of several files, one after the other, and goes on after a file
// that has no answer.
type several struct {
	app    *app
	failed []report.FailedTrace
	asked  int
	bug    bool
}

// ask asks it of one file, file n of the count.
func (s *several) ask(path string, n, of int, question func() error) {
	s.app.working(path, n, of)
	s.asked++
	if err := question(); err != nil {
		s.failed = append(s.failed, report.FailedTrace{Trace: inputName(path), Error: message(err)})
		s.bug = s.bug || isBug(err)
	}
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
