package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/stplan/stplan/internal/report"
)

// progressDelay keeps quick work silent.
const progressDelay = time.Second

// working says which file the command works on from now on, the n-th of so many: what
// progress names.
func (a *app) working(path string, n, of int) {
	a.subject = inputName(path)
	if path != "-" {
		a.subject = filepath.Base(a.subject)
	}
	a.subjectOf = of
	if of > 1 {
		a.subject = fmt.Sprintf("%d of %d: %s", n, of, a.subject)
	}
}

// progress is a bar on standard error that appears once the work has lasted
// progressDelay. It is silent if standard error is no terminal.
type progress struct {
	mu    sync.Mutex
	app   *app
	label string
	start time.Time
	bar   *progressbar.ProgressBar
}

// progress begins a piece of work. What it does follows the name of the file.
func (a *app) progress(what string) *progress {
	if a.subject != "" {
		what = a.subject + ": " + what
	}
	return &progress{app: a, label: report.Printable(what), start: time.Now()}
}

// update says that done of total units are finished; total 0 is unknown.
func (p *progress) update(done, total int64) {
	if p.app.quiet || !isTerminal(p.app.stderr) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil {
		if time.Since(p.start) < progressDelay {
			return
		}
		p.bar = progressbar.NewOptions64(shownTotal(done, total),
			progressbar.OptionSetWriter(p.app.stderr),
			progressbar.OptionSetDescription(p.label),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(true))
		_ = p.bar.RenderBlank() // one that turns does not begin to by itself
	}
	// The bar is decoration: a failing terminal must not fail the work.
	_ = p.bar.Set64(done)
}

// shownTotal is what a bar that appears at done counts to, -1 if it only turns. A bar that
// begins in its second half says nothing of the time that the work takes.
func shownTotal(done, total int64) int64 {
	if total <= 0 || done > total/2 {
		return -1
	}
	return total
}

// done clears the bar.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish() // clears it, and one that turns stops
		p.bar = nil
	}
}

// stages shows the progress of work in several stages, one bar at a time.
type stages struct {
	app  *app
	name string
	bar  *progress
}

func (a *app) stages() *stages { return &stages{app: a} }

// update says that done of total units of a stage are finished.
func (s *stages) update(name string, done, total int64) {
	if s.bar == nil || s.name != name {
		s.done()
		s.name, s.bar = name, s.app.progress(name)
	}
	s.bar.update(done, total)
}

// done clears the bar.
func (s *stages) done() {
	if s.bar != nil {
		s.bar.done()
	}
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
