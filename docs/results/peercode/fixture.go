package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/stalloc"
	"github.com/stplan/stplan/internal/trace"
)

// madeUp is a job made up of numbers, with so many requests in each step: weights, states that
// the first optimizer step leaves, requests whose lives cross, some of them into the next step
// or from before the first, requests of 128 MiB and more, more small ones in the ninth step
// than before, and after step changed one request more in each.
func madeUp(seed, requests, changed int) *recording {
	d := &trace.Device{}
	size := make(map[uint64]trace.Bytes)
	next := uint64(1) << 40
	alloc := func(n trace.Bytes) uint64 {
		next += 1 << 32
		size[next] = n
		d.Events = append(d.Events, trace.Event{Action: trace.ActionAlloc, Addr: next, Size: n, Pool: -1})
		return next
	}
	free := func(a uint64) {
		for _, action := range []trace.Action{trace.ActionFreeRequested, trace.ActionFreeCompleted} {
			d.Events = append(d.Events, trace.Event{Action: action, Addr: a, Size: size[a], Pool: -1})
		}
	}
	const steps = 11
	sizes := []trace.Bytes{700, 4000, 4096, 1 << 20, 1500000, 3<<20 + 4, 4 << 20, 5 << 20, 9 << 20, 24<<20 + 1536, 130 << 20}
	for i := range 12 {
		alloc(trace.Bytes(1<<20 + 1000*i))
	}
	crossing := []uint64{alloc(6 << 20), alloc(6 << 20)}
	for step := range steps {
		kept := crossing
		crossing = nil
		x := uint32(seed) // each step draws the same numbers
		draw := func(n int) int {
			x = x*1664525 + 1013904223
			return int(x>>16) % n
		}
		if step > changed {
			free(alloc(5000))
		}
		for i := range requests {
			a := alloc(sizes[draw(len(sizes))])
			if i%9 == 8 {
				crossing = append(crossing, a)
			} else {
				kept = append(kept, a)
			}
			for range draw(3) {
				if len(kept) > 0 {
					k := draw(len(kept))
					free(kept[k])
					kept = append(kept[:k], kept[k+1:]...)
				}
			}
		}
		for range 3 + step/8*5 {
			kept = append(kept, alloc(300))
		}
		for i := range 6 {
			if step == 0 {
				alloc(trace.Bytes(2<<20 + 100*i))
			}
		}
		for _, end := range []bool{false, true} {
			d.Annotations = append(d.Annotations, trace.Annotation{Name: "Optimizer.step#SGD.step", End: end, At: trace.Time(len(d.Events))})
		}
		for _, a := range kept {
			free(a)
		}
	}
	r := &recording{device: d}
	var err error
	if r.program, err = baseline.ReadProgram(d, r.recorded); err != nil {
		panic(err) // the job is ours
	}
	return r
}

// madeUpJobs are the jobs of testdata/stalloc.txt: one that goes on as it was traced, and two
// that change.
func madeUpJobs() []*recording {
	return []*recording{madeUp(1, 200, 99), madeUp(2, 60, 99), madeUp(2, 90, 5), madeUp(3, 60, 7), madeUp(11, 200, 4)}
}

// traced is the trace of a job's first three iterations.
func (r *recording) traced() (*stalloc.Trace, error) {
	tl, err := lifespan.Build(r.device)
	if err != nil {
		return nil, err
	}
	it, err := lifespan.FindIterations(r.device, tl, nil)
	if err != nil {
		return nil, err
	}
	t, why := stalloc.NewTrace(tl, it, 3)
	if why != "" {
		return nil, fmt.Errorf("not traced: %s", why)
	}
	return t, nil
}

// writeFixture has STAlloc's own code plan and serve the jobs, and writes what it had
// reserved: a line for each job and operation, "JOB ENTRY BYTES", if it is not what it was at
// the one before.
func writeFixture(folder, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for job, r := range madeUpJobs() {
		t, err := r.traced()
		if err != nil {
			return err
		}
		model, err := os.MkdirTemp("", "peercode-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(model)
		if err := writeTrace(filepath.Join(model, "trace", "mem_log_dev0.txt"), t); err != nil {
			return err
		}
		if err := plan(folder, model); err != nil {
			return fmt.Errorf("job %d: %w", job, err)
		}
		c, err := r.servedByTheirs(folder, model)
		if err != nil {
			return fmt.Errorf("job %d: %w", job, err)
		}
		for _, line := range c.lines() {
			fmt.Fprintln(w, job, line)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// lines are the operations of a course after which reserved bytes are not what they were:
// "ENTRY BYTES".
func (c course) lines() (all []string) {
	last := trace.Bytes(-1)
	for i, reserved := range c.reserved {
		if reserved != last {
			all = append(all, fmt.Sprintf("%d %d", c.at[i], reserved))
		}
		last = reserved
	}
	return all
}
