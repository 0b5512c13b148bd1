package fit

import (
	"context"
	"math"
)

// Largest is the largest size at which a job fits under an allocator.
type Largest struct {
	Allocator Allocator
	// Size is 0 if the job does not fit at any size.
	Size float64
	// Low and High are the ends of its error bar.
	Low, High float64
	// Answer is what the allocator takes at Size.
	Answer Answer
}

const (
	// ratioStep is the step of sizes that are multiples of the first recording's: finer
	// ones mean nothing for batches below 100.
	ratioStep = 0.01
	// farthest is the multiple of the largest recorded size up to which sizes are looked
	// for. Beyond it no law of so few recordings means anything.
	farthest = 64
)

// Step is the distance between two sizes that are tried: 1 if all the given ones are whole
// numbers.
func (l *Laws) Step() float64 {
	for _, x := range l.Sizes {
		if !l.Given || x != math.Trunc(x) {
			return ratioStep * l.Sizes[0]
		}
	}
	return 1
}

// Largest looks for the largest size that fits into a budget, under each allocator. It
// takes for granted that what fits at a size fits at all smaller ones. beyond says that
// the job may still fit at farthest times the largest recording. progress is told how many
// allocators are done.
func (l *Laws) Largest(ctx context.Context, allocators []Allocator, checks []Check, b Budget, progress func(done, total int64)) (out []Largest, beyond bool, err error) {
	s := searcher{laws: l, ctx: ctx, budget: b, checks: checks, step: l.Step()}
	end := int(farthest * l.Sizes[len(l.Sizes)-1] / s.step)
	// No allocator takes less than what is allocated.
	top, err := s.search(0, end, func(j *Job) (bool, error) { return j.Allocated() <= b.Usable(), nil })
	if err != nil {
		return nil, false, err
	}
	if s.perStep, err = l.slope(float64(max(1, top)) * s.step); err != nil {
		return nil, false, err
	}
	for _, a := range allocators {
		if a.Slow {
			continue
		}
		one := Largest{Allocator: a}
		n, err := s.search(0, top, s.fits(a, &one.Answer))
		if err != nil {
			return nil, false, err
		}
		if err := s.describe(&one, n); err != nil {
			return nil, false, err
		}
		out = append(out, one)
		progress(int64(len(out)), int64(len(allocators)))
	}
	for _, a := range allocators {
		if !a.Slow {
			continue
		}
		one, err := s.slow(a, out, top)
		if err != nil {
			return nil, false, err
		}
		out = append(out, one)
	}
	return out, top == end, nil
}

// searcher looks for the largest sizes. It counts them in steps.
type searcher struct {
	laws    *Laws
	ctx     context.Context
	budget  Budget
	checks  []Check
	step    float64
	perStep float64 // bytes by which the job grows
}

// fits says whether a job fits under an allocator, and keeps the last answer of one that
// does: in a search that is the largest.
func (s *searcher) fits(a Allocator, kept *Answer) func(*Job) (bool, error) {
	return func(j *Job) (bool, error) {
		answer, err := a.Try(s.ctx, j, s.budget.Usable(), s.budget.Device)
		if answer.Fits {
			*kept = answer
		}
		return answer.Fits, err
	}
}

// search finds the largest n in (low, high] such that the job at n steps fits; low if none
// does. It goes down from high in longer and longer steps, since most answers are near it,
// and halves the last one.
func (s *searcher) search(low, high int, fits func(*Job) (bool, error)) (int, error) {
	for next, down, found := high, 1, false; low < high; {
		j, err := s.laws.At(float64(next) * s.step)
		if err != nil {
			return 0, err
		}
		ok, err := fits(j)
		if err != nil {
			return 0, err
		}
		if ok {
			low, found = next, true
		} else {
			high = next - 1
		}
		if found {
			next = low + (high-low+1)/2
		} else {
			next, down = max(low+1, high-down+1), 2*down
		}
	}
	return low, nil
}

// slow finds the largest size under an allocator that is not asked often: no smaller than
// under the pool, which serves if a plan does not pay. Its error bar is as long as the
// pool's.
func (s *searcher) slow(a Allocator, found []Largest, top int) (Largest, error) {
	one := Largest{Allocator: a}
	pool := Largest{}
	for _, f := range found {
		if f.Allocator.Key == KeyPool {
			pool = f
		}
	}
	n, err := s.search(int(math.Round(pool.Size/s.step)), top, s.fits(a, &one.Answer))
	if err != nil || n == 0 {
		return one, err
	}
	one.Size = float64(n) * s.step
	one.Low, one.High = max(0, one.Size-(pool.Size-pool.Low)), one.Size+pool.High-pool.Size
	if !one.Answer.Fits { // no larger than under the pool, and not tried
		err = s.answer(&one)
	}
	return one, err
}

func (s *searcher) answer(one *Largest) error {
	j, err := s.laws.At(one.Size)
	if err != nil {
		return err
	}
	one.Answer, err = one.Allocator.Try(s.ctx, j, s.budget.Usable(), s.budget.Device)
	return err
}

// describe says where the error bar of n steps ends.
func (s *searcher) describe(one *Largest, n int) error {
	one.Size = float64(n) * s.step
	if n == 0 || s.perStep <= 0 {
		one.Low, one.High = one.Size, one.Size
		return nil
	}
	share, err := s.laws.ErrorBar(s.checks, one.Allocator.Key, one.Size)
	if err != nil {
		return err
	}
	around := math.Ceil(share * float64(s.budget.Usable()) / s.perStep)
	one.Low, one.High = s.step*max(0, float64(n)-around), s.step*(float64(n)+around)
	return nil
}

// Growth is by how many bytes the job grows for each unit of size, near the largest
// recording.
func (l *Laws) Growth() (float64, error) {
	perStep, err := l.slope(l.Sizes[len(l.Sizes)-1])
	return perStep / l.Step(), err
}

// slope is the growth of the allocated bytes for each step, from a recording's size to x.
func (l *Laws) slope(x float64) (float64, error) {
	from := l.Sizes[0]
	if from == x {
		from = x / 2
	}
	var jobs [2]*Job
	for i, size := range []float64{from, x} {
		var err error
		if jobs[i], err = l.At(size); err != nil {
			return 0, err
		}
	}
	return float64(jobs[1].Allocated()-jobs[0].Allocated()) / (x - from) * l.Step(), nil
}
