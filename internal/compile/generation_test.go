package compile

import (
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/synth"
	"github.com/stplan/stplan/internal/trace"
)

// TestGenerationsOfAnyLength: the plan of a run whose steps generate any number of tokens
// before they train serves a run with other numbers, also one whose first generation is longer.
func TestGenerationsOfAnyLength(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	spec := synth.Training{Layers: 16, MicroBatches: [2]int{1}, Steps: 8, Tokens: [2]int{20, 60}}
	const seeds = 4
	var programs []*replay.Program
	var plans [][]byte
	var first []int
	for seed := range uint64(seeds) {
		buffers, steps := spec.Generate(seed)
		program, plan, dev := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Serve: simdevice.Serve})
		if dev.Mode != planfile.ModePeriodic || dev.Advice != planfile.AdviceNone {
			t.Fatalf("seed %d: mode %v, advice %v", seed, dev.Mode, dev.Advice)
		}
		programs, plans = append(programs, program), append(plans, plan)
		first = append(first, int(steps[0].End-steps[0].Begin))
	}
	longer := 0
	for planned, plan := range plans {
		for served, program := range programs {
			device, err := simdevice.Open(plan, 0, true)
			if err != nil {
				t.Fatal(err)
			}
			err = replay.Drive(program, device)
			c := device.Counters()
			device.Close()
			if err != nil {
				t.Fatal(err)
			}
			if first[served] > first[planned] {
				longer++
			}
			if share := float64(c.PlannedBytes) / float64(c.AllocationBytes); share < 0.85 || c.MovedBytes > c.PeakReserved/10 || c.PeakReserved > c.PeakAllocated+c.PeakAllocated/33 {
				t.Errorf("the plan of seed %d serves %.1f %% of the bytes of seed %d, reserves %.4f and moves %.2f", planned, 100*share, served,
					float64(c.PeakReserved)/float64(c.PeakAllocated), float64(c.MovedBytes)/float64(c.PeakReserved))
			}
		}
	}
	if longer == 0 {
		t.Error("no first generation is longer than one that was planned")
	}
}

// TestRoundsApart: a plan that keeps streams apart is proven by the bound of each stream, also if
// its passes differ in the rounds of a loop.
func TestRoundsApart(t *testing.T) {
	for seed := range uint64(4) {
		recording := training(synth.Training{Layers: 12, MicroBatches: [2]int{2, 12}, Steps: 8, Lengths: true}.Generate(seed))
		_, _, dev := programAndPlanOf(t, recording, Options{Producer: "test", NoCrossStream: true})
		if kind := dev.Certificate.Kind; kind != planfile.BoundApart {
			t.Errorf("seed %d: bound of kind %v, expected %v", seed, kind, planfile.BoundApart)
		}
	}
}

// training is the recording of a made-up training.
func training(buffers []synth.Buffer, steps []synth.Step) *trace.Trace {
	lives := make([]life, len(buffers))
	for i, b := range buffers {
		end := trace.Time(b.End)
		lives[i] = life{start: trace.Time(b.Start), requested: end, completed: end, size: trace.Bytes(b.Size), stays: b.End == synth.Never}
	}
	var marks []trace.Annotation
	for _, s := range steps {
		marks = append(marks, optimizerMark(s.Optimizer, false), optimizerMark(s.End, true))
	}
	return &trace.Trace{Name: "made up", Devices: []trace.Device{*deviceOf(0, lives, marks)}}
}

func optimizerMark(at int64, end bool) trace.Annotation {
	return trace.Annotation{Name: "Optimizer.step#AdamW.step", At: trace.Time(at), End: end}
}
