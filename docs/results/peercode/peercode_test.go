package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
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

// TestTrace writes what STAlloc's tracing library would: raw sizes, a line where each
// iteration begins, and at the end what still lives is freed.
func TestTrace(t *testing.T) {
	tl := &lifespan.Timeline{Events: 9, Buffers: []lifespan.Buffer{
		{Start: 0, RequestedEnd: 9, Requested: 1000, Size: 1024, Resident: true},
		{Start: 2, RequestedEnd: 3, Requested: 700, Size: 1024, Stream: 7},
		{Start: 4, RequestedEnd: 6, Requested: 512, Size: 512},
		{Start: 8, RequestedEnd: 9, Requested: 1, Size: 512},
	}}
	path := filepath.Join(t.TempDir(), "trace", "log.txt")
	if err := writeTrace(path, tl, []trace.Time{2, 4, 5}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `1 0x200 1000 0
Iteration Index : 0
1 0x400 700 7
0 0x400 700 7
Iteration Index : 1
1 0x600 512 0
Iteration Index : end
0 0x200 1000 0
0 0x600 512 0
`
	if string(got) != want {
		t.Errorf("found\n%s\nexpected\n%s", got, want)
	}
}

// TestLoopsBeginAtTheStep has recorded iterations that begin at the optimizer, with three
// requests, and a first one that begins with the model.
func TestLoopsBeginAtTheStep(t *testing.T) {
	tl := &lifespan.Timeline{}
	add := func(sizes ...trace.Bytes) (first trace.Time) {
		first = trace.Time(len(tl.Buffers))
		for _, n := range sizes {
			tl.Buffers = append(tl.Buffers, lifespan.Buffer{Start: trace.Time(len(tl.Buffers)), Requested: n, Size: trace.RoundUp(n)})
		}
		return first
	}
	step := make([]trace.Bytes, alike+8)
	for i := range step {
		step[i] = trace.Bytes(1000 + 512*i)
	}
	optimizer := []trace.Bytes{9000001, 9000002, 9000003}
	starts := []trace.Time{add(5000001, 5000002, 5000003)}
	want := []trace.Time{add(step...)}
	for range 3 {
		starts = append(starts, add(optimizer...))
		want = append(want, add(step...))
	}
	starts = append(starts, trace.Time(len(tl.Buffers)))
	got := loops(tl, lifespan.Iterations{Starts: starts, Count: 4}, 3)
	if len(got) != 4 {
		t.Fatalf("found %v, expected %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("found %v, expected %v", got, want)
		}
	}
}
