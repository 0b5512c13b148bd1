package main

import (
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

func TestComparedCourses(t *testing.T) {
	ours := course{at: []trace.Time{-1, 3, 7, 9}, reserved: []trace.Bytes{100, 200, 330, 300}}
	same := compare(ours, ours)
	if same != (difference{operations: 4, first: -1}) {
		t.Errorf("a course beside itself: %+v", same)
	}
	// One that ended sooner differs at what it did not come to.
	theirs := course{at: []trace.Time{-1, 3, 7}, reserved: []trace.Bytes{100, 200, 300}}
	got := compare(ours, theirs)
	if want := (difference{operations: 4, differ: 2, first: 7, worst: 0.1}); got != want {
		t.Errorf("found %+v, expected %+v", got, want)
	}
}
