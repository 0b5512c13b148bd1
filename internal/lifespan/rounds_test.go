package lifespan

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/synth"
)

// TestRounds finds the bodies of programs whose steps run a loop any number of times: tokens,
// micro-batches, or both. They should be one body, which is as long as the longest step if each
// round is aligned with another one. An evaluation of many batches repeats itself as well, and is
// an alternative.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		name string
		synth.Training
		bodies int
		// mistaken is the number of seeds of 10 with another number of bodies, and more how many
		// slots a body has at most beyond its longest pass, in per cent.
		mistaken, more int
	}{
		{"tokens", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 6, Tokens: [2]int{8, 64}}, 1, 0, 0},
		{"many tokens", synth.Training{Layers: 24, MicroBatches: [2]int{1}, Steps: 6, Tokens: [2]int{4, 400}}, 1, 0, 0},
		{"tokens and lengths", synth.Training{Layers: 6, MicroBatches: [2]int{3}, Steps: 8, Tokens: [2]int{16, 96}, Lengths: true}, 1, 0, 3},
		// Gradients live across the micro-batches, so their lifetime classes follow the number of these.
		{"micro-batches", synth.Training{Layers: 6, MicroBatches: [2]int{2, 7}, Steps: 8}, 1, 3, 2},
		{"micro-batches of any length", synth.Training{Layers: 12, MicroBatches: [2]int{2, 12}, Steps: 8, Lengths: true}, 1, 7, 10},
		{"tokens and micro-batches", synth.Training{Layers: 6, MicroBatches: [2]int{2, 5}, Steps: 8, Tokens: [2]int{8, 64}}, 1, 1, 15},
		{"evaluation of many batches", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 8, EvaluateEach: 2, Batches: 40}, 2, 0, 0},
		// Tokens are aligned with the first ones of another step, or, behind an evaluation that it
		// lacks, with the last ones.
		{"tokens and evaluation", synth.Training{Layers: 6, MicroBatches: [2]int{2}, Steps: 9, Tokens: [2]int{8, 64}, EvaluateEach: 3, Batches: 9}, 2, 0, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mistaken := 0
			for seed := range uint64(10) {
				d := deviceOf(c.Generate(seed))
				tl := build(t, d)
				it := find(t, d, tl)
				r, _, why := chooseCut(tl, mergeIterations(tl, it, ways[0], asRecorded), EndRequested)
				if r == nil {
					t.Fatalf("seed %d: %s", seed, why)
				}
				p, why := r.classified(tl, EndRequested)
				if p == nil {
					t.Fatalf("seed %d: %s", seed, why)
				}
				checkPeriodic(t, tl, p, EndRequested)
				checkChoice(t, tl, it, r, p)
				if len(p.Bodies) != c.bodies {
					t.Logf("seed %d: %d bodies, expected %d", seed, len(p.Bodies), c.bodies)
					mistaken++
					continue
				}
				for i, body := range p.Bodies {
					if longest := longestPass(p, i); body.Length > longest+longest*c.more/100 {
						t.Errorf("seed %d: body %d has %d slots, its longest pass %d", seed, i, body.Length, longest)
					}
				}
			}
			if mistaken > c.mistaken {
				t.Errorf("%d of 10 programs have another number of bodies, expected %d at most", mistaken, c.mistaken)
			}
		})
	}
}

// checkChoice checks that FindPeriodic takes the steady state p, in which passes with another number
// of rounds are alike, unless it needs more memory than if they are not, or much more than another alignment.
func checkChoice(t *testing.T, tl *Timeline, it Iterations, r *rotation, p *Periodic) {
	t.Helper()
	r.apart = true
	apart, _ := r.classified(tl, EndRequested)
	found, why := findPeriodic(tl, it, EndRequested)
	if found == nil {
		t.Fatal(why)
	}
	checkPeriodic(t, tl, found, EndRequested)
	if two, _ := FindPeriodic(tl, it, EndRequested); two.largest(tl, EndRequested)+two.StrayBytes > found.largest(tl, EndRequested)+found.StrayBytes {
		t.Errorf("two steps as one need %d B, and %d are off plan; one needs %d, and %d", two.largest(tl, EndRequested), two.StrayBytes, found.largest(tl, EndRequested), found.StrayBytes)
	}
	want, least := p, p.largest(tl, EndRequested)
	if apart != nil {
		least = min(least, apart.largest(tl, EndRequested))
	}
	most := float64(least) * (1 + roundsCost)
	if float64(p.largest(tl, EndRequested)) > most {
		want = apart
	}
	saves := found.cost(tl, EndRequested).less(want.cost(tl, EndRequested))
	if len(found.Bodies) > len(want.Bodies) && !saves || float64(found.largest(tl, EndRequested)) > most {
		t.Errorf("%d bodies of %d B, expected %d of %.0f B at most", len(found.Bodies), found.largest(tl, EndRequested), len(want.Bodies), most)
	}
}

// TestRoundsOfManySteps: steps that generate many different numbers of tokens are one body, which takes
// hardly more memory than the recording.
func TestRoundsOfManySteps(t *testing.T) {
	spec := synth.Training{Layers: 12, MicroBatches: [2]int{1}, Steps: 20, Tokens: [2]int{8, 200}}
	for seed := range uint64(6) {
		d := deviceOf(spec.Generate(seed))
		tl := build(t, d)
		p, why := FindPeriodic(tl, find(t, d, tl), EndRequested)
		if p == nil {
			t.Fatalf("seed %d: %s", seed, why)
		}
		checkPeriodic(t, tl, p, EndRequested)
		if most := float64(tl.PeakAllocated.Bytes) * (1 + roundsCost); len(p.Bodies) != 1 || float64(p.largest(tl, EndRequested)) > most {
			t.Errorf("seed %d: %d bodies of %d B, expected 1 of %.0f B at most", seed, len(p.Bodies), p.largest(tl, EndRequested), most)
		}
		if longest := longestPass(p, 0); p.Bodies[0].Length > longest+longest/50 {
			t.Errorf("seed %d: the body has %d slots, its longest pass %d", seed, p.Bodies[0].Length, longest)
		}
	}
}

// TestBelieved: of passes of any number of rounds, the slots of a round that a pass lacks are believed
// to be as large as they would have been in it: the size of the round before and the growth.
func TestBelieved(t *testing.T) {
	const fixed, growth = 4096, 512
	for _, counts := range [][]int{{9, 14, 20}, {20, 14, 9}, {20, 20, 9}} {
		rounds := slices.Max(counts)
		var body Body
		var sizes [][]float64
		add := func(lives int, size func(pass int) float64) {
			s := Slot{Start: len(body.Slots), RequestedEnd: len(body.Slots) + lives}
			values := make([]float64, len(counts))
			for j := range counts {
				if values[j] = size(j); values[j] > 0 {
					s.Occurrences++
				}
			}
			body.Slots, sizes = append(body.Slots, s), append(sizes, values)
		}
		constant := func(int) float64 { return fixed }
		for i := range 40 {
			add(1+i%5, constant)
		}
		begin := len(body.Slots)
		prompt := func(j int) float64 { return float64(1+j) * 100 * growth }
		for round := range rounds {
			has := func(size func(j int) float64) func(int) float64 {
				return func(j int) float64 {
					if round >= counts[j] {
						return 0
					}
					return size(j)
				}
			}
			for k := range 30 {
				add(2+k%7, has(constant))
			}
			add(31, has(func(j int) float64 { return prompt(j) + float64(round)*growth }))
		}
		end := len(body.Slots)
		for i := range 80 {
			add(1+i%11, constant)
		}
		body.Occurrences = len(counts)
		for i, believed := range body.Believed(sizes) {
			if i < begin || i >= end || (i-begin)%31 != 30 {
				if believed > 0 {
					t.Errorf("%v: slot %d is believed to request %.0f B, but its size is %d in each pass", counts, i, believed, fixed)
				}
				continue
			}
			round, recorded := (i-begin)/31, slices.Max(sizes[i])
			if want := prompt(len(counts)-1) + float64(round)*growth; max(believed, recorded) != want {
				t.Errorf("%v: round %d is believed to request %.0f B, and recorded with %.0f, expected %.0f", counts, round, believed, recorded, want)
			}
		}
	}
}

// longestPass is the number of allocations of the longest pass of a body.
func longestPass(p *Periodic, body int) int {
	longest := 0
	for _, pass := range p.Passes {
		n := 0
		for _, word := range pass.Present {
			n += bits.OnesCount64(word)
		}
		if pass.Body == body {
			longest = max(longest, n)
		}
	}
	return longest
}

// TestEvaluationLikeAForwardPass: of an evaluation of many batches some allocations are matched with those of a step, here
// and there, and a batch is what the step's forward pass is, which comes right behind. It is an episode all the same. If
// the other pass has one of the batches, or what is matched lies in rounds of such a loop, they are more rounds.
func TestEvaluationLikeAForwardPass(t *testing.T) {
	const batch, batches, backward = 600, 13, 3400
	r := &rotation{weak: make([]uint64, batches*batch+batch+backward)}
	var evaluates []int32
	for i := range r.weak {
		evaluates = append(evaluates, int32(i))
		if i < batches*batch+batch {
			r.weak[i] = uint64(i % batch)
		} else {
			r.weak[i] = uint64(i)
		}
	}
	step := evaluates[batches*batch:]
	matched := func(stretches ...[2]int) []int32 {
		var ranks []int32
		for _, s := range stretches {
			ranks = append(ranks, evaluates[s[0]:s[1]]...)
		}
		return append(ranks, step...)
	}
	few := matched([2]int{0, 1}, [2]int{2400, 2402}, [2]int{3600, 3609}, [2]int{6600, 6660})
	first := matched([2]int{0, batch}, [2]int{3600, 3609}, [2]int{6600, 6660})
	for _, c := range []struct {
		name  string
		other []int32
		alike bool
	}{{"a few of its allocations", few, false}, {"its first batch, and a few", first, true}} {
		if alike := r.alike(evaluates, c.other); alike != c.alike {
			t.Errorf("the other pass has %s: alike is %v, expected %v", c.name, alike, c.alike)
		}
	}
}
