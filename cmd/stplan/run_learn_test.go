package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestLearnedIsToldOnce: a run that goes beyond its plan learns another, and says nothing new.
func TestLearnedIsToldOnce(t *testing.T) {
	var said bytes.Buffer
	l := (&app{stderr: &said}).newLearner(&planCache{folder: "plans"}, runFlags{})
	for _, names := range [][]string{{"rank1", "rank0"}, {"rank0"}, {"rank0", "rank2"}} {
		for _, name := range names {
			l.ready(name, name+".bin")
		}
		l.tellLearned()
	}
	want := "note: learned a plan for the next run of rank0, rank1: plans\nnote: learned a plan for the next run of rank2: plans\n"
	if got := said.String(); strings.ReplaceAll(got, " and ", ", ") != want {
		t.Errorf("%q, expected %q", got, want)
	}
}

// TestRunningOutOfMemoryIsToldOnce: of all ranks, with the figures of the one that has the least to spare.
func TestRunningOutOfMemoryIsToldOnce(t *testing.T) {
	var said bytes.Buffer
	l := (&app{stderr: &said}).newLearner(&planCache{folder: "plans"}, runFlags{})
	l.ranOut["rank1"] = &ranOut{had: 3 << 30, planned: 2 << 30}
	l.tellRanOut()
	l.tellRanOut()
	l.ranOut["rank1"], l.ranOut["rank0"] = &ranOut{had: 3 << 30, planned: 4 << 30}, &ranOut{had: 2 << 30, planned: 2 << 30}
	l.tellRanOut()
	want := "note: rank1 ran out of memory: it could have 3.00 GiB. By the plan that was made of it, what it asked for takes 2.00 GiB: run it again\n" +
		"note: rank0 and rank1 ran out of memory: rank1 could have 3.00 GiB. By the plan that was made of it, what it asked for takes 4.00 GiB: it may fit if it is run again\n"
	if got := said.String(); got != want {
		t.Errorf("%q, expected %q", got, want)
	}
}

// TestProcessorsOfACompile: one beside the job, and as many as there are behind it or as the user has said.
func TestProcessorsOfACompile(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	l := (&app{}).newLearner(&planCache{}, runFlags{})
	if got := l.processors(false); !slices.Equal(got, []string{"GOMAXPROCS=1"}) {
		t.Errorf("beside the job %q", got)
	}
	t.Setenv("GOMAXPROCS", "3")
	if got := l.processors(false); got != nil {
		t.Errorf("%q, although the user has said how many", got)
	}
	t.Setenv("GOMAXPROCS", "")
	close(l.ended)
	if got := l.processors(false); got != nil {
		t.Errorf("behind the job %q", got)
	}
	if got := (&app{}).newLearner(&planCache{}, runFlags{}).processors(true); got != nil {
		t.Errorf("of a process that has ended %q", got)
	}
}

// TestTheLastHistorySupersedes: no plan is made of a history if its process has ended and left a later one, and what compiles
// one by then is ended. While the process runs each has its plan, since the run itself is served by it.
func TestTheLastHistorySupersedes(t *testing.T) {
	reports := t.TempDir()
	l := (&app{}).newLearner(&planCache{}, runFlags{})
	l.reports = reports
	file := func(name string) string { return filepath.Join(reports, name+".history") }
	leave := func(name string) {
		if err := os.WriteFile(file(name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"a-rank0.1", "a-rank0.2", "a-rank01.1", "a.last.1", "a-rank1.1.last"}
	for _, name := range names {
		leave(name)
	}
	for _, name := range names {
		if l.superseded(file(name)) {
			t.Errorf("%s is superseded before the last history of its process", name)
		}
	}
	first, giveUpFirst := context.WithCancel(context.Background())
	last, giveUpLast := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Add(2)
	go func() { defer watching.Done(); l.giveUp(first, giveUpFirst, file("a-rank0.1")) }()
	go func() { defer watching.Done(); l.giveUp(last, giveUpLast, file("a-rank0.10.last")) }()
	leave("a-rank0.10.last")
	<-first.Done()
	if last.Err() != nil {
		t.Error("what compiles the last history was given up")
	}
	giveUpLast() // as if it had ended
	watching.Wait()
	for i, name := range append(names, "a-rank0.10.last") {
		if got := l.superseded(file(name)); got != (i < 2) {
			t.Errorf("%s is superseded: %t", name, got)
		}
	}
	l.learn(context.Background(), file("a-rank0.2"))
	if _, err := os.Stat(file("a-rank0.2")); !errors.Is(err, fs.ErrNotExist) || len(l.failed) > 0 || !l.done[file("a-rank0.2")] {
		t.Errorf("a superseded history is left (%v), or failed: %v", err, l.failed)
	}
}
