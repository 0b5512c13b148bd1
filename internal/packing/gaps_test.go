package packing

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// randomGaps cuts gaps into about a third of the buffers that live long enough.
func randomGaps(rng *rand.Rand, p *Problem) {
	for i, b := range p.Buffers {
		for from := b.Start + 1; from+1 < b.End && rng.IntN(3) == 0; {
			to := from + 1 + Time(rng.IntN(int(b.End-from-1)))
			p.Gaps = append(p.Gaps, Gap{i, from, to})
			from = to + 1
		}
	}
}

// liveAt reports whether buffer i is live at t, and not in a gap.
func liveAt(p *Problem, i int, t Time) bool {
	if t < p.Buffers[i].Start || t >= p.Buffers[i].End {
		return false
	}
	for _, g := range p.Gaps {
		if g.Buffer == i && g.From <= t && t < g.To {
			return false
		}
	}
	return true
}

// TestGapsByTrial: with gaps, every placement is valid byte by byte and instant by
// instant, the bound is the load without buffers in a gap, and the result does not
// depend on the number of workers.
func TestGapsByTrial(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 4))
	cut, atLoad := 0, 0
	for k := range 100 {
		p := randomProblem(rng, 2+rng.IntN(12), 14, 8)
		p.Alignment = 1
		randomGaps(rng, p)
		cut += len(p.Gaps)
		pl := mustPack(t, p, Options{Workers: 1})
		var load Bytes
		for at := Time(0); at < 30; at++ {
			owner := make([]int, pl.Makespan)
			var live Bytes
			for i, b := range p.Buffers {
				if !liveAt(p, i, at) {
					continue
				}
				live += b.Size
				for x := pl.Offsets[i]; x < pl.Offsets[i]+b.Size; x++ {
					if owner[x] != 0 {
						t.Fatalf("expected one owner of byte %d at %d, found buffers %d and %d: %+v", x, at, owner[x]-1, i, p)
					}
					owner[x] = i + 1
				}
			}
			load = max(load, live)
		}
		if pl.MaxLoad.Load != load || pl.LowerBound != load {
			t.Fatalf("expected the load %d as the bound, found %d and %d: %+v", load, pl.MaxLoad.Load, pl.LowerBound, p)
		}
		if pl.Makespan == load {
			atLoad++
		}
		if k%10 > 0 {
			continue
		}
		if again := mustPack(t, p, Options{Workers: runtime.NumCPU() + 1}); again.Makespan != pl.Makespan || again.Heuristic != pl.Heuristic {
			t.Fatalf("expected %d by %s with several workers too, found %d by %s", pl.Makespan, pl.Heuristic, again.Makespan, again.Heuristic)
		}
	}
	if cut < 100 || atLoad < 80 {
		t.Errorf("expected at least 100 gaps in all, and 80 of 100 problems placed at their load, found %d and %d", cut, atLoad)
	}
}

// TestGapsAreUsed: a buffer that lives within a gap of another shares its bytes.
func TestGapsAreUsed(t *testing.T) {
	p := &Problem{Buffers: []Buffer{{Start: 0, End: 10, Size: 6}, {Start: 3, End: 7, Size: 6}, {Start: 0, End: 10, Size: 2}}, Gaps: []Gap{{0, 3, 7}}}
	if pl := mustPack(t, p, Options{}); pl.Makespan != 8 || pl.Offsets[0] != pl.Offsets[1] {
		t.Errorf("expected 8 bytes with the gap used, found %+v", pl)
	}
	// Validate sees pieces too: an instant longer than the gap is an overlap.
	p.Buffers[1].End++
	err := Validate(p, Placement{Offsets: []Bytes{0, 0, 6}, Makespan: 8})
	if err == nil || !strings.Contains(err.Error(), "buffers 0 and 1 are live at once") {
		t.Errorf("expected an overlap of buffers 0 and 1, found %v", err)
	}
}

func TestGapsRefused(t *testing.T) {
	for want, gaps := range map[string][]Gap{
		"gap 0: expected a buffer from 0 to 1, found 2":                                      {{2, 1, 2}},
		"gap 0: expected a buffer from 0 to 1, found -1":                                     {{-1, 1, 2}},
		"gap 1: expected a buffer from 1 to 1, found 0":                                      {{1, 3, 4}, {0, 3, 4}},
		"gap 0: expected a time within [0, 10), after the gap before, found [0, 4)":          {{0, 0, 4}},
		"gap 0: expected a time within [0, 10), after the gap before, found [4, 10)":         {{0, 4, 10}},
		"gap 0: expected a time within [0, 10), after the gap before, found [4, 4)":          {{0, 4, 4}},
		"gap 1: expected a time within [0, 10), after the gap before, found [4, 6)":          {{0, 2, 4}, {0, 4, 6}},
		"gap 0: expected a time within [2, 5), after the gap before, found [-9000000, 3)":    {{1, -9000000, 3}},
		"gap 0: expected a time within [2, 5), after the gap before, found [3, 90000000000)": {{1, 3, 90000000000}},
	} {
		p := &Problem{Buffers: []Buffer{{Start: 0, End: 10, Size: 6}, {Start: 2, End: 5, Size: 6}}, Gaps: gaps}
		if _, err := Pack(context.Background(), p, Options{}); err == nil || err.Error() != want {
			t.Errorf("expected %q, found %v", want, err)
		}
	}
}

// TestRefinementsKeepMates starts each refinement from a poor layout of a problem with
// gaps.
func TestRefinementsKeepMates(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 2))
	problems := 40
	if !large() {
		problems = 10 // each takes half a second
	}
	for range problems {
		p := randomProblem(rng, 20+rng.IntN(60), 50, 30)
		randomGaps(rng, p)
		in, err := newInstance(p)
		if err != nil {
			t.Fatal(err)
		}
		poor, ok := firstFit(alone(in), byStart.sorted(in))
		if !ok {
			t.Fatal("first fit gave up")
		}
		for i, refine := range refinements {
			l := refine(newSearch(context.Background(), in, Options{Workers: 1}, everything), poor)
			if err := Validate(p, in.placement(l)); err != nil {
				t.Fatalf("refinement %d: %v", i, err)
			}
			if l.makespan > poor.makespan {
				t.Fatalf("refinement %d: expected a makespan of at most %d, found %d", i, poor.makespan, l.makespan)
			}
		}
	}
}
