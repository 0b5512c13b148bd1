package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/stplan/stplan/internal/fit"
	"github.com/stplan/stplan/internal/report"
)

// demandSizes refuses --sizes that do not belong to the recordings, and --at of ranks.
func demandSizes(sizes, at []float64, recordings int, ranks bool) error {
	for _, x := range at {
		if !(x > 0) || math.IsInf(x, 1) {
			return fmt.Errorf("--at: expected numbers above 0, found %g", x)
		}
	}
	if at != nil && ranks {
		return errors.New("--at needs recordings at several sizes, and these are ranks of a job")
	}
	if sizes == nil {
		return nil
	}
	if ranks || len(sizes) != recordings || recordings < 2 {
		return fmt.Errorf("--sizes: expected one for each of several recordings of one job, found %d for %d", len(sizes), recordings)
	}
	for _, x := range sizes {
		if !(x > 0) || math.IsInf(x, 1) {
			return fmt.Errorf("--sizes: expected numbers above 0, found %g", x)
		}
	}
	return nil
}

// sizeLaws finds the laws of a job from the devices of its recordings.
func (a *app) sizeLaws(ctx context.Context, recordings [][]*fit.Job, f fitFlags, b fit.Budget) ([]report.SizeLaws, error) {
	var out []report.SizeLaws
	for i := range recordings[0] {
		jobs := make([]*fit.Job, len(recordings))
		for k := range recordings {
			if len(recordings[k]) != len(recordings[0]) {
				return nil, fmt.Errorf("%s: expected allocations on %d devices, as in %s, found them on %d",
					recordings[k][0].Trace.Name, len(recordings[0]), recordings[0][0].Trace.Name, len(recordings[k]))
			}
			jobs[k] = recordings[k][i]
		}
		laws, err := a.deviceLaws(ctx, jobs, f, b)
		if err != nil {
			return nil, err
		}
		if laws == nil && f.at != nil {
			return nil, fmt.Errorf("--at: %s: its iterations do not differ in size, so there is no law", jobs[0].Trace.Name)
		}
		if laws != nil {
			out = append(out, *laws)
		}
	}
	return out, nil
}

// deviceLaws finds the laws of one device. It is nil if there is a single recording, whose
// iterations are all alike.
func (a *app) deviceLaws(ctx context.Context, jobs []*fit.Job, f fitFlags, b fit.Budget) (*report.SizeLaws, error) {
	l, checks, err := a.testedLaws(ctx, jobs, f.sizes)
	if err != nil || l == nil {
		return nil, err
	}
	allocators := fitAllocators(jobs[0].Recorded)
	bar := a.waiting("finding the largest size that fits", int64(len(allocators)))
	largest, beyond, err := l.Largest(ctx, allocators, checks, b, bar.update)
	bar.done()
	if err != nil {
		return nil, err
	}
	growth, err := l.Growth()
	if err != nil {
		return nil, err
	}
	m := l.Matching(l.Sizes[len(l.Sizes)-1])
	out := &report.SizeLaws{
		Device: jobs[0].Device.Ordinal, Given: l.Given, Step: l.Step(), Allocations: m.Allocations, Matched: m.Matched,
		Unknown: int64(m.Unknown), Constant: int64(m.Constant), Beyond: beyond,
		Growth: int64(growth), Checks: []report.LawCheck{},
	}
	for i, j := range l.Jobs {
		out.Sizes = append(out.Sizes, report.LawedSize{Trace: j.Trace.Name, Size: l.Sizes[i], Found: l.Found[i]})
	}
	for _, c := range checks {
		out.Checks = append(out.Checks, lawCheck(&c))
	}
	for _, one := range largest {
		out.Largest = append(out.Largest, largestSize(&one))
	}
	for _, x := range f.at {
		predicted, err := a.predictedSize(ctx, l, checks, allocators, x, b)
		if err != nil {
			return nil, err
		}
		out.Asked = append(out.Asked, *predicted)
	}
	a.noteSizes(l)
	return out, nil
}

// testedLaws finds the laws of one device, nil as for deviceLaws, and what tests them.
func (a *app) testedLaws(ctx context.Context, jobs []*fit.Job, sizes []float64) (l *fit.Laws, checks []fit.Check, err error) {
	bar := a.waiting("finding size laws", 0)
	defer bar.done()
	if len(jobs) == 1 {
		l, err = fit.FindLengths(jobs[0])
	} else {
		l, err = fit.FindLaws(jobs, sizes)
	}
	if err != nil || l == nil {
		return nil, nil, err
	}
	checks, err = l.Check(ctx, fitAllocators(jobs[0].Recorded))
	return l, checks, err
}

// predictedSize tries the job at a size. What it says of each allocator is an estimate.
func (a *app) predictedSize(ctx context.Context, l *fit.Laws, checks []fit.Check, allocators []fit.Allocator, x float64, b fit.Budget) (*report.PredictedSize, error) {
	j, err := l.At(x)
	if err != nil {
		return nil, err
	}
	out := &report.PredictedSize{Size: x, PeakAllocated: int64(j.Allocated())}
	share, err := l.ErrorBar(checks, "", x)
	if err != nil {
		return nil, err
	}
	out.Low, out.High = report.Bar(out.PeakAllocated, share)
	if out.Allocators, err = a.tryAll(ctx, allocators, j, b); err != nil {
		return nil, err
	}
	for i := range out.Allocators {
		row := &out.Allocators[i]
		if row.Unfit != "" {
			continue
		}
		if share, err = l.ErrorBar(checks, row.Key, x); err != nil {
			return nil, err
		}
		row.Estimated(share, int64(b.Usable()))
	}
	return out, nil
}

func lawCheck(c *fit.Check) report.LawCheck {
	predicted := func(p fit.Compared) report.LawPrediction {
		return report.LawPrediction{Key: p.Key, Predicted: int64(p.Predicted), Found: int64(p.Found), Error: p.Error()}
	}
	out := report.LawCheck{Trace: c.Job.Trace.Name, Size: c.Size, Independent: c.Independent, Allocated: predicted(c.Allocated)}
	for _, r := range c.Reserved {
		out.Reserved = append(out.Reserved, predicted(r))
	}
	return out
}

func largestSize(one *fit.Largest) report.LargestSize {
	out := report.LargestSize{Key: one.Allocator.Key, Title: one.Allocator.Title}
	if one.Size > 0 {
		within := int64(one.Answer.Within)
		out.Size, out.Low, out.High, out.PeakReserved = &one.Size, &one.Low, &one.High, &within
	}
	return out
}

// unlikely is the share by which the sizes that were given may differ from those that
// the allocations show, before a note says so.
const unlikely = 0.02

// noteSizes says if what grows most does not grow as the sizes that were given do.
func (a *app) noteSizes(l *fit.Laws) {
	for i := range l.Jobs[1:] {
		given, found := l.Sizes[i+1]/l.Sizes[0], l.Found[i+1]/l.Found[0]
		if l.Given && math.Abs(found/given-1) > unlikely {
			a.note("%s: what grows most is %.3g times as large as in %s, and the size that was given %.3g times",
				l.Jobs[i+1].Trace.Name, found, l.Jobs[0].Trace.Name, given)
		}
	}
}
