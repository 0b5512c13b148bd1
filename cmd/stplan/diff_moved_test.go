package main

import (
	"maps"
	"testing"

	"github.com/stplan/stplan/internal/peak"
)

// TestMovedLines: lines that an edit moves are compared with what they were, and those of a
// function that has gained or lost one are not guessed.
func TestMovedLines(t *testing.T) {
	line := func(label, from string) peak.Line { return peak.Line{Label: label, From: from} }
	before := map[peak.Line]int64{
		line("a/model.py:9 forward", "train.py:50 step"):   1,
		line("a/model.py:10 forward", "train.py:50 step"):  2,
		line("a/model.py:30 backward", ""):                 4,
		line("a/model.py:30 forward", "train.py:90 check"): 8,
		line("(no Python stack: backward in C++)", ""):     16,
	}
	after := map[peak.Line]int64{
		line("a/model.py:10 forward", "train.py:53 step"):  100, // was 9
		line("a/model.py:11 forward", "train.py:53 step"):  200, // was 10, which is before 9 as text
		line("a/model.py:30 backward", ""):                 400,
		line("a/model.py:33 backward", ""):                 800, // one more: 30 stays 30
		line("b/model.py:30 forward", "train.py:90 check"): 1600,
		line("(no Python stack: backward in C++)", ""):     3200,
	}
	want := map[peak.Line]int64{
		line("a/model.py:10 forward", "train.py:53 step"):  1,
		line("a/model.py:11 forward", "train.py:53 step"):  2,
		line("a/model.py:30 backward", ""):                 4,
		line("a/model.py:30 forward", "train.py:90 check"): 8,
		line("(no Python stack: backward in C++)", ""):     16,
	}
	if got := moved(before, after); !maps.Equal(got, want) {
		t.Errorf("got %v, expected %v", got, want)
	}
	if got := moved(after, after); !maps.Equal(got, after) {
		t.Errorf("nothing moved, but got %v", got)
	}
}
