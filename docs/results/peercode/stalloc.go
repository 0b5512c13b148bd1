package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	fmt.Println("| recording | iterations traced | their arena / allocated | ours | their peak / allocated | ours | operations | differ | first at entry | largest difference |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for _, path := range paths {
		r, err := open(path)
		if err != nil {
			return err
		}
		tl, err := lifespan.Build(r.device)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		it, err := lifespan.FindIterations(r.device, tl, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, iterations := range tracedIterations {
			t, why := stalloc.NewTrace(tl, it, iterations)
			row, planned := "not run: "+why, false
			if why == "" {
				if row, planned, err = r.compareSTAlloc(folder, t); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			fmt.Printf("| %s | %d | %s |\n", name(path), iterations, row)
			if planned {
				break
			}
		}
	}
	return nil
}

// compareSTAlloc has STAlloc plan a trace and serve the whole recording. planned is false if
// its planner stopped.
func (r *recording) compareSTAlloc(folder string, t *stalloc.Trace) (row string, planned bool, err error) {
	model, err := os.MkdirTemp("", "peercode-")
	if err != nil {
		return "", false, err
	}
	defer os.RemoveAll(model)
	if err := writeTrace(filepath.Join(model, "trace", "mem_log_dev0.txt"), t); err != nil {
		return "", false, err
	}
	ours, err := follow(r.program, t.Allocator())
	var unfit *baseline.UnfitError
	if errors.As(err, &unfit) {
		ours, err = course{}, nil
	}
	if err != nil {
		return "", false, err
	}
	if err := plan(folder, model); err != nil {
		if unfit != nil {
			return fmt.Sprintf("%v; ours: %s", err, unfit.Why), false, nil
		}
		return err.Error() + "; ours plans", false, nil
	}
	if unfit != nil {
		return "planned; ours: " + unfit.Why, true, nil
	}
	allocated := float64(baseline.FromRecording(r.device).PeakAllocated)
	theirs, err := r.servedByTheirs(folder, model)
	if err != nil {
		return fmt.Sprintf("its runtime ended: %v; ours: %.4f", err, float64(ours.PeakReserved)/allocated), true, nil
	}
	arena, err := plannedArena(model)
	if err != nil {
		return "", false, err
	}
	d := compare(ours, theirs)
	return fmt.Sprintf("%.4f | %.4f | %.4f | %.4f | %d | %d | %d | %.2f %%", float64(arena)/allocated, float64(firstReserved(ours))/allocated,
		float64(theirs.PeakReserved)/allocated, float64(ours.PeakReserved)/allocated, d.operations, d.differ, d.first, 100*d.worst), true, nil
}

// servedByTheirs is the course of STAlloc's runtime with the plan in model.
func (r *recording) servedByTheirs(folder, model string) (c course, err error) {
	p, err := startPeer(filepath.Join(folder, "stalloc"), []string{"STALLOC_MODEL_INFO_PATH=" + model, "STALLOC_STATIC_FALLBACK=1"})
	if err != nil {
		return course{}, err
	}
	// Addresses are not the recording's: of what it gave back and took again, two segments may
	// lie at one place.
	c, err = follow(r.program, baseline.Allocator{New: func(*baseline.Program) (baseline.Model, error) { return p, nil }})
	return c, errors.Join(p.stop(), err)
}

// writeTrace writes a trace to where STAlloc's planner looks for it.
func writeTrace(path string, t *stalloc.Trace) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := t.Write(f); err != nil {
		return err
	}
	return f.Close()
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

// firstReserved is what is reserved after the first request: the arena, the slab, and a segment
// of 20 MiB at most if neither served it.
func firstReserved(c course) trace.Bytes {
	for _, r := range c.reserved {
		if r > 0 {
			return r
		}
	}
	return 0
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
