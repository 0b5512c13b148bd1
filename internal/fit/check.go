package fit

import (
	"context"
	"fmt"
	"math"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// Check compares what laws say of a recording with what it is.
type Check struct {
	Job  *Job
	Size float64
	// Independent says that the recording had no part in the laws. With two recordings
	// that cannot be: its sizes did, and only the order of its requests did not.
	Independent bool
	Allocated   Compared
	// Reserved has one for each allocator that the check was asked for.
	Reserved []Compared
}

// Compared is a prediction and what was found, in bytes.
type Compared struct {
	Key              string
	Predicted, Found trace.Bytes
}

// Error is the share by which the prediction is off.
func (c Compared) Error() float64 {
	if c.Found == 0 {
		return 0
	}
	return float64(c.Predicted)/float64(c.Found) - 1
}

// Unlimited is more memory than any job takes, in bytes.
const Unlimited trace.Bytes = 1 << 50

// Check predicts each recording from the others, under allocators that are not slow. The
// laws of a single recording have no others.
func (l *Laws) Check(ctx context.Context, allocators []Allocator) ([]Check, error) {
	if l.within != nil {
		return nil, nil // every law goes through three iterations or more
	}
	var out []Check
	for k, job := range l.Jobs {
		use := l.all()
		others := append(append([]int{}, use[:k]...), use[k+1:]...)
		c := Check{Job: job, Size: l.Sizes[k], Independent: len(others) > 1}
		if c.Independent {
			use = others
		}
		made, err := l.at(l.Sizes[k], l.nearest(l.Sizes[k], others), use)
		if err != nil {
			return nil, err
		}
		c.Allocated = Compared{Predicted: made.Allocated(), Found: job.Allocated()}
		for _, a := range allocators {
			if a.Slow {
				continue
			}
			got := Compared{Key: a.Key}
			for _, one := range []struct {
				job  *Job
				into *trace.Bytes
			}{{made, &got.Predicted}, {job, &got.Found}} {
				answer, err := a.Try(ctx, one.job, Unlimited, Unlimited)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", job.Trace.Name, err)
				}
				*one.into = answer.Reserved
			}
			c.Reserved = append(c.Reserved, got)
		}
		out = append(out, c)
	}
	return out, nil
}

// Matching says how much of a recording the others have as well.
type Matching struct {
	// Allocations of the recording, and how many of them another one has.
	Allocations, Matched int
	// Unknown is the most bytes live at once that no other recording has.
	Unknown trace.Bytes
	// Constant are the bytes at the peak that are the same in all recordings.
	Constant trace.Bytes
}

// Matching looks at the recording that sizes near x are made of.
func (l *Laws) Matching(x float64) Matching {
	if l.within != nil {
		return l.within.matching()
	}
	base := l.nearest(x, l.all())
	tl := l.Jobs[base].Timeline
	m := Matching{Allocations: len(tl.Buffers)}
	unknown := lifespan.Timeline{Events: tl.Events}
	for i := range tl.Buffers {
		b := tl.Buffers[i]
		points := l.points(base, i, l.all())
		if len(points) < 2 {
			unknown.Buffers = append(unknown.Buffers, b)
			continue
		}
		m.Matched++
		if at := tl.PeakAllocated.At; b.Start <= at && b.RequestedEnd > at && points[0].bytes == points[len(points)-1].bytes {
			m.Constant += b.Size
		}
	}
	m.Unknown = unknown.Load(lifespan.EndRequested).Peak().Bytes
	return m
}

const (
	// leastError is the least error bar, as a share: what the reserved memory of two runs of
	// the same job differs by. Of the shared recordings that were run again with another
	// seed, those of mixtures of experts differ by 0.04 and 0.05 %, others by nothing.
	leastError = 0.001
	// untested is the least error bar if no recording tests the sizes. It is a guess.
	untested = 0.01
)

// errorBar is the share by which a prediction at x may be off, as far as the recordings
// show: by the worst check of the allocator and by the allocations without a law, both
// times the distance from the recordings in units of that between the nearest two.
func (l *Laws) errorBar(checks []Check, key string, x float64) float64 {
	worst := leastError
	for _, c := range checks {
		if !c.Independent {
			worst = max(worst, untested)
		}
		worst = max(worst, math.Abs(c.Allocated.Error()))
		for _, r := range c.Reserved {
			if r.Key == key {
				worst = max(worst, math.Abs(r.Error()))
			}
		}
	}
	base := l.nearest(x, l.all())
	apart := l.apart(base)
	unknown := float64(l.Matching(x).Unknown) / float64(max(1, l.Jobs[base].Allocated()))
	return (worst + unknown) * max(1, math.Abs(x-l.Sizes[base])/apart)
}

// apart is the distance between the sizes of a recording and its neighbour, or between the
// longest and the shortest micro-batch of a single recording.
func (l *Laws) apart(base int) float64 {
	if l.within != nil {
		return l.within.spread
	}
	near := min(max(base, 1), len(l.Sizes)-1)
	return l.Sizes[near] - l.Sizes[near-1]
}
