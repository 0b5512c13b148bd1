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
	// Unknown is the most bytes live at once whose law is not known: no other recording has
	// them, or they are of no tensor.
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
	m.Unknown = l.unknown(x, func(b *lifespan.Buffer, _ []point) trace.Bytes { return b.Size })
	for i := range tl.Buffers {
		b := tl.Buffers[i]
		points := l.points(base, i, l.all())
		if len(points) < 2 {
			continue
		}
		m.Matched++
		if at := tl.PeakAllocated.At; b.Start <= at && b.RequestedEnd > at && points[0].bytes == points[len(points)-1].bytes {
			m.Constant += b.Size
		}
	}
	return m
}

// unknown is the most bytes live at once, in the recording that sizes near x are made of, whose
// law at x is not known. size says what each of them takes.
func (l *Laws) unknown(x float64, size func(b *lifespan.Buffer, points []point) trace.Bytes) trace.Bytes {
	base := l.nearest(x, l.all())
	tl := l.Jobs[base].Timeline
	unknown := lifespan.Timeline{Events: tl.Events}
	for i := range tl.Buffers {
		points := l.points(base, i, l.all())
		if _, known := lawAt(points, x); !known {
			b := tl.Buffers[i]
			b.Size = size(&b, points)
			unknown.Buffers = append(unknown.Buffers, b)
		}
	}
	return unknown.Load(lifespan.EndRequested).Peak().Bytes
}

// doubtful is the most that what has no law may take at x: the largest size that was recorded,
// or what that grows to in proportion.
func (l *Laws) doubtful(x float64) trace.Bytes {
	if l.within != nil {
		return trace.Bytes(math.Round(float64(l.within.unknown) * max(1, x)))
	}
	return l.unknown(x, func(_ *lifespan.Buffer, points []point) trace.Bytes {
		most := 0.0
		for _, p := range points {
			most = max(most, p.bytes, p.inProportion(x))
		}
		return trace.RoundUp(trace.Bytes(math.Round(min(most, mostBytes))))
	})
}

const (
	// leastError is the least error bar, as a share: what the reserved memory of two runs of
	// the same job differs by. Of the shared recordings that were run again with another
	// seed, those of mixtures of experts differ by 0.04 and 0.05 %, others by nothing.
	leastError = 0.001
	// untested is the least error bar if no recording tests the sizes. It is a guess.
	untested = 0.01
)

// ErrorBar is the share by which what is predicted for an allocator at x may be off, as far as
// the recordings show: the worst check of the allocator times the distance from the recordings,
// and what has no law. The key "" is for the allocated bytes.
func (l *Laws) ErrorBar(checks []Check, key string, x float64) (float64, error) {
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
	j, err := l.At(x)
	if err != nil {
		return 0, err
	}
	return worst*l.distance(x) + float64(l.doubtful(x))/float64(max(1, j.Allocated())), nil
}

// distance is how far x is from the nearest recording, in units of what is between that one
// and its neighbour, or between the longest and the shortest micro-batch of a single
// recording; at least 1. It is the larger of the differences and the ratios: errors of a law
// grow with the difference, and libraries choose algorithms by the ratio.
func (l *Laws) distance(x float64) float64 {
	if l.within != nil {
		return max(1, math.Abs(x-1)/l.within.spread)
	}
	base := l.nearest(x, l.all())
	near := min(max(base, 1), len(l.Sizes)-1)
	low, high, from := l.Sizes[near-1], l.Sizes[near], l.Sizes[base]
	return max(1, math.Abs(x-from)/(high-low), math.Abs(math.Log(x/from))/math.Log(high/low))
}
