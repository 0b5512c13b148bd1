package compile

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/internal/verify"
	"github.com/stplan/stplan/runtime/cuda"
)

// stage is a pipeline's stage as a recording has it. It posts each receive before it awaits the one before,
// as Megatron-LM does.
type stage struct {
	device trace.Device
	late   map[int][]trace.Event // by allocation: frees that the recorded device completes before it
	count  int                   // allocations
	next   uint64
	posted int // exchanges
	random *rand.Rand
}

func (s *stage) event(e trace.Event, a trace.Action) {
	e.Action = a
	s.device.Events = append(s.device.Events, e)
}

func (s *stage) alloc(size trace.Bytes) trace.Event {
	for _, freed := range s.late[s.count] {
		s.event(freed, trace.ActionFreeCompleted)
	}
	s.count++
	s.next += 1 << 30
	e := trace.Event{Addr: s.next, Size: size, Stack: trace.None, UserMetadata: trace.None, CompileContext: trace.None, Pool: -1}
	s.event(e, trace.ActionAlloc)
	return e
}

// free frees what only the stage's own stream has used.
func (s *stage) free(e trace.Event) {
	s.event(e, trace.ActionFreeRequested)
	s.event(e, trace.ActionFreeCompleted)
}

// leave frees what another stream may still use. When that has done so is chance.
func (s *stage) leave(e trace.Event) {
	s.event(e, trace.ActionFreeRequested)
	at := s.count + 1 + s.random.IntN(10)
	s.late[at] = append(s.late[at], e)
}

func (s *stage) annotate(end bool, format string, args ...any) {
	s.device.Annotations = append(s.device.Annotations, trace.Annotation{Name: fmt.Sprintf(format, args...), End: end, At: trace.Time(len(s.device.Events))})
}

// receive posts the next receive and awaits the last one.
func (s *stage) receive() trace.Event {
	buffer := s.alloc(8 << 20)
	s.posted++
	s.annotate(false, "stplan.exchange#%d", s.posted)
	if s.posted > 1 {
		s.annotate(true, "stplan.awaited#%d@0", s.posted-1)
	}
	return buffer
}

// pipeline is the recording of a stage: steps of micro-batches, each of which works on what was received
// last, and hands its gradients to another stream.
func pipeline(steps int, seed uint64) *trace.Trace {
	s := &stage{late: map[int][]trace.Event{}, random: rand.New(rand.NewPCG(seed, 0))}
	s.alloc(64 << 20)
	received := s.receive()
	for range steps {
		for range 12 {
			next := s.receive()
			var kept []trace.Event
			for layer := range 8 {
				kept = append(kept, s.alloc(trace.Bytes(2+layer%3)<<20))
				s.free(s.alloc(6 << 20))
			}
			s.leave(received)
			for _, of := range kept {
				gradient := s.alloc(3 << 20)
				s.free(of)
				s.leave(gradient)
			}
			received = next
		}
		s.annotate(false, "Optimizer.step#SGD.step")
		s.free(s.alloc(16 << 20))
		s.annotate(true, "Optimizer.step#SGD.step")
	}
	for range 32 { // the device completes what is left
		s.free(s.alloc(512))
	}
	return &trace.Trace{Name: "pipeline", Devices: []trace.Device{s.device}}
}

// TestAPlanLeavesRoomForExchanges: memory that was freed behind a receive cannot be waited for before the program
// has awaited that. The plan is made for it, so that a run follows it and nothing moves. A plan
// of the same recording without its exchanges is in the run's way.
func TestAPlanLeavesRoomForExchanges(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	opt := Options{Producer: "test", Mode: planfile.ModePeriodic}
	recording := pipeline(5, 1)
	_, plan, dev := programAndPlanOf(t, recording, opt)
	if dev.End != planfile.EndCompleted || dev.PeakActive <= dev.PeakAllocated {
		t.Errorf("the plan is made for %v ends, peak active %d, allocated %d", dev.End, dev.PeakActive, dev.PeakAllocated)
	}
	if wrong := verify.AgainstTrace(&planfile.Plan{Devices: []planfile.Device{*dev}}, recording); len(wrong) > 0 {
		t.Errorf("not the plan of its trace: %v", wrong)
	}
	blind := pipeline(5, 1)
	for i := range blind.Devices[0].Annotations {
		if a := &blind.Devices[0].Annotations[i]; a.Name[:6] == "stplan" {
			a.Name = "other"
		}
	}
	_, without, _ := programAndPlanOf(t, blind, opt)
	run, _, _ := programAndPlanOf(t, pipeline(9, 2), opt) // the device completes other things sooner

	const granule = 2 << 20 // for what follows the last step
	n := served(t, run, plan)
	if n.PlannedBytes < n.AllocationBytes/1000*999 || n.MovedBytes > 0 || n.PeakReserved > dev.ArenaBytes+granule {
		t.Errorf("%d of %d B are on plan, %d B moved, %d B are reserved, the plan has %d", n.PlannedBytes, n.AllocationBytes, n.MovedBytes, n.PeakReserved, dev.ArenaBytes)
	}
	if n := served(t, run, without); n.Clashes == 0 {
		t.Error("a plan that knows of no exchanges has no place taken: the test shows nothing")
	}
}

// served has the runtime serve a run, and a judge watch it.
func served(t *testing.T, run *replay.Program, plan []byte) cuda.Counters {
	t.Helper()
	device, err := simdevice.Open(plan, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	result, err := replay.Run(run, device)
	if err != nil {
		t.Fatal(err)
	}
	if result.Overlaps > 0 {
		t.Errorf("%d overlaps: %s", result.Overlaps, result.First)
	}
	return device.Counters()
}

// TestTwoRecordingsWithExchanges: a plan of two recordings is made for the exchanges of both.
func TestTwoRecordingsWithExchanges(t *testing.T) {
	joined, err := joinDevice([]*trace.Trace{pipeline(4, 1), pipeline(5, 2)}, 0, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(joined.Device.Exchanges()); n < 12*7 {
		t.Errorf("%d exchanges in the joined recording, expected those of 7 steps or more", n)
	}
	tl, err := lifespan.Build(joined.Device)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tl.Buffers {
		if b := &tl.Buffers[i]; b.Size == 3<<20 && b.CompletedEnd > b.RequestedEnd+60 {
			t.Fatalf("buffer %d is held from %d to %d, expected no more than a micro-batch", i, b.RequestedEnd, b.CompletedEnd)
		}
	}
}
