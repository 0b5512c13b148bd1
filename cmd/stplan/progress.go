package main

import (
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/stplan/stplan/internal/report"
)

// progressDelay keeps quick work silent.
const progressDelay = time.Second

// progress is a bar on standard error that appears once the work has lasted
// progressDelay. It is silent if standard error is no terminal.
type progress struct {
	mu    sync.Mutex
	app   *app
	label string
	start time.Time
	bar   *progressbar.ProgressBar
}

func (a *app) progress(label string) *progress {
	return &progress{app: a, label: report.Printable(label), start: time.Now()}
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
		if total <= 0 {
			total = -1
		}
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.app.stderr),
			progressbar.OptionSetDescription(p.label),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(true))
	}
	// The bar is decoration: a failing terminal must not fail the work.
	_ = p.bar.Set64(done)
}

// done clears the bar.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
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
