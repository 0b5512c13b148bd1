package baseline

import (
	"errors"
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// simulate runs the program of a recording on PyTorch's allocator under c.
func simulate(d *trace.Device, c Config, progress func(done, total int64)) (Result, error) {
	p, err := ReadProgram(d, c)
	if err != nil {
		return Result{}, err
	}
	return Simulate(p, Caching("test", c.Kind(), c), progress)
}

func selfCheck(d *trace.Device, c Config, progress func(done, total int64)) (Check, error) {
	p, err := ReadProgram(d, c)
	if err != nil {
		return Check{}, err
	}
	return SelfCheck(p, c, progress)
}

// TestHugeSizes has requests as large as a trace may hold. They are served until the
// address space of a card without limits ends. That is out of memory, not an error in
// the recording.
func TestHugeSizes(t *testing.T) {
	d := &trace.Device{}
	for i := range uint64(300) {
		d.Events = append(d.Events, e(alloc, i, maxRequest, 0))
	}
	for _, tc := range []struct {
		c    Config
		fits int
	}{
		{Config{}, 256},
		// Whole pages of 20 MiB do not add up to the address space.
		{Config{Expandable: true}, 255},
		{Config{DeviceMemory: maxRequest}, 1},
		{Config{Expandable: true, DeviceMemory: maxRequest}, 0},
		{Config{MaxSplitSize: maxRequest, GCThreshold: 0.5, MemoryFraction: 0.5, DeviceMemory: maxRequest}, 0},
		{Config{LargeSegmentSize: maxRequest, Expandable: true}, 256},
	} {
		r, err := simulate(d, tc.c, nil)
		if err != nil || r.OOM == nil || r.OOM.Event != trace.Time(tc.fits) || r.PeakAllocated != trace.Bytes(tc.fits)*maxRequest {
			t.Errorf("%+v: %+v %+v, %v, expected to run out at %d", tc.c, r, r.OOM, err, tc.fits)
		}
		if _, err := selfCheck(d, tc.c, nil); err != nil {
			t.Errorf("%+v: %v", tc.c, err)
		}
	}
}

// TestHugeInitialState begins with more than a card without limits gives.
func TestHugeInitialState(t *testing.T) {
	d := &trace.Device{Events: []trace.Event{e(alloc, 1, 1, 0)}}
	full := func(n int) {
		for i := len(d.Initial); i < n; i++ {
			addr := uint64(i) * uint64(maxRequest)
			d.Initial = append(d.Initial, trace.Segment{Address: addr, Size: maxRequest, Blocks: []trace.Block{
				{Address: addr, Size: maxRequest, Requested: maxRequest, State: trace.BlockAllocated}}})
		}
	}
	full(300)
	for _, c := range []Config{{}, {Expandable: true}} {
		if r, err := simulate(d, c, nil); err != nil || r.OOM == nil {
			t.Errorf("%s: %+v, %v, expected to run out of memory", c.Kind(), r, err)
		}
	}
	full(1<<14 + 1)
	_, err := simulate(d, Config{}, nil)
	var input *trace.InputError
	const want = "initial state: segments of more than 4611686018427387904 B in all"
	if !errors.As(err, &input) || err.Error() != want {
		t.Errorf("%v, expected %s", err, want)
	}
}

// TestProgress expects Simulate and SelfCheck to report progress in order, up to the
// last operation.
func TestProgress(t *testing.T) {
	d, c := longRecording(t, 4*progressEvery)
	for name, run := range map[string]func(func(done, total int64)) error{
		"Simulate":  func(p func(done, total int64)) error { _, err := simulate(d, c, p); return err },
		"SelfCheck": func(p func(done, total int64)) error { _, err := selfCheck(d, c, p); return err },
	} {
		calls, before, end := 0, int64(0), int64(0)
		err := run(func(done, total int64) {
			if done <= before || done > total || end != 0 && total != end {
				t.Errorf("%s: %d of %d after %d of %d", name, done, total, before, end)
			}
			calls, before, end = calls+1, done, total
		})
		if err != nil || calls < 3 || before != end {
			t.Errorf("%s: %d calls, the last with %d of %d; %v", name, calls, before, end, err)
		}
	}
}
