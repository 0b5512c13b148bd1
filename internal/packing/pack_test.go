package packing

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// alone is a job that nothing interrupts.
func alone(in *instance) *job {
	j := &job{in: in, ctx: context.Background(), accepted: new(atomic.Int64), limit: new(atomic.Int64)}
	j.accepted.Store(math.MaxInt64)
	j.limit.Store(math.MaxInt64)
	return j
}

// loadOf is the max load of a problem that Pack takes.
func loadOf(p *Problem) Bound {
	in, err := newInstance(p)
	if err != nil {
		return Bound{}
	}
	return in.maxLoad()
}

func mustPack(t testing.TB, p *Problem, opt Options) Placement {
	t.Helper()
	pl, err := Pack(context.Background(), p, opt)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// optimum is the least makespan of a tiny problem, by trying every order. Some best
// layout has no buffer that can sink. Placing its buffers in the order of their
// offsets, each on top of those that overlap it in time, finds it. So only orders along
// which offsets never decrease have to be tried.
func optimum(p *Problem) Bytes {
	best, load := Bytes(math.MaxInt64), loadByTrial(p).Load
	var placed []int
	off := make([]Bytes, len(p.Buffers))
	var descend func(makespan, lowest Bytes)
	descend = func(makespan, lowest Bytes) {
		if makespan >= best || best == load {
			return
		}
		if len(placed) == len(p.Buffers) {
			best = makespan
			return
		}
		for b, buf := range p.Buffers {
			if slices.Contains(placed, b) {
				continue
			}
			x := Bytes(0)
			for _, k := range placed {
				if o := p.Buffers[k]; o.Start < buf.End && buf.Start < o.End {
					x = max(x, off[k]+o.Size)
				}
			}
			if x < lowest {
				continue
			}
			off[b] = x
			placed = append(placed, b)
			descend(max(makespan, x+buf.Size), x)
			placed = placed[:len(placed)-1]
		}
	}
	descend(0, 0)
	return best
}

func loadByTrial(p *Problem) Bound {
	var best Bound
	for t := Time(0); t < 100; t++ {
		var live Bytes
		for _, b := range p.Buffers {
			if b.Start <= t && t < b.End {
				live += (b.Size + p.Alignment - 1) / p.Alignment * p.Alignment
			}
		}
		if live > best.Load {
			best = Bound{live, t}
		}
	}
	return best
}

// aboveLoad are problems with an optimum above their load.
var aboveLoad = []struct {
	p             Problem
	load, optimum Bytes
}{
	{Problem{Alignment: 1, Buffers: []Buffer{
		{Start: 0, End: 5, Size: 2}, {Start: 0, End: 2, Size: 2}, {Start: 2, End: 7, Size: 2}, {Start: 5, End: 8, Size: 1},
		{Start: 5, End: 10, Size: 1}, {Start: 7, End: 10, Size: 1}, {Start: 7, End: 12, Size: 1}, {Start: 8, End: 9, Size: 1},
		{Start: 9, End: 12, Size: 1}, {Start: 10, End: 14, Size: 2}, {Start: 12, End: 16, Size: 2},
	}}, 4, 5},
	{Problem{Alignment: 1, Buffers: []Buffer{
		{Start: 0, End: 2, Size: 3}, {Start: 0, End: 1, Size: 2}, {Start: 1, End: 4, Size: 1}, {Start: 1, End: 5, Size: 1},
		{Start: 2, End: 3, Size: 1}, {Start: 2, End: 5, Size: 1}, {Start: 2, End: 4, Size: 1}, {Start: 3, End: 4, Size: 1},
		{Start: 4, End: 7, Size: 3}, {Start: 5, End: 9, Size: 2}, {Start: 7, End: 10, Size: 2},
	}}, 5, 6},
}

// TestTinyProblemsAgainstExhaustiveSearch: Pack finds the optimum and proves it: the
// lower bound is the optimum too.
func TestTinyProblemsAgainstExhaustiveSearch(t *testing.T) {
	for _, c := range aboveLoad {
		if best := optimum(&c.p); loadOf(&c.p).Load != c.load || best != c.optimum {
			t.Errorf("expected load %d and optimum %d, found %d and %d", c.load, c.optimum, loadOf(&c.p).Load, best)
		}
		if pl := mustPack(t, &c.p, Options{}); pl.Makespan != c.optimum {
			t.Errorf("expected the optimum %d, found %d", c.optimum, pl.Makespan)
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 3000 {
		p := randomProblem(rng, 1+rng.IntN(7), 8, 9)
		if i%2 == 1 {
			p = fullProblem(rng, 9, 5, 5)
		}
		best := optimum(p)
		pl := mustPack(t, p, Options{Workers: 1})
		if load := loadOf(p).Load; load > best || pl.Makespan != best || pl.LowerBound != best {
			t.Fatalf("expected the optimum %d at load %d, found %d with lower bound %d: %v", best, load, pl.Makespan, pl.LowerBound, p.Buffers)
		}
	}
}

// fullProblem is n buffers that keep every instant but the last ones at the given load.
func fullProblem(rng *rand.Rand, n, load, life int) *Problem {
	p := &Problem{Alignment: 1}
	for now := Time(0); ; now++ {
		left := load
		for _, b := range p.Buffers {
			if now < b.End {
				left -= int(b.Size)
			}
		}
		for left > 0 {
			size := 1 + rng.IntN(left)
			p.Buffers = append(p.Buffers, Buffer{Start: now, End: now + 1 + Time(rng.IntN(life)), Size: Bytes(size)})
			if left -= size; len(p.Buffers) == n {
				return p
			}
		}
	}
}

func TestLowerBoundIsTheMaxLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 1000 {
		p := randomProblem(rng, 1+rng.IntN(20), 30, 9)
		p.Alignment = Bytes(1 + rng.IntN(4))
		if got, want := loadOf(p), loadByTrial(p); got != want {
			t.Fatalf("expected %v, found %v: %v", want, got, p.Buffers)
		}
	}
	if got := loadOf(&Problem{}); got != (Bound{}) {
		t.Errorf("expected no bound for no buffers, found %v", got)
	}
}

// TestEveryRuleMakesValidPlacements runs each rule by itself.
func TestEveryRuleMakesValidPlacements(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	problems := []*Problem{
		generate(pipeline{Layers: 4, Chunks: 2, Stages: 2, MicroBatches: 4, Iterations: 2, PerLayer: 5, Jitter: 0.3}, 1),
		generate(pipeline{Layers: 2, Chunks: 1, Stages: 4, MicroBatches: 8, Iterations: 2, PerLayer: 5}, 2),
		readInstance(t, "minimalloc-A.csv"),
	}
	for range 60 {
		p := randomProblem(rng, 1+rng.IntN(120), 80, 1000)
		p.Alignment = Bytes(1 + rng.IntN(100))
		problems = append(problems, p)
	}
	for _, p := range problems {
		in, err := newInstance(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range portfolio {
			l, ok := r.run(alone(in))
			if !ok {
				t.Fatalf("expected a layout of %d buffers from %s, found none", in.n, r.name)
			}
			if err := Validate(p, in.placement(l)); err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
		}
	}
}

// TestRefinementsOnlyImprove starts each refinement from the layout of the first rule,
// with a capacity below its makespan.
func TestRefinementsOnlyImprove(t *testing.T) {
	p := generate(pipeline{Layers: 2, Chunks: 2, Stages: 2, MicroBatches: 4, Iterations: 2, PerLayer: 4, Jitter: 0.4}, 3)
	in, err := newInstance(p)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := portfolio[0].run(alone(in))
	for i, refine := range refinements {
		s := newSearch(context.Background(), in, Options{Workers: 2, Capacity: Bytes(first.makespan-1) * in.unit}, everything)
		l := refine(s, first)
		if err := Validate(p, in.placement(l)); err != nil {
			t.Fatalf("refinement %d: %v", i, err)
		}
		if l.makespan >= first.makespan {
			t.Errorf("refinement %d: expected less than the first rule's %d, found %d", i, first.makespan, l.makespan)
		}
	}
}

func readInstance(t testing.TB, name string) *Problem {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, p, err := ReadCSV(f, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPermutingAndShiftingChangeNothing: the makespan depends neither on the order of
// the buffers nor on the instant at which time begins.
func TestPermutingAndShiftingChangeNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 30 {
		p := randomProblem(rng, 2+rng.IntN(40), 40, 50)
		want := mustPack(t, p, Options{Workers: 1})
		q := &Problem{Alignment: p.Alignment, Buffers: slices.Clone(p.Buffers)}
		rng.Shuffle(len(q.Buffers), func(i, k int) { q.Buffers[i], q.Buffers[k] = q.Buffers[k], q.Buffers[i] })
		for i := range q.Buffers {
			q.Buffers[i].Start += 1000
			q.Buffers[i].End += 1000
		}
		got := mustPack(t, q, Options{Workers: 1})
		if got.Makespan != want.Makespan || got.Heuristic != want.Heuristic {
			t.Fatalf("expected %d by %s, found %d by %s", want.Makespan, want.Heuristic, got.Makespan, got.Heuristic)
		}
	}
}

// TestSameResultWithAnyWorkers covers instances that stop early and late.
func TestSameResultWithAnyWorkers(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	problems := []*Problem{
		generate(pipeline{Layers: 4, Chunks: 1, Stages: 4, MicroBatches: 8, Iterations: 2, PerLayer: 7}, 1),
		readInstance(t, "minimalloc-A.csv"),
	}
	for range 9 {
		problems = append(problems, randomProblem(rng, 20, 30, 40))
	}
	for i, p := range problems {
		opt := Options{Workers: 1}
		if i%3 == 2 {
			opt.Capacity = loadOf(p).Load * 5 / 4
		}
		before := runtime.GOMAXPROCS(1)
		want, wantErr := Pack(context.Background(), p, opt)
		runtime.GOMAXPROCS(max(2, before))
		for _, workers := range []int{2, 7} {
			opt.Workers = workers
			got, err := Pack(context.Background(), p, opt)
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(err, wantErr) {
				t.Errorf("problem %d with %d workers: expected %d by %s, found %d by %s", i, workers,
					want.Makespan, want.Heuristic, got.Makespan, got.Heuristic)
			}
		}
		runtime.GOMAXPROCS(before)
	}
}

func TestPackRefusesWhatCannotBePlaced(t *testing.T) {
	for _, c := range []struct {
		p    Problem
		want string
	}{
		{Problem{Buffers: []Buffer{{Start: 0, End: 1, Size: 1}, {Start: 5, End: 5, Size: 1}}}, "buffer 1: expected an end after the start 5, found 5"},
		{Problem{Buffers: []Buffer{{Start: 5, End: 4, Size: 1}}}, "buffer 0: expected an end after the start 5, found 4"},
		{Problem{Buffers: []Buffer{{Start: -1, End: 4, Size: 1}}}, "buffer 0: expected a start of 0 or later, found -1"},
		{Problem{Buffers: []Buffer{{Start: 0, End: 4, Size: 0}}}, "buffer 0: expected a size above 0 bytes, found 0"},
		{Problem{Buffers: []Buffer{{Start: 0, End: 4, Size: -8}}}, "buffer 0: expected a size above 0 bytes, found -8"},
		{Problem{Buffers: []Buffer{{Start: 0, End: 1, Size: 1 << 62},
			{Start: 3, End: 4, Size: 1 << 62}}}, "buffer 1: size 4611686018427387904 bytes: expected all sizes to add up to at most 9223372036854775807 bytes"},
		{Problem{Buffers: []Buffer{{Start: 0, End: 1, Size: math.MaxInt64 - 5}}, Alignment: 512}, "buffer 0: size 9223372036854775802 bytes: expected all sizes to add up to at most 9223372036854775807 bytes"},
		{Problem{Alignment: -1}, "alignment: expected at least 1 byte, found -1"},
	} {
		_, err := Pack(context.Background(), &c.p, Options{})
		var in *InputError
		if err == nil || err.Error() != c.want || !errors.As(err, &in) {
			t.Errorf("expected %q, found %v", c.want, err)
		}
	}
	_, err := Pack(context.Background(), &Problem{}, Options{Capacity: -1})
	if want := "capacity: expected at least 0 bytes, found -1"; err == nil || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
}

func TestPackTakesExtremes(t *testing.T) {
	for _, c := range []struct {
		p    Problem
		want Bytes
	}{
		{Problem{}, 0},
		{Problem{Buffers: []Buffer{{Start: 0, End: math.MaxInt64, Size: math.MaxInt64}}}, math.MaxInt64},
		{Problem{Buffers: []Buffer{{Start: 0, End: 1, Size: 1}, {Start: 1, End: 2, Size: 1}}}, 1},
		{Problem{Buffers: []Buffer{{Start: 0, End: 2, Size: 1}, {Start: 1, End: 2, Size: 1}}, Alignment: 512}, 1024},
		{Problem{Buffers: []Buffer{{Start: 0, End: math.MaxInt64, Size: 1}, {Start: 1, End: 2, Size: math.MaxInt64 - 1}}}, math.MaxInt64},
	} {
		if pl := mustPack(t, &c.p, Options{}); pl.Makespan != c.want {
			t.Errorf("%v: expected a makespan of %d, found %d", c.p, c.want, pl.Makespan)
		}
	}
}

func TestCapacity(t *testing.T) {
	open := &CapacityError{Capacity: 4, Best: 5, LowerBound: 3}
	if want := "no placement found in 4 bytes: the best takes 5 bytes, the lower bound is 3 bytes, so it is undecided"; open.Infeasible() || open.Error() != want {
		t.Errorf("expected %q, found %q", want, open.Error())
	}
	p := &aboveLoad[0].p // load 4, optimum 5
	if pl := mustPack(t, p, Options{Capacity: 5}); pl.Makespan != 5 {
		t.Errorf("expected 5, found %d", pl.Makespan)
	}
	if pl := mustPack(t, p, Options{Capacity: 100}); pl.Heuristic != portfolio[0].name {
		t.Errorf("expected the first rule to be enough, found %s", pl.Heuristic)
	}
	for _, c := range []struct {
		capacity Bytes
		want     string
	}{
		{3, "does not fit in 3 bytes: the lower bound is 5 bytes"},
		{4, "does not fit in 4 bytes: the lower bound is 5 bytes"}, // what only the exact search knows
	} {
		pl, err := Pack(context.Background(), p, Options{Capacity: c.capacity})
		var over *CapacityError
		if !errors.As(err, &over) || !over.Infeasible() || err.Error() != c.want {
			t.Errorf("capacity %d: expected %q, found %v", c.capacity, c.want, err)
		}
		if pl.Makespan != 5 || Validate(p, pl) != nil {
			t.Errorf("capacity %d: expected the best placement beside the error, found %v", c.capacity, pl)
		}
	}
}

func TestTimeLimitAndCancel(t *testing.T) {
	// No rule reaches the load of this problem, so the search takes seconds.
	p := generate(pipeline{Layers: 8, Chunks: 2, Stages: 4, MicroBatches: 16, Iterations: 2, PerLayer: 22, Jitter: 0.1}, 1)
	pl := mustPack(t, p, Options{TimeLimit: time.Nanosecond, Workers: 2})
	if !pl.TimeLimitHit {
		t.Error("expected TimeLimitHit after a nanosecond, found false")
	}
	began := time.Now()
	pl = mustPack(t, p, Options{TimeLimit: 100 * time.Millisecond, Workers: 2})
	if took := time.Since(began); !pl.TimeLimitHit || took > 2*time.Second {
		t.Errorf("expected a stop near 100 ms, found %v, hit %v", took, pl.TimeLimitHit)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if pl, err := Pack(ctx, p, Options{}); !errors.Is(err, context.Canceled) || pl.Offsets != nil {
		t.Errorf("expected a cancelled context to be the error, found %v", err)
	}
	if pl := mustPack(t, &aboveLoad[0].p, Options{TimeLimit: time.Hour}); pl.TimeLimitHit {
		t.Error("expected no TimeLimitHit within an hour, found true")
	}
}

func TestProgressReachesItsTotal(t *testing.T) {
	last, total := -1, 0
	best := Bytes(math.MaxInt64)
	pl := mustPack(t, &aboveLoad[0].p, Options{Workers: 4, Progress: func(done, of int, b Bytes) {
		if done < last || done > of || b > best {
			t.Errorf("expected steps that only rise and makespans that only fall, found step %d of %d at %d after %d at %d", done, of, b, last, best)
		}
		last, total, best = done, of, b
	}})
	if last != total || best != pl.Makespan {
		t.Errorf("expected to end at step %d with %d, found %d with %d", total, pl.Makespan, last, best)
	}
}

// TestPlacesLikeTrial compares the answers of the occupancy tree with trying every
// offset.
func TestPlacesLikeTrial(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for range 300 {
		sections := 1 + rng.IntN(20)
		tree := newOccupancy(sections)
		taken := make([][64]bool, sections)
		free := func(lo, hi int32, x, size int64) bool {
			for s := lo; s < hi; s++ {
				for y := x; y < x+size; y++ {
					if y < 64 && taken[s][y] {
						return false
					}
				}
			}
			return true
		}
		for range 25 {
			lo := int32(rng.IntN(sections))
			hi := lo + 1 + int32(rng.IntN(sections-int(lo)))
			size, from, limit := int64(1+rng.IntN(5)), int64(rng.IntN(10)), int64(rng.IntN(64))
			low, high := from, limit-size
			for !free(lo, hi, low, size) {
				low++
			}
			for high >= 0 && !free(lo, hi, high, size) {
				high--
			}
			if got := tree.lowest(lo, hi, size, from); got != low {
				t.Fatalf("lowest: expected %d, found %d", low, got)
			}
			if got := tree.highest(lo, hi, size, limit); got != max(high, -1) {
				t.Fatalf("highest: expected %d, found %d", high, got)
			}
			if got, want := tree.tightest(lo, hi, size), tightestByTrial(lo, hi, size, free); got != want {
				t.Fatalf("tightest: expected %d, found %d", want, got)
			}
			if x := int64(rng.IntN(64 - int(size))); free(lo, hi, x, size) {
				tree.take(lo, hi, span{x, x + size})
				for s := lo; s < hi; s++ {
					for y := x; y < x+size; y++ {
						taken[s][y] = true
					}
				}
			}
		}
	}
}

func tightestByTrial(lo, hi int32, size int64, free func(lo, hi int32, x, size int64) bool) int64 {
	best, least := int64(-1), int64(math.MaxInt64)
	for x := int64(0); x < 64; {
		end := x
		for end < 64 && free(lo, hi, end, 1) {
			end++
		}
		length := end - x
		if end == 64 {
			length = math.MaxInt64 - 1 // the room above everything
		}
		if length >= size && length < least {
			best, least = x, length
		}
		x = end + 1
	}
	return best
}
