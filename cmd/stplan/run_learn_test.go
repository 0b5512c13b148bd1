package main

import (
	"bytes"
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
