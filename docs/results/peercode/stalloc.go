package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/stalloc"
	"github.com/stplan/stplan/internal/trace"
)

// tracedIterations is how many iterations STAlloc's manual says to trace. It plans two, and
// stops if the third is not like the second. So two are traced if it did.
var tracedIterations = []int{3, 2}

func compareSTAlloc(folder string, paths []string) error {
	fmt.Println("| recording | iterations traced | their planner | their arena / allocated | ours | their peak / allocated | ours |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, path := range paths {
		r, err := open(path)
		if err != nil {
			return err
		}
		for _, iterations := range tracedIterations {
			row, planned, err := r.compareSTAlloc(folder, iterations)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			fmt.Printf("| %s | %d | %s |\n", name(path), iterations, row)
			if planned {
				break
			}
		}
	}
	return nil
}

// compareSTAlloc has STAlloc trace the first iterations of a recording, plan them, and serve
// the whole recording. planned is false if its planner stopped.
func (r *recording) compareSTAlloc(folder string, iterations int) (row string, planned bool, err error) {
	tl, err := lifespan.Build(r.device)
	if err != nil {
		return "", false, err
	}
	it, err := lifespan.FindIterations(r.device, tl, nil)
	if err != nil {
		return "", false, err
	}
	if it.Count <= iterations {
		return fmt.Sprintf("not run: %d whole iterations | | | | ", it.Count), false, nil
	}
	model, err := os.MkdirTemp("", "peercode-")
	if err != nil {
		return "", false, err
	}
	defer os.RemoveAll(model)
	if err := writeTrace(filepath.Join(model, "trace", "mem_log_dev0.txt"), tl, loops(tl, it, iterations)); err != nil {
		return "", false, err
	}
	if err := plan(folder, model); err != nil {
		return err.Error() + " | | | | ", false, nil
	}
	ours, err := follow(r.program, stalloc.Allocators(tl, it, r.recorded)[1])
	if err != nil {
		return "", false, err
	}
	p, err := startPeer(filepath.Join(folder, "stalloc"), []string{"STALLOC_MODEL_INFO_PATH=" + model, "STALLOC_STATIC_FALLBACK=1"})
	if err != nil {
		return "", false, err
	}
	// Addresses are not the recording's: of what it gave back and took again, two segments may
	// lie at one place. They decide little here.
	theirs, err := follow(r.program, baseline.Allocator{New: func(*baseline.Program) (baseline.Model, error) { return p, nil }})
	if stopped := p.stop(); stopped != nil {
		return "planned | its runtime ended: " + stopped.Error(), true, nil
	}
	if err != nil {
		return "", false, err
	}
	arena, err := plannedArena(model)
	if err != nil {
		return "", true, err
	}
	allocated := float64(baseline.FromRecording(r.device).PeakAllocated)
	return fmt.Sprintf("planned | %.4f | %.4f | %.4f | %.4f", float64(arena)/allocated, float64(firstReserved(ours))/allocated,
		float64(theirs.PeakReserved)/allocated, float64(ours.PeakReserved)/allocated), true, nil
}

// plannedArena is the size in bytes of the arena in STAlloc's plan: the second number of its
// second line.
func plannedArena(model string) (size int64, err error) {
	text, err := os.ReadFile(filepath.Join(model, "output", "plan", "dev_0.txt"))
	if err != nil {
		return 0, err
	}
	_, text, _ = bytes.Cut(text, []byte("\n"))
	var most int64
	_, err = fmt.Sscan(string(text[:min(len(text), 100)]), &most, &size)
	return size, err
}

// firstReserved is what is reserved after the first request: the arena, and a segment of 20 MiB
// at most if the arena did not serve it.
func firstReserved(c course) trace.Bytes {
	for _, r := range c.reserved {
		if r > 0 {
			return r
		}
	}
	return 0
}

// alike is how many requests in a row have to have the sizes of those of another iteration,
// to be taken for the same part of the loop.
const alike = 32

// loops is when STAlloc's iterations begin, and the end of the last that is traced. Its hook
// is on the step as a whole, which begins behind the optimizer of the step before, but
// recorded iterations may begin at the optimizer, and the first of them with what comes
// before the loop. So the loop begins with the first requests of the second recorded
// iteration that the first one has too.
func loops(tl *lifespan.Timeline, it lifespan.Iterations, iterations int) []trace.Time {
	planned := make([][]*lifespan.Buffer, it.Count+1) // by recorded iteration
	k := 0
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		for k < it.Count && b.Start >= it.Starts[k+1] {
			k++
		}
		if !b.Initial && b.Size > 512 {
			planned[k] = append(planned[k], b)
		}
	}
	sizes := func(all []*lifespan.Buffer) (s []trace.Bytes) {
		for _, b := range all {
			s = append(s, b.Requested)
		}
		return s
	}
	first, second := sizes(planned[0]), sizes(planned[1])
	for shift := 0; shift+alike <= len(second); shift++ {
		for i := 0; i+alike <= len(first); i++ {
			if slices.Equal(first[i:i+alike], second[shift:shift+alike]) {
				all := []trace.Time{planned[0][i].Start}
				for k := 1; k <= iterations; k++ {
					at := it.Starts[k]
					if shift < len(planned[k]) {
						at = planned[k][shift].Start
					}
					all = append(all, at)
				}
				return all
			}
		}
	}
	// Sizes vary. The first has as many requests of the loop as the second, at most.
	begin := it.Starts[0]
	if n := len(first) - len(second); n > 0 {
		begin = planned[0][n].Start
	}
	return append([]trace.Time{begin}, it.Starts[1:iterations+1]...)
}

// writeTrace writes what STAlloc's tracing library writes: allocations and frees in order,
// and lines where iterations begin. What lives at the end is freed then, as when a process
// ends. Each buffer has an address of its own.
func writeTrace(path string, tl *lifespan.Timeline, loops []trace.Time) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	type step struct {
		at     trace.Time
		buffer int
		free   bool
	}
	var steps []step
	end := loops[len(loops)-1]
	for i := range tl.Buffers {
		b := &tl.Buffers[i]
		if b.Start >= end {
			continue
		}
		steps = append(steps, step{b.Start, i, false})
		if !b.Resident && b.RequestedEnd < end {
			steps = append(steps, step{b.RequestedEnd, i, true})
		} else {
			steps = append(steps, step{end, i, true})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	w := bufio.NewWriter(f)
	next := 0
	for _, s := range steps {
		for ; next < len(loops) && s.at >= loops[next]; next++ {
			if next == len(loops)-1 {
				fmt.Fprintln(w, "Iteration Index : end")
			} else {
				fmt.Fprintf(w, "Iteration Index : %d\n", next)
			}
		}
		kind := 1
		if s.free {
			kind = 0
		}
		b := &tl.Buffers[s.buffer]
		fmt.Fprintf(w, "%d %#x %d %d\n", kind, 512*(s.buffer+1), max(b.Requested, 1), b.Stream)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// plannerTime is what STAlloc's planner may take, so that a table ends.
const plannerTime = 5 * time.Minute

// plan runs STAlloc's planner with its defaults.
func plan(folder, model string) error {
	made := filepath.Join(model, "output", "plan", "dev_0.txt")
	var printed tail
	ctx, cancel := context.WithTimeout(context.Background(), plannerTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "planner"), "--model-memory-dir", model, "--devices", "1")
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err := cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("took longer than %v", plannerTime)
	}
	if _, missing := os.Stat(made); err != nil || missing != nil {
		return fmt.Errorf("stopped: %s", lastLine(printed.String()))
	}
	return nil
}
