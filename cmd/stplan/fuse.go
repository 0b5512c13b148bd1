package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stplan/stplan/internal/fusion"
	"github.com/stplan/stplan/internal/packing"
)

// Problems up to unfused buffers go to the packer as they are: its exact search
// takes them on. So do those with gaps, which fusion does not know.
const unfused = 1 << 10

// grouped is how many buffers are joined to composites at most: beyond, finding
// them takes longer than the rules on the buffers.
const grouped = 1_000_000

// reduction is one way to pack a problem: what is made of it, and what the rules
// tried on that may cost (packing.Options.Rules), 0 for all that the packer
// knows.
type reduction struct {
	name   string
	reduce func(fold *fusion.Reduced) (*fusion.Reduced, error)
	rules  func(n int) int
}

// reductions are tried in this order until one reaches the target; the first of
// the best wins. The buffers come first, with the rules that are fastest, and
// last, with every search. Composites lie between: they are a tenth of the
// objects, so that all rules cost little, and some of them reach the target
// where no rule does so on the buffers.
var reductions = []reduction{
	{"", buffersAlone, func(n int) int { return min(16*n, 4_000_000) }},
	{"composites, ", composites(1.0 / 4), func(int) int { return 1_250_000 }},
	{"fine composites, ", composites(1.0 / 32), func(int) int { return 4_000_000 }},
	{"", buffersAlone, func(int) int { return 0 }},
}

func buffersAlone(fold *fusion.Reduced) (*fusion.Reduced, error) { return fold, nil }

func composites(waste float64) func(*fusion.Reduced) (*fusion.Reduced, error) {
	return func(fold *fusion.Reduced) (*fusion.Reduced, error) {
		group, err := fusion.Group(fold.Buffers, waste)
		if err != nil {
			return nil, err
		}
		return fold.Then(group), nil
	}
}

// packFused is packing.Pack on what fusion makes of p: repetitions are packed
// once, and composites are tried where they may be quicker. The placement is
// one of p, validated as such, and depends on p and opt alone.
func packFused(ctx context.Context, p *packing.Problem, opt packing.Options) (packing.Placement, error) {
	if len(p.Buffers) <= unfused || len(p.Gaps) > 0 {
		return packing.Pack(ctx, p, opt)
	}
	fold, err := fusionFold(p)
	if err != nil {
		return packing.Pack(ctx, p, opt) // it says what is wrong with p
	}
	f := fused{problem: p, opt: opt, deadline: time.Now().Add(opt.TimeLimit)}
	for i, r := range reductions {
		if r.name != "" && len(fold.Buffers) > grouped {
			continue
		}
		reduced, err := r.reduce(fold)
		if err != nil {
			return packing.Placement{}, err
		}
		if err := f.try(ctx, i, r, reduced); err != nil {
			return packing.Placement{}, err
		}
		if f.done() {
			break
		}
	}
	return f.answer()
}

// fused is the state between two reductions.
type fused struct {
	problem  *packing.Problem
	opt      packing.Options
	deadline time.Time // where there is a limit
	best     packing.Placement
	proven   packing.Bytes
	witness  *packing.Witness
}

// try packs one reduction and keeps the result if it is the best so far.
func (f *fused) try(ctx context.Context, i int, r reduction, reduced *fusion.Reduced) error {
	opt := f.opt
	opt.Rules = r.rules(len(reduced.Buffers))
	if opt.Rules > 0 {
		opt.Below = f.best.Makespan
	}
	if opt.TimeLimit > 0 {
		opt.TimeLimit = max(time.Until(f.deadline), 1) // 0 would be none
	}
	if f.opt.Progress != nil {
		opt.Progress = func(done, total int, best packing.Bytes) {
			f.opt.Progress(i*total+done, len(reductions)*total, best)
		}
	}
	pl, err := packing.Pack(ctx, reducedProblem(f.problem, reduced.Buffers), opt)
	var over *packing.CapacityError
	switch {
	case errors.Is(err, packing.ErrNotBelow):
		return nil
	case err != nil && !errors.As(err, &over):
		return err
	}
	if opt.Rules == 0 {
		// What is proven of some buffers holds for all.
		f.proven, f.witness = pl.LowerBound, pl.Witness
		if w := pl.Witness; w != nil {
			first := reduced.First()
			for i, b := range w.Buffers {
				w.Buffers[i] = int(first[b])
			}
			slices.Sort(w.Buffers)
		}
	}
	hit := pl.TimeLimitHit || f.best.TimeLimitHit
	if f.best.Offsets == nil || pl.Makespan < f.best.Makespan {
		pl.Offsets, pl.Heuristic = asBytes(reduced.Expand(asIntegers(pl.Offsets))), r.name+pl.Heuristic
		f.best = pl
	}
	f.best.TimeLimitHit = hit
	return nil
}

func (f *fused) done() bool {
	if c := f.opt.Capacity; c > 0 && f.best.MaxLoad.Load > c {
		return true
	}
	return f.best.Makespan <= max(f.best.MaxLoad.Load, f.opt.Capacity) || f.best.TimeLimitHit
}

// answer checks the best placement against the problem itself.
func (f *fused) answer() (packing.Placement, error) {
	f.best.LowerBound, f.best.Witness = max(f.best.MaxLoad.Load, f.proven), f.witness
	if err := packing.Validate(f.problem, f.best); err != nil {
		return packing.Placement{}, &packing.BugError{Heuristic: f.best.Heuristic, Err: err}
	}
	if c := f.opt.Capacity; c > 0 && f.best.Makespan > c {
		return f.best, &packing.CapacityError{Capacity: c, Best: f.best.Makespan, LowerBound: f.best.LowerBound}
	}
	return f.best, nil
}

// fusionFold folds the buffers of p, their sizes rounded up.
func fusionFold(p *packing.Problem) (*fusion.Reduced, error) {
	unit := int64(max(p.Alignment, 1))
	buffers := make([]fusion.Buffer, len(p.Buffers))
	for i, b := range p.Buffers {
		size := int64(b.Size)
		if pad := (unit - size%unit) % unit; size <= math.MaxInt64-pad {
			size += pad
		}
		buffers[i] = fusion.Buffer{Start: int64(b.Start), End: int64(b.End), Size: size}
	}
	return fusion.Fold(buffers)
}

func reducedProblem(p *packing.Problem, buffers []fusion.Buffer) *packing.Problem {
	q := &packing.Problem{Alignment: p.Alignment, Buffers: make([]packing.Buffer, len(buffers))}
	for i, b := range buffers {
		q.Buffers[i] = packing.Buffer{Start: packing.Time(b.Start), End: packing.Time(b.End), Size: packing.Bytes(b.Size)}
	}
	return q
}

func asIntegers(offsets []packing.Bytes) []int64 {
	out := make([]int64, len(offsets))
	for i, x := range offsets {
		out[i] = int64(x)
	}
	return out
}

func asBytes(offsets []int64) []packing.Bytes {
	out := make([]packing.Bytes, len(offsets))
	for i, x := range offsets {
		out[i] = packing.Bytes(x)
	}
	return out
}
