package main

import (
	"fmt"
	"os"
	"strings"
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

// TestSTAllocReservesAsItsOwnCode compares our simulator with what STAlloc's own code
// reserved for made-up jobs after each operation. testdata/stalloc.txt is what "peercode
// fixture" wrote with github.com/infinigence/STAlloc at 3a9f97f.
func TestSTAllocReservesAsItsOwnCode(t *testing.T) {
	text, err := os.ReadFile("testdata/stalloc.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	var got []string
	for job, r := range madeUpJobs() {
		tr, err := r.traced()
		if err != nil {
			t.Fatal(err)
		}
		c, err := follow(r.program, tr.Allocator())
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range c.lines() {
			got = append(got, fmt.Sprint(job, " ", line))
		}
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("line %d is missing, expected %q", i+1, want[i])
		case i >= len(want):
			t.Fatalf("line %d is %q, expected none", i+1, got[i])
		case got[i] != want[i]:
			t.Fatalf("line %d is %q, expected %q", i+1, got[i], want[i])
		}
	}
}
