//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// blockedReader says when it is first read and then never returns.
type blockedReader struct {
	once    sync.Once
	reading chan struct{}
}

func (b *blockedReader) Read([]byte) (int, error) {
	b.once.Do(func() { close(b.reading) })
	select {}
}

func TestInterruptLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		code   int
		said   string
	}{
		{syscall.SIGINT, 130, "stplan: interrupted; no output file was changed\n"},
		{syscall.SIGTERM, 143, "stplan: terminated; no output file was changed\n"},
	} {
		t.Run(c.signal.String(), func(t *testing.T) { testInterrupt(t, c.signal, c.code, c.said) })
	}
}

func testInterrupt(t *testing.T, signal syscall.Signal, want int, said string) {
	dir := t.TempDir()
	stdin := &blockedReader{reading: make(chan struct{})}
	var stdout, stderr bytes.Buffer
	code := make(chan int)
	go func() {
		code <- execute([]string{"compile", "-", "-o", filepath.Join(dir, "plan.bin")}, stdin, &stdout, &stderr)
	}()
	<-stdin.reading
	if err := syscall.Kill(os.Getpid(), signal); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != want {
		t.Errorf("exit code %d, want %d", got, want)
	}
	if got := stderr.String(); got != said {
		t.Errorf("stderr %q, want %q", got, said)
	}
	if stdout.Len() > 0 {
		t.Errorf("stdout %q, want none", stdout.String())
	}
	wantFiles(t, dir)
}

// TestAbandonedOutput interrupts in the middle of a write: the temporary file
// goes, what was there stays, and the write cannot finish afterwards.
func TestAbandonedOutput(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plan.bin")
	if err := os.WriteFile(path, []byte("before"), 0o666); err != nil {
		t.Fatal(err)
	}
	a := app{outputs: &outputs{}}
	err := a.outputs.write(path, func(w io.Writer) error {
		if _, err := w.Write([]byte("half")); err != nil {
			return err
		}
		wantFiles(t, dir, "plan.bin", "temporary")
		a.outputs.abandon()
		return nil
	})
	if !errors.Is(err, errAbandoned) {
		t.Errorf("error %v, want %v", err, errAbandoned)
	}
	wantFiles(t, dir, "plan.bin")
	if got, _ := os.ReadFile(path); string(got) != "before" {
		t.Errorf("the file holds %q, want what was there before", got)
	}
	if err := a.outputs.write(path, func(io.Writer) error { return nil }); !errors.Is(err, errAbandoned) {
		t.Errorf("a new output after the interruption: error %v, want %v", err, errAbandoned)
	}
}

// wantFiles demands that dir holds exactly these files; "temporary" stands for
// any hidden one.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if e.Name()[0] == '.' {
			got = append(got, "temporary")
			continue
		}
		got = append(got, e.Name())
	}
	count := map[string]int{}
	for _, n := range got {
		count[n]++
	}
	for _, n := range want {
		count[n]--
	}
	for _, n := range count {
		if n != 0 {
			t.Fatalf("%s holds %q, want %q", dir, got, want)
		}
	}
}

func TestOutputMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.bin")
	a := app{outputs: &outputs{}}
	if err := a.outputs.write(path, func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), 0o666&^umask(); got != want {
		t.Errorf("mode %v, want %v", got, want)
	}
}

// A panic is a bug of ours and has an exit code of its own.
func TestPanicIsABug(t *testing.T) {
	var stderr bytes.Buffer
	a := &app{stderr: &stderr, outputs: &outputs{}}
	if got := a.finish(&bug{errors.New("panic: x")}); got != exitBug {
		t.Errorf("exit code %d, want %d", got, exitBug)
	}
	want := "stplan: internal error: panic: x\nhint: this is a bug in stplan; please report it with the command and, if you can, its input\n"
	if stderr.String() != want {
		t.Errorf("stderr %q, want %q", stderr.String(), want)
	}
}

// TestInterruptedBatch names the plans that are done, not what compile notes of them, and says
// how to go on.
func TestInterruptedBatch(t *testing.T) {
	files := []string{"o/" + recordsFolder + "/expected-1.json", "o/a.bin", "o/" + recordsFolder + "/rank-a.json"}
	if got, want := whatWasWritten(files), "written before that: o/a.bin"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := whatWasWritten(files[:1]), "no output file was changed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	a := app{outputs: &outputs{}}
	a.resumes.Store(true)
	if got, want := a.goingOn(), "; the same command does the rest"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
