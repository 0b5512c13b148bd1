package simdevice

import (
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/synth"
	"github.com/stplan/stplan/internal/trace"
)

// pipeline is a program without a plan.
func pipeline(t *testing.T) *replay.Program {
	t.Helper()
	if !Built {
		t.Skip("built without cgo: no runtime")
	}
	tl := &lifespan.Timeline{}
	for _, b := range synth.Generate(synth.Pipeline{Layers: 4, Chunks: 2, Stages: 2, MicroBatches: 4, Iterations: 2, PerLayer: 3, Varied: true}, 1) {
		size := trace.RoundUp(trace.Bytes(b.Size))
		tl.Events = max(tl.Events, trace.Time(b.End))
		tl.Buffers = append(tl.Buffers, lifespan.Buffer{
			Start: trace.Time(b.Start), RequestedEnd: trace.Time(b.End), CompletedEnd: trace.Time(b.End), Requested: size, Size: size})
	}
	return replay.NewProgram(tl)
}

// TestSimulateIsServe: on a device with enough memory it takes what Serve says, and a device
// of just so much is enough. The same memory is reserved first at the event of the peak: a
// device with one piece less runs out there or later, and one with half earlier.
func TestSimulateIsServe(t *testing.T) {
	p := pipeline(t)
	want, err := Serve(p, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Simulate(p, nil, 0, 0)
	if err != nil || got.Cost != want || got.Out != nil || got.PeakAt < 0 {
		t.Fatalf("%+v, %v, expected %+v", got, err, want)
	}
	if same, err := Simulate(p, nil, 0, uint64(want.Reserved)); err != nil || same.Out != nil || same.Reserved != want.Reserved {
		t.Errorf("with %d B: %+v, %v", want.Reserved, same, err)
	}
	half, err := Simulate(p, nil, 0, uint64(want.Reserved/2))
	if err != nil || half.Out == nil || half.Out.Event < 0 || half.Out.Event > got.PeakAt || half.Reserved > want.Reserved/2 || half.Out.Reserved > half.Reserved {
		t.Errorf("with half: %+v, %v", half, err)
	}
}

// TestPeakAtIsTheFirst: the program up to before the event of the peak reserves less.
func TestPeakAtIsTheFirst(t *testing.T) {
	p := pipeline(t)
	whole, err := Simulate(p, nil, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(nil, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	stop := &stopping{Device: d, requests: p.Requests, at: whole.PeakAt}
	_ = replay.Drive(p, stop) // stops with an error of its own
	if c := d.Counters(); !stop.stopped || int64(c.PeakReserved) >= whole.Reserved {
		t.Errorf("%d B reserved before event %d, %d in all", c.PeakReserved, whole.PeakAt, whole.Reserved)
	}
}

// stopping refuses the request of an event and what follows.
type stopping struct {
	*Device
	requests []replay.Request
	next     int
	at       int64
	stopped  bool
}

func (s *stopping) Malloc(size, stream uint64) (uint64, int, error) {
	s.next++
	if int64(s.requests[s.next-1].Event) >= s.at {
		s.stopped = true
		return 0, 0, &replay.LimitError{Problem: "far enough"}
	}
	return s.Device.Malloc(size, stream)
}
