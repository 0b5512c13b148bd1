package main

import (
	"bytes"
	"slices"
	"strings"
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
	if got := l.processors(); !slices.Equal(got, []string{"GOMAXPROCS=1"}) {
		t.Errorf("beside the job %q", got)
	}
	t.Setenv("GOMAXPROCS", "3")
	if got := l.processors(); got != nil {
		t.Errorf("%q, although the user has said how many", got)
	}
	t.Setenv("GOMAXPROCS", "")
	close(l.ended)
	if got := l.processors(); got != nil {
		t.Errorf("behind the job %q", got)
	}
}
