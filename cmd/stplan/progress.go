package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unicode/utf8"

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
	// appear shows the bar of work that does not say how far it is; nil for other work.
	appear *time.Timer
	ended  bool
}

// progress begins a piece of work. What it does follows the name of the file.
func (a *app) progress(what string) *progress {
	if a.subject != "" {
		what = a.subject + ": " + what
	}
	return &progress{app: a, label: report.Printable(what), start: time.Now()}
}

// waiting begins a piece of work of so many units, 0 if that is not known, of which none may
// be finished for a while: the bar appears by itself.
func (a *app) waiting(what string, total int64) *progress {
	p := a.progress(what)
	p.appear = time.AfterFunc(progressDelay, func() {
		p.mu.Lock()
		shown := p.bar != nil
		p.mu.Unlock()
		if !shown {
			p.update(0, total)
		}
	})
	return p
}

// update says that done of total units are finished; total 0 is unknown.
func (p *progress) update(done, total int64) {
	if p.app.quiet || !isTerminal(p.app.stderr) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if p.bar == nil {
		if time.Since(p.start) < progressDelay {
			return
		}
		label, width := barLayout(p.label, terminalColumns(p.app.stderr))
		p.bar = progressbar.NewOptions64(shownTotal(done, total),
			progressbar.OptionSetWriter(p.app.stderr),
			progressbar.OptionSetDescription(label),
			progressbar.OptionSetWidth(width),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(true))
		_ = p.bar.RenderBlank() // one that turns does not begin to by itself
	}
	// The bar is decoration: a failing terminal must not fail the work.
	_ = p.bar.Set64(done)
}

const (
	// besideBar are the columns of a bar's line beside label and bar: the percentage, the
	// brackets, and two times such as 1h23m45s.
	besideBar = 28
	// widestBar is wide enough to tell a percentage and a half apart.
	widestBar = 40
	// narrowestBar still shows that something moves.
	narrowestBar = 5
)

// barLayout fits a bar into the columns of a terminal: a line that wraps cannot be drawn over.
// A label that is too long loses its beginning, as its end says what is done.
func barLayout(label string, columns int) (string, int) {
	room := max(columns-besideBar-narrowestBar, 0)
	if n := utf8.RuneCountInString(label); n > room {
		label = string([]rune(label)[n-max(room-1, 0):])
		if room > 0 {
			label = "…" + label
		}
	}
	width := columns - besideBar - utf8.RuneCountInString(label)
	return label, min(max(width, narrowestBar), widestBar)
}

// terminalColumns is the width of a terminal, 80 if it does not say.
func terminalColumns(w any) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
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
	p.ended = true
	if p.appear != nil {
		p.appear.Stop()
	}
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
