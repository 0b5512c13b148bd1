package packing

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stplan/stplan/internal/fusion"
)

// fuseAbove is the largest problem, in buffers, that is packed as it stands: the exact
// search takes on problems of that size.
const fuseAbove = 1 << 10

// groupUpTo is the largest folded problem, in buffers, whose buffers are joined to
// composites. Beyond it finding composites takes longer than the rules take on the
// buffers; on two million it took 30 % of the time (docs/results/scale.md).
const groupUpTo = 1_000_000

// reduction is one way to pack a problem: how the folded problem is made smaller, and
// the work of the search on the result.
type reduction struct {
	name   string // before the name of the rule that wins; "" for buffers
	reduce func(fold *fusion.Reduced) (*fusion.Reduced, error)
	work   func(buffers int) work
}

// reductions are tried in this order until one reaches the target; the first of the
// best wins. The buffers come first, with the cheapest rules, and last, with every
// search. Composites lie between. Coarse ones are a fifth to a twentieth of the buffers
// and fine ones a fifth to two fifths (docs/results/scale.md), so that all rules cost
// little on them, and on some problems a rule reaches the target on the composites and
// none does on the buffers.
var reductions = []reduction{
	{"", buffersAlone, func(n int) work { return work{rulesOnly: true, budget: min(firstRules*n, smallBudget)} }},
	{"composites, ", composites(coarseWaste), func(int) work { return work{rulesOnly: true, budget: coarseBudget} }},
	{"fine composites, ", composites(fineWaste), func(int) work { return work{rulesOnly: true, budget: smallBudget} }},
	{"", buffersAlone, func(int) work { return everything }},
}

// firstRules is the budget of the rules that are tried first on the buffers, a buffer,
// in the unit of cost: the two sweeps and four first fits.
const firstRules = 20

// smallBudget is the budget of the rules on the fine composites, and at most of those
// that are tried first on the buffers. It is two sevenths of rulesBudget, so that these
// attempts take a fraction of the time of the full search that follows.
const smallBudget = 4_000_000

// coarseBudget is the budget of the rules on the coarse composites, which are two to
// eight times fewer than the fine ones.
const coarseBudget = 1_250_000

// coarseWaste and fineWaste are the largest share of a composite's size × life that may
// be unused. The fine composites save less work and leave smaller gaps: on the recorded
// pipelines the rules leave up to 8.2 % with the coarse ones, up to 5.0 % with the fine
// ones.
const (
	coarseWaste = 1.0 / 4
	fineWaste   = 1.0 / 32
)

func buffersAlone(fold *fusion.Reduced) (*fusion.Reduced, error) { return fold, nil }

// composites joins buffers as long as at most the share waste of a composite's size ×
// life is unused.
func composites(waste float64) func(*fusion.Reduced) (*fusion.Reduced, error) {
	return func(fold *fusion.Reduced) (*fusion.Reduced, error) {
		group, err := fusion.Group(fold.Buffers, waste)
		if err != nil {
			return nil, err
		}
		return fold.Then(group), nil
	}
}

// packFused packs p through fusion: repetitions are packed once, and composites are
// tried if they may be quicker. The placement is one of p, validated as such, and
// depends on p and opt alone.
func packFused(ctx context.Context, p *Problem, opt Options) (Placement, error) {
	fold, err := fusion.Fold(roundedBuffers(p))
	if err != nil {
		return packPlain(ctx, p, opt, everything) // it says what is wrong with p
	}
	f := fused{problem: p, opt: opt, deadline: time.Now().Add(opt.TimeLimit)}
	for i, r := range reductions {
		if i == len(reductions)-1 {
			f.tolerance = opt.Tolerance
			if !f.done() && !f.late() {
				if err := f.tryClasses(ctx, fold); err != nil {
					return Placement{}, err
				}
			}
		}
		if f.done() || f.late() {
			break
		}
		if r.name != "" && len(fold.Buffers) > groupUpTo {
			continue
		}
		reduced, err := r.reduce(fold)
		if err != nil {
			return Placement{}, err
		}
		if err := f.try(ctx, i, r, reduced); err != nil {
			return Placement{}, err
		}
	}
	return f.answer()
}

// fused is the state between two reductions.
type fused struct {
	problem  *Problem
	opt      Options
	deadline time.Time // if opt has a time limit
	best     Placement
	proven   Bytes
	witness  *Witness
	// tolerance is how far the makespan may be above the max load: that of opt before the
	// full search, and nothing before the quick attempts, each of which may reach it for little.
	tolerance Bytes
}

// try packs one reduction and keeps the result if it is the best so far. answer validates
// what is kept in the end.
func (f *fused) try(ctx context.Context, i int, r reduction, reduced *fusion.Reduced) error {
	opt, work := f.remaining(), r.work(len(reduced.Buffers))
	if work.rulesOnly {
		work.below = f.best.Makespan
	}
	if f.opt.Progress != nil {
		opt.Progress = func(done, total int, best Bytes) {
			f.opt.Progress(i*total+done, len(reductions)*total, best)
		}
	}
	pl, err := packUnchecked(ctx, &Problem{Alignment: f.problem.Alignment, Buffers: reduced.Buffers}, opt, work)
	switch {
	case errors.Is(err, errNotBelow):
		return nil
	case err != nil:
		return err
	}
	if !work.rulesOnly {
		f.keepProof(pl, reduced)
	}
	hit := pl.TimeLimitHit || f.best.TimeLimitHit
	if f.best.Offsets == nil || pl.Makespan < f.best.Makespan {
		pl.Offsets, pl.Heuristic = reduced.Expand(pl.Offsets), r.name+pl.Heuristic
		f.best = pl
	}
	f.best.TimeLimitHit = hit
	return nil
}

// remaining is the options with the time that is left.
func (f *fused) remaining() Options {
	opt := f.opt
	if opt.TimeLimit > 0 {
		opt.TimeLimit = max(time.Until(f.deadline), 1) // 0 would mean no limit
	}
	return opt
}

// keepProof takes over the lower bound that the search has proven of the reduced
// problem. That problem is some of the buffers, so the proof holds for all of them.
func (f *fused) keepProof(pl Placement, reduced *fusion.Reduced) {
	f.proven, f.witness = pl.LowerBound, pl.Witness
	if w := pl.Witness; w != nil {
		first := reduced.First()
		for i, b := range w.Buffers {
			w.Buffers[i] = int(first[b])
		}
		slices.Sort(w.Buffers)
	}
}

// late says whether the time is up and there is a placement, and notes it there. A search
// that the limit stops says so itself, but not one that found nothing better by then.
func (f *fused) late() bool {
	if f.opt.TimeLimit == 0 || f.best.Offsets == nil || time.Now().Before(f.deadline) {
		return false
	}
	f.best.TimeLimitHit = true
	return true
}

func (f *fused) done() bool {
	if f.best.Offsets == nil {
		return false
	}
	if c := f.opt.Capacity; c > 0 && f.best.MaxLoad.Load > c {
		return true
	}
	return f.best.Makespan <= max(f.best.MaxLoad.Load+f.tolerance, f.opt.Capacity) || f.best.TimeLimitHit
}

// answer checks the best placement against the problem itself.
func (f *fused) answer() (Placement, error) {
	f.best.LowerBound, f.best.Witness = max(f.best.MaxLoad.Load, f.proven), f.witness
	if err := Validate(f.problem, f.best); err != nil {
		return Placement{}, &BugError{Heuristic: f.best.Heuristic, Err: err}
	}
	return f.best, withinCapacity(f.best, f.opt)
}

// roundedBuffers are the buffers of p with their sizes rounded up to its alignment. A
// size that would overflow stays; it is refused later.
func roundedBuffers(p *Problem) []Buffer {
	unit := max(p.Alignment, 1)
	buffers := slices.Clone(p.Buffers)
	for i := range buffers {
		if size := buffers[i].Size; size <= math.MaxInt64-unit+1 {
			buffers[i].Size = roundUp(size, unit)
		}
	}
	return buffers
}
