package main

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestEachInOrder: whatever file is done first, answers, notes and failures come in the order of
// the files. A panic is a bug of that file, and the others are asked as well.
func TestEachInOrder(t *testing.T) {
	const n = 40
	var stderr bytes.Buffer
	s := several{app: &app{stderr: &stderr, outputs: &outputs{}}}
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("file%02d", i)
	}
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("asks one file after the other on one core")
	}
	var both sync.WaitGroup
	both.Add(1)
	var got, want, notes []string
	askEach(&s, "asking", paths, func(a *app, i int) (string, error) {
		if i == 0 { // the first one ends after the second
			both.Wait()
		}
		if i == 1 {
			both.Done()
		}
		a.note("of %s", paths[i])
		switch i {
		case 7:
			return "half an answer", errors.New("no good")
		case 9:
			panic("x")
		}
		return paths[i], nil
	}, func(answer string) { got = append(got, answer) })
	for i, path := range paths {
		switch i {
		case 7:
			path = "half an answer"
		case 9:
			path = ""
		}
		want = append(want, path)
		notes = append(notes, "note: of "+paths[i]+"\n")
	}
	if !slices.Equal(got, want) || stderr.String() != strings.Join(notes, "") {
		t.Errorf("answers %q, notes %q", got, stderr.String())
	}
	if len(s.failed) != 2 || s.failed[0].name != "file07" || s.failed[0].err.Error() != "no good" || s.failed[1].name != "file09" || s.asked != n {
		t.Errorf("%d asked, failed %+v", s.asked, s.failed)
	}
	if err := s.answer("files"); !isBug(err) {
		t.Errorf("%v, expected a bug", err)
	}
}
