//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal is a terminal, and what is written to it.
func openTerminal(t *testing.T) (*os.File, func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&text, master) // it ends with an error when the terminal is closed
	}()
	return terminal, func() string {
		terminal.Close()
		<-done
		master.Close()
		return text.String()
	}
}

// TestColourIsForTerminals: the verdicts of verify, fit and diff are green or red on a terminal,
// and plain if NO_COLOR is set, if the terminal is dumb, or in a file.
func TestColourIsForTerminals(t *testing.T) {
	dir := t.TempDir()
	plan, other := filepath.Join(dir, "run.bin"), "../../examples/lora-oom/lora-oom.pickle.gz"
	recording := "../../examples/resnet50/resnet50.pickle.gz"
	runOK(t, "compile", recording, "-o", plan, "-q")
	for _, c := range []struct {
		noColor, term string
		trace         string
		want          string
	}{
		{"", "xterm", recording, "run.bin: \x1b[1m\x1b[32mverified\x1b[0m: "},
		{"1", "xterm", recording, "run.bin: verified: "},
		{"", "dumb", recording, "run.bin: verified: "},
		{"", "xterm", other, "stplan: \x1b[1m\x1b[31m"},
		{"1", "xterm", other, "run.bin: does not verify: "},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		terminal, text := openTerminal(t)
		execute([]string{"verify", plan, "--trace", c.trace, "-q"}, strings.NewReader(""), terminal, terminal)
		got := text()
		if !strings.Contains(got, c.want) || strings.Contains(got, "\x1b[") != strings.Contains(c.want, "\x1b[") {
			t.Errorf("NO_COLOR=%q TERM=%s: printed %q, expected %q in it", c.noColor, c.term, got, c.want)
		}
	}
	for _, c := range []struct {
		noColor, memory, want string
	}{
		{"", "80GiB", "\x1b[1m\x1b[32mfits under every allocator\x1b[0m"},
		{"", "2GiB", "\x1b[1m\x1b[31mdoes not fit under any allocator\x1b[0m"},
		{"1", "80GiB", "\nfits under every allocator"},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", "xterm")
		for _, args := range [][]string{
			{"fit", recording, "--device-memory", c.memory, "-q"},
			{"diff", plan, "--trace", recording, "--device-memory", c.memory, "-q"},
		} {
			terminal, text := openTerminal(t)
			execute(args, strings.NewReader(""), terminal, io.Discard)
			if got := text(); !strings.Contains(got, c.want) || strings.Contains(got, "\x1b[") != strings.Contains(c.want, "\x1b[") {
				t.Errorf("NO_COLOR=%q: %v printed %q, expected %q in it", c.noColor, args, got, c.want)
			}
		}
	}
	for _, args := range [][]string{{"verify", plan, "--trace", recording}, {"fit", recording, "--device-memory", "80GiB"}} {
		if text := runOK(t, args...); bytes.Contains(text, []byte("\x1b[")) {
			t.Errorf("colour in a file: %q", text)
		}
	}
}

// TestProgressNamesTheFile: a bar names the file, which of several it is and what is done
// with it. One that would begin in its second half turns instead.
func TestProgressNamesTheFile(t *testing.T) {
	for _, c := range []struct {
		done int64
		want string
		not  string
	}{
		{30, "31%", "60%"},
		{80, "packing  [", "%"},
	} {
		terminal, text := openTerminal(t)
		a := &app{stderr: terminal}
		a.working("/some/where/b.pickle.gz", 2, 8)
		p := a.progress("packing")
		p.update(c.done, 100)
		p.start = p.start.Add(-2 * progressDelay)
		p.update(c.done, 100)
		time.Sleep(150 * time.Millisecond) // the bar is drawn ten times a second
		p.update(c.done+1, 100)
		p.done()
		got := text()
		if !strings.Contains(got, "2 of 8: b.pickle.gz: packing") || !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("at %d of 100 the terminal shows %q, expected %q and not %q", c.done, got, c.want, c.not)
		}
	}
}

// TestWaitingShowsItself: work that does not say how far it is has a bar all the same, once it
// has lasted, and quick work has none.
func TestWaitingShowsItself(t *testing.T) {
	for _, c := range []struct {
		lasts time.Duration
		shows bool
	}{{progressDelay + 300*time.Millisecond, true}, {0, false}} {
		terminal, text := openTerminal(t)
		a := &app{stderr: terminal}
		a.working("/some/where/b.pickle.gz", 1, 1)
		p := a.waiting("trying native", 0)
		time.Sleep(c.lasts)
		p.done()
		p.update(1, 2) // too late
		if got := text(); strings.Contains(got, "b.pickle.gz: trying native") != c.shows || !c.shows && got != "" {
			t.Errorf("after %v the terminal shows %q; expected a bar: %v", c.lasts, got, c.shows)
		}
	}
}
