package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stplan/stplan/internal/planfile"
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
	if got := l.processors(false, 1); !slices.Equal(got, []string{"GOMAXPROCS=1"}) {
		t.Errorf("beside the job %q", got)
	}
	t.Setenv("GOMAXPROCS", "3")
	if got := l.processors(false, 1); got != nil {
		t.Errorf("%q, although the user has said how many", got)
	}
	t.Setenv("GOMAXPROCS", "")
	close(l.ended)
	if got := l.processors(false, 1); got != nil {
		t.Errorf("behind the job %q", got)
	}
	if got := (&app{}).newLearner(&planCache{}, runFlags{}).processors(true, 1); got != nil {
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
	l.learnAll(context.Background(), []string{file("a-rank0.2")})
	if _, err := os.Stat(file("a-rank0.2")); !errors.Is(err, fs.ErrNotExist) || len(l.failed) > 0 || !l.done[file("a-rank0.2")] {
		t.Errorf("a superseded history is left (%v), or failed: %v", err, l.failed)
	}
}

// TestPlansAreMadeAtOnceBehindTheJob: one after the other while the job runs, and several at once when it has ended. Of equal histories there is one
// compile, and a plan for each process.
func TestPlansAreMadeAtOnceBehindTheJob(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("one processor")
	}
	one, other := exampleHistory(t), keepHistory(t, &madeUpTraining(64).Devices[0])
	for _, ended := range []bool{false, true} {
		cache, reports := t.TempDir(), t.TempDir()
		a := newApp(t)
		l := a.newLearner(&planCache{folder: cache}, runFlags{})
		l.reports = reports
		var files []string
		for i, history := range []string{one, one, other} {
			name := fmt.Sprintf("train-rank%d", i)
			report, err := json.Marshal(map[string]any{"state": stateServing, "name": name, "cached": name + ".bin"})
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(history)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, filepath.Join(reports, name+".1.last.history"))
			for file, data := range map[string][]byte{filepath.Join(reports, name+".json"): report, files[i]: data} {
				if err := os.WriteFile(file, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		var mu sync.Mutex
		now, most, compiled, together := 0, 0, 0, make(chan struct{})
		l.compile = func(_ context.Context, job compileJob) ([]byte, error) {
			mu.Lock()
			now, compiled = now+1, compiled+1
			if most = max(most, now); now == 2 {
				close(together)
			}
			mu.Unlock()
			select {
			case <-together:
			case <-time.After(patience(ended)):
			}
			writeSmallPlan(t, job.plan, filepath.Base(job.history), planfile.AdviceNone)
			mu.Lock()
			now--
			mu.Unlock()
			return nil, nil
		}
		if ended {
			close(l.ended)
		}
		l.learnAll(context.Background(), files)
		if compiled != 2 || (most == 2) != ended {
			t.Errorf("ended %t: %d compiles, %d at once", ended, compiled, most)
		}
		if len(l.failed) > 0 || len(l.done) != len(files) || len(l.plans) != len(files) {
			t.Errorf("ended %t: failed %v, done %v, plans %v", ended, l.failed, l.done, l.plans)
		}
		for i, of := range []int{0, 0, 2} {
			p, err := a.readPlan(filepath.Join(cache, fmt.Sprintf("train-rank%d.bin", i)))
			if want := fmt.Sprintf("train-rank%d.1.last.history", of); err != nil || p.Producer != want {
				t.Errorf("ended %t: the plan of rank %d is %v (%v), expected that of %s", ended, i, p, err, want)
			}
		}
	}
}

// patience is how long one compile waits for the other to begin.
func patience(together bool) time.Duration {
	if together {
		return time.Minute
	}
	return 20 * time.Millisecond
}
