package compile

import (
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/replay"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/synth"
	"github.com/stplan/stplan/internal/trace"
	"github.com/stplan/stplan/runtime/cuda"
)

// TestGenerationsOfAnyLength: the plan of a run whose steps generate any number of tokens
// before they train serves a run with other numbers, also one whose first generation is longer, and
// however many different numbers there were.
func TestGenerationsOfAnyLength(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	for _, c := range []struct {
		synth.Training
		// reserved is 1/N of what is allocated that may be reserved above it, and clashes 1/N of the
		// requests, whose places may be taken; 0 if that is not looked at. The second job has 128 MiB, of which a
		// granule is 1.6 %.
		reserved, clashes uint64
	}{
		{synth.Training{Layers: 16, MicroBatches: [2]int{1}, Steps: 8, Tokens: [2]int{20, 60}}, 33, 0},
		{synth.Training{Layers: 8, MicroBatches: [2]int{1}, Steps: 16, Tokens: [2]int{20, 100}, Fused: true}, 16, 50},
	} {
		const seeds = 4
		var runs []generations
		for seed := range uint64(seeds) {
			buffers, steps := c.Generate(seed)
			runs = append(runs, newGenerations(t, buffers, steps))
		}
		longer := 0
		for planned := range runs {
			for served := range runs {
				n := runs[planned].serve(t, &runs[served])
				if runs[served].first > runs[planned].first {
					longer++
				}
				share := float64(n.PlannedBytes) / float64(n.AllocationBytes)
				if share < 0.85 || n.MovedBytes > n.PeakReserved/6 || n.PeakReserved > n.PeakAllocated+n.PeakAllocated/c.reserved || n.Clashes*c.clashes > n.Allocations {
					t.Errorf("%+v: the plan of seed %d serves %.1f %% of the bytes of seed %d, reserves %.4f and moves %.2f; %d of %d requests find their places taken", c.Training, planned, 100*share, served,
						float64(n.PeakReserved)/float64(n.PeakAllocated), float64(n.MovedBytes)/float64(n.PeakReserved), n.Clashes, n.Allocations)
				}
			}
		}
		if longer == 0 {
			t.Errorf("%+v: no first generation is longer than one that was planned", c.Training)
		}
	}
}

// TestFirstGenerationIsLonger: what the first step makes for good is as large as what each step makes
// for a moment. A run whose first generation is longer than the recorded one finds the places of the
// first step again behind it. In those of a later step it would be in the way for ever.
func TestFirstGenerationIsLonger(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	var runs []generations
	for _, tokens := range [][]int{{20, 44, 31, 60, 37}, {35, 24, 52, 41, 28}} {
		buffers, steps := stateful(tokens, []int{9, 9, 9, 9, 9}, 64<<10, 0)
		runs = append(runs, newGenerations(t, buffers, steps))
	}
	n := runs[0].serve(t, &runs[1])
	if share := float64(n.PlannedBytes) / float64(n.AllocationBytes); share < 0.9 || n.Clashes > n.Allocations/100 || n.PeakReserved > n.PeakAllocated+n.PeakAllocated/16 {
		t.Errorf("%.1f %% of the bytes are served, %.4f is reserved, and %d of %d requests find their places taken", 100*share,
			float64(n.PeakReserved)/float64(n.PeakAllocated), n.Clashes, n.Allocations)
	}
}

// TestGenerationsBehindPrompts: the longer a generation, the fewer passes have been recorded so far, so
// one of them with a shorter or longer prompt than theirs requests what no pass did in that round. It is
// still in its generation, and not behind it, where any size was recorded.
func TestGenerationsBehindPrompts(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	buffers, steps := stateful([]int{40, 100, 90, 70, 60, 85, 35}, []int{120, 150, 160, 100, 180, 90, 110}, 4<<10, 3)
	program, plan, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
	run := generations{program: program, plan: plan}
	n := run.serve(t, &run)
	if share := float64(n.PlannedBytes) / float64(n.AllocationBytes); share < 0.99 || n.MovedBytes > n.PeakReserved/20 || n.PeakReserved > n.PeakAllocated+n.PeakAllocated/50 {
		t.Errorf("%.1f %% of the bytes are served, %.4f is reserved, and %.2f moved", 100*share,
			float64(n.PeakReserved)/float64(n.PeakAllocated), float64(n.MovedBytes)/float64(n.PeakReserved))
	}
}

// TestGenerationsBeyondTheLongest: a generation that goes on for more tokens than any recorded one is followed in its last
// rounds, and what is trained behind it has the places that its own length says, though the generation's sizes follow two lengths.
// What the plan has for rounds that few passes were recorded as far as stays once those places are found anew.
func TestGenerationsBeyondTheLongest(t *testing.T) {
	if !simdevice.Built {
		t.Skip("built without cgo: no runtime")
	}
	for _, c := range []struct {
		bits            int // of the bytes that a token keeps in a layer
		tokens, prompts []int
		share           float64
	}{
		{17, []int{50, 95, 112, 80, 108, 60}, []int{120, 150, 160, 140, 150, 100}, 0.93},
		{16, []int{50, 95, 140, 80, 140, 60}, []int{120, 150, 120, 140, 100, 100}, 0.55},
	} {
		kept := func(length, layer int) int64 { return int64(length*(2+layer%3)) << c.bits }
		buffers, steps := trained([]int{40, 100, 90, 70, 60, 85, 35}, []int{120, 150, 160, 100, 180, 90, 110}, 4<<10, 8, kept)
		_, plan, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
		buffers, steps = trained(c.tokens, c.prompts, 4<<10, 8, kept)
		program, _, _ := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Mode: planfile.ModePeriodic})
		run := generations{program: program, plan: plan}
		n := run.serve(t, &run)
		if share := float64(n.PlannedBytes) / float64(n.AllocationBytes); share < c.share || n.PeakReserved > n.PeakAllocated+n.PeakAllocated/100 {
			t.Errorf("%v tokens: %.1f %% of the bytes are served, %.4f is reserved, and %.2f moved", c.tokens, 100*share,
				float64(n.PeakReserved)/float64(n.PeakAllocated), float64(n.MovedBytes)/float64(n.PeakReserved))
		}
	}
}

// generations is a run whose steps generate and then train, with its plan.
type generations struct {
	program *replay.Program
	plan    []byte
	first   int // time of the first step
}

func newGenerations(t *testing.T, buffers []synth.Buffer, steps []synth.Step) generations {
	t.Helper()
	program, plan, dev := programAndPlanOf(t, training(buffers, steps), Options{Producer: "test", Serve: simdevice.Serve})
	if dev.Mode != planfile.ModePeriodic || dev.Advice != planfile.AdviceNone {
		t.Fatalf("mode %v, advice %v", dev.Mode, dev.Advice)
	}
	return generations{program, plan, int(steps[0].End - steps[0].Begin)}
}

// serve serves another run by the plan of this one.
func (g *generations) serve(t *testing.T, other *generations) cuda.Counters {
	t.Helper()
	device, err := simdevice.Open(g.plan, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if err := replay.Drive(other.program, device); err != nil {
		t.Fatal(err)
	}
	return device.Counters()
}

// stateful is a run of a step for each entry of tokens, which generates that many behind a prompt and
// trains. unit is the size of a token in a score, and twice that in a cache; each layer also makes
// some buffers that are always the same. The first step allocates the optimizer's state.
func stateful(tokens, prompts []int, unit int64, same int) ([]synth.Buffer, []synth.Step) {
	return trained(tokens, prompts, unit, same, func(_, layer int) int64 { return int64(20+layer) << 20 })
}

// trained is likewise, with kept(length, layer) bytes that a layer keeps for the backward pass, of a prompt and what was
// generated behind it.
func trained(tokens, prompts []int, unit int64, same int, kept func(length, layer int) int64) ([]synth.Buffer, []synth.Step) {
	const mib, layers = 1 << 20, 12
	p := program{}
	for range layers {
		p.alloc(8 * mib)
	}
	for step, count := range tokens {
		p.begin()
		var cache, acts []int
		for token := range count {
			for layer := range layers {
				for i := range same {
					p.free(p.alloc(int64(48+i) << 10))
				}
				score := p.alloc(int64(token+prompts[step]) * unit)
				grown := p.alloc(int64(token+prompts[step]) * 2 * unit)
				p.free(score)
				if token > 0 {
					p.free(cache[layer])
					cache[layer] = grown
				} else {
					cache = append(cache, grown)
				}
			}
		}
		for _, i := range cache {
			p.free(i)
		}
		for i := range 3 * same { // of the batch that is trained on
			p.free(p.alloc(int64(80+i) << 10))
		}
		for layer := range layers {
			acts = append(acts, p.alloc(kept(prompts[step]+count, layer)))
		}
		for _, i := range acts {
			p.free(i)
		}
		p.optimize(func() {
			for range layers {
				if step == 0 {
					p.alloc(8 * mib)
					p.alloc(8 * mib)
				}
				first, second := p.alloc(8*mib), p.alloc(8*mib)
				p.free(first)
				p.free(second)
			}
		})
	}
	return p.buffers, p.steps
}

// program is a made-up training that is written down request by request, as Training.Generate
// returns it.
type program struct {
	buffers []synth.Buffer
	steps   []synth.Step
	now     int64
}

// alloc returns the number of a new buffer.
func (p *program) alloc(size int64) int {
	p.buffers = append(p.buffers, synth.Buffer{Start: p.now, End: synth.Never, Size: size})
	p.now++
	return len(p.buffers) - 1
}

func (p *program) free(i int) { p.buffers[i].End, p.now = p.now, p.now+1 }

// begin begins a step, and optimize ends it with what its optimizer does.
func (p *program) begin() { p.steps = append(p.steps, synth.Step{Begin: p.now}) }

func (p *program) optimize(does func()) {
	s := &p.steps[len(p.steps)-1]
	s.Optimizer = p.now
	does()
	s.End = p.now
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
