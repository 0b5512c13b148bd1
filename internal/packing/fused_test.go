package packing

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/fusion"
	"github.com/stplan/stplan/internal/synth"
)

// pipelineProblems are problems of more than fuseAbove buffers.
func pipelineProblems() []*Problem {
	var out []*Problem
	for seed := range uint64(6) {
		spec := synth.Pipeline{Layers: 4, Chunks: 1 + int(seed%2), Stages: 2, MicroBatches: 8, Iterations: 4, PerLayer: 12,
			Varied: seed > 1, Recompute: seed == 3, Optimizer: int(seed)}
		if seed > 3 {
			spec.Jitter, spec.Drift = 0.1, 0.1
		}
		p := &Problem{Alignment: 512}
		for _, b := range synth.Generate(spec, seed) {
			p.Buffers = append(p.Buffers, Buffer{Start: Time(b.Start), End: Time(b.End), Size: Bytes(b.Size)})
		}
		out = append(out, p)
	}
	return out
}

// TestFusedIsValid: the placement of a large problem is valid and within the capacity,
// has the bound that packing without fusion finds, and is the same with one worker and
// with three.
func TestFusedIsValid(t *testing.T) {
	for i, p := range pipelineProblems() {
		if len(p.Buffers) <= fuseAbove {
			t.Fatalf("problem %d: expected more than %d buffers, so that it is fused, found %d", i, fuseAbove, len(p.Buffers))
		}
		alone, err := packPlain(context.Background(), p, Options{Workers: 1}, work{rulesOnly: true, budget: 1})
		if err != nil {
			t.Fatal(err)
		}
		opt := Options{Capacity: alone.MaxLoad.Load + alone.MaxLoad.Load/8, Workers: 1}
		one, err := Pack(context.Background(), p, opt)
		if err != nil {
			t.Fatal(err)
		}
		opt.Workers = 3
		other, err := Pack(context.Background(), p, opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := Validate(p, one); err != nil {
			t.Errorf("problem %d: %v", i, err)
		}
		if one.Makespan > opt.Capacity || one.MaxLoad != alone.MaxLoad {
			t.Errorf("problem %d: expected a makespan of at most %d and the bound %+v, found %d and %+v",
				i, opt.Capacity, alone.MaxLoad, one.Makespan, one.MaxLoad)
		}
		if !slices.Equal(one.Offsets, other.Offsets) || one.Heuristic != other.Heuristic {
			t.Errorf("problem %d: expected the same placement with one worker and with three, found %s and %s", i, one.Heuristic, other.Heuristic)
		}
	}
}

// TestEveryReductionIsValid: each reduction by itself gives a valid placement with the
// same bound.
func TestEveryReductionIsValid(t *testing.T) {
	for i, p := range pipelineProblems() {
		fold, err := fusion.Fold(roundedBuffers(p))
		if err != nil {
			t.Fatal(err)
		}
		var bound Bound
		for k, r := range reductions {
			reduced, err := r.reduce(fold)
			if err != nil {
				t.Fatal(err)
			}
			f := fused{problem: p, opt: Options{Capacity: 1 << 60, Workers: 2}}
			if err := f.try(context.Background(), 0, r, reduced); err != nil {
				t.Fatal(err)
			}
			if _, err := f.answer(); err != nil {
				t.Errorf("problem %d, reduction %d: %v", i, k, err)
			}
			if k == 0 {
				bound = f.best.MaxLoad
			}
			if f.best.MaxLoad != bound {
				t.Errorf("problem %d, reduction %d: expected the bound %+v, found %+v", i, k, bound, f.best.MaxLoad)
			}
		}
	}
}

// TestFusedRefuses: a large problem gets the same errors as a small one.
func TestFusedRefuses(t *testing.T) {
	p := pipelineProblems()[0]
	_, err := Pack(context.Background(), p, Options{Capacity: 1 << 20, TimeLimit: 1})
	var over *CapacityError
	if !errors.As(err, &over) || !over.Infeasible() {
		t.Errorf("expected an infeasible capacity, found %v", err)
	}
	p.Buffers[1500].End = p.Buffers[1500].Start
	_, err = Pack(context.Background(), p, Options{})
	var input *InputError
	if !errors.As(err, &input) || input.Where != "buffer 1500" {
		t.Errorf("expected an error about buffer 1500, found %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = Pack(ctx, pipelineProblems()[0], Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("expected %v, found %v", context.Canceled, err)
	}
}

// TestProofsSurviveFolding: a problem with an optimum above its load, repeated two
// hundred times, is solved and proven once, and the buffers of the witness are indices
// of the whole problem.
func TestProofsSurviveFolding(t *testing.T) {
	once := []Buffer{
		{Start: 0, End: 5, Size: 2}, {Start: 0, End: 2, Size: 2}, {Start: 2, End: 7, Size: 2}, {Start: 5, End: 8, Size: 1},
		{Start: 5, End: 10, Size: 1}, {Start: 7, End: 10, Size: 1}, {Start: 7, End: 12, Size: 1}, {Start: 8, End: 9, Size: 1},
		{Start: 9, End: 12, Size: 1}, {Start: 10, End: 14, Size: 2}, {Start: 12, End: 16, Size: 2},
	}
	p := &Problem{Alignment: 1}
	for k := range Time(200) {
		for _, b := range once {
			p.Buffers = append(p.Buffers, Buffer{Start: b.Start + 20*k, End: b.End + 20*k, Size: b.Size})
		}
	}
	pl, err := Pack(context.Background(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if pl.MaxLoad.Load != 4 || pl.Makespan != 5 || pl.LowerBound != 5 || pl.Witness == nil {
		t.Fatalf("expected load 4, makespan and lower bound 5 with a witness, found %d, %d, %d and %v", pl.MaxLoad.Load, pl.Makespan, pl.LowerBound, pl.Witness)
	}
	core := &Problem{Alignment: 1}
	for _, b := range pl.Witness.Buffers {
		core.Buffers = append(core.Buffers, p.Buffers[b])
	}
	if proof, err := Pack(context.Background(), core, Options{}); err != nil || proof.LowerBound < pl.Witness.Bytes {
		t.Errorf("expected the witness to need %d, found %d and error %v", pl.Witness.Bytes, proof.LowerBound, err)
	}
}

// TestToleranceEndsTheSearch: of many buffers, with gaps and without, at most that much above the lower bound. Few
// buffers are searched to the end.
func TestToleranceEndsTheSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 2))
	larger := 0
	p := pipelineProblems()[0]
	for _, gaps := range []bool{false, true} {
		if gaps {
			randomGaps(rng, p)
		}
		exact, err := Pack(context.Background(), p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		near, err := Pack(context.Background(), p, Options{Tolerance: exact.MaxLoad.Load / 8})
		if err != nil {
			t.Fatal(err)
		}
		if err := Validate(p, near); err != nil {
			t.Errorf("gaps %t: %v", gaps, err)
		}
		if most := near.MaxLoad.Load + near.MaxLoad.Load/8; near.Makespan > most || near.LowerBound > near.Makespan {
			t.Errorf("gaps %t: found a makespan of %d, expected %d to %d", gaps, near.Makespan, near.LowerBound, most)
		}
		if exact.Makespan > near.Makespan {
			t.Errorf("gaps %t: %d without tolerance, expected at most %d", gaps, exact.Makespan, near.Makespan)
		}
		if near.Makespan > exact.Makespan {
			larger++
		}
	}
	if larger == 0 {
		t.Error("no search ended before it had found the smallest makespan")
	}
	for i := range 50 {
		p := randomProblem(rng, 12, 10, 20)
		exact, err := Pack(context.Background(), p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if near, err := Pack(context.Background(), p, Options{Tolerance: math.MaxInt32}); err != nil || near.Makespan != exact.Makespan {
			t.Errorf("small problem %d: found %d, %v, expected %d", i, near.Makespan, err, exact.Makespan)
		}
	}
}

// TestToleranceTriesWhatIsQuick: within any tolerance a placement is at least as small as the quick rules make it.
func TestToleranceTriesWhatIsQuick(t *testing.T) {
	later := 0
	for i, p := range pipelineProblems() {
		first, err := packPlain(context.Background(), p, Options{Workers: 1}, work{rulesOnly: true, budget: 1})
		if err != nil {
			t.Fatal(err)
		}
		quick, err := packPlain(context.Background(), p, Options{Workers: 1}, work{rulesOnly: true, budget: firstRules * len(p.Buffers)})
		if err != nil {
			t.Fatal(err)
		}
		near, err := Pack(context.Background(), p, Options{Tolerance: math.MaxInt32})
		if err != nil {
			t.Fatal(err)
		}
		if near.Makespan > quick.Makespan {
			t.Errorf("problem %d: found a makespan of %d, expected at most %d", i, near.Makespan, quick.Makespan)
		}
		if quick.Makespan < first.Makespan {
			later++
		}
	}
	if later == 0 {
		t.Error("the first rule is the best of the quick ones for each problem, so nothing was tested")
	}
}
