package lifespan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/splitmix"
)

func randomTokens(r *rand.Rand, n int) []token {
	out := make([]token, n)
	for i := range out {
		out[i] = randomToken(r)
	}
	return out
}

func randomToken(r *rand.Rand) token {
	t := token{stream: uint64(r.IntN(6) / 5), class: uint8(r.IntN(5)), log: int64(r.IntN(4) * octave / 2)}
	t.weight = t.log * int64(r.IntN(2))
	t.weak = weakHash(t.stream, uint64(t.class))
	t.strong = splitmix.Mix(t.weak ^ uint64(t.log))
	return t
}

// TestAlignCost compares the cost of alignments with the least possible cost, found by
// trying, for every pair, all pairs that may come before it.
func TestAlignCost(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 6))
		a, b := randomTokens(r, r.IntN(25)), randomTokens(r, r.IntN(25))
		var pairs [][2]int
		for j, i := range align(a, b) {
			if i >= 0 {
				pairs = append(pairs, [2]int{int(i), j})
			}
		}
		last, cost := [2]int{-1, -1}, int64(0)
		for _, p := range append(pairs, [2]int{len(a), len(b)}) {
			if p[0] <= last[0] {
				t.Fatalf("seed %d: pairs %v", seed, pairs)
			}
			cost += gapCost(b, last, p)
			if p[1] < len(b) {
				cost += mismatch(&a[p[0]], &b[p[1]])
			}
			last = p
		}
		if want := cheapest(a, b); cost != want {
			t.Fatalf("seed %d: cost %d, expected %d", seed, cost, want)
		}
	}
}

// gapCost is the cost of the gaps between two pairs.
func gapCost(b []token, from, to [2]int) int64 {
	var cost int64
	if n := to[0] - from[0] - 1; n > 0 {
		cost += openGap + extendGap*int64(n)
	}
	if to[1]-from[1] > 1 {
		cost += openGap
	}
	for j := from[1] + 1; j < to[1]; j++ {
		cost += extendGap + b[j].weight
	}
	return cost
}

// cheapest is the least cost of any alignment of a and b.
func cheapest(a, b []token) int64 {
	best := map[[2]int]int64{{-1, -1}: 0}
	until := func(i, j int) int64 {
		least := int64(never)
		for pair, cost := range best {
			if pair[0] < i && pair[1] < j {
				least = min(least, cost+gapCost(b, pair, [2]int{i, j}))
			}
		}
		return least
	}
	for i := range a {
		for j := range b {
			if a[i].stream == b[j].stream {
				best[[2]int{i, j}] = until(i, j) + mismatch(&a[i], &b[j])
			}
		}
	}
	return until(len(a), len(b))
}

// TestAlignChanges takes stretches out of each of two equal sequences. All that is left
// in both has to be matched as it was.
func TestAlignChanges(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		whole := randomTokens(r, 200+r.IntN(3000))
		for i := range whole {
			whole[i].strong, whole[i].weak = splitmix.Mix(uint64(i)), splitmix.Mix(uint64(i)) // all different
		}
		lack := func() []int {
			var left []int
			for i := 0; i < len(whole); i++ {
				if r.IntN(200) == 0 {
					i += r.IntN(1 << r.IntN(10))
				}
				left = append(left, i)
			}
			return slices.DeleteFunc(left, func(i int) bool { return i >= len(whole) })
		}
		first, second := lack(), lack()
		pick := func(at []int) (out []token) {
			for _, i := range at {
				out = append(out, whole[i])
			}
			return out
		}
		same, kept := 0, 0
		for j, i := range align(pick(first), pick(second)) {
			if _, ok := slices.BinarySearch(first, second[j]); ok {
				kept++
				if i >= 0 && first[i] == second[j] {
					same++
				}
			}
		}
		// Next to what is missing a chance match may cost less.
		if float64(same) < 0.98*float64(kept) {
			t.Errorf("seed %d: %d of %d matched where they were", seed, same, kept)
		}
	}
}

// loops are two sequences that begin alike, run a loop any number of times, which looks the same each
// time, and end alike, with what looks like parts of the loop: as a generation and the training
// behind it do, which use the layers of one model. The last tokens are on streams of their own.
func loops(r *rand.Rand, times ...int) [][]token {
	make := func(n int) []token {
		out := randomTokens(r, n)
		for i := range out {
			out[i].stream = 0
			out[i].weak = weakHash(0, uint64(out[i].class))
		}
		return out
	}
	begin, round := make(300), make(200)
	var end []token
	for range 400 {
		from := r.IntN(len(round) - 12)
		end = append(end, round[from:from+12]...)
	}
	var out [][]token
	for k, n := range times {
		one := slices.Clone(begin)
		for range n {
			one = append(one, round...)
		}
		one = append(one, end...)
		for i := range 12 { // fewer than a gram
			at := len(one) - 1 - i
			one[at].stream = uint64(7 + k)
			one[at].weak = weakHash(one[at].stream, uint64(one[at].class))
		}
		for i := range one {
			one[i].strong = splitmix.Mix(one[i].weak ^ r.Uint64()) // every size is another one
		}
		out = append(out, one)
	}
	return out
}

// TestRoundsInScript: whatever number of rounds two sequences have, what is behind the loop is matched,
// and nothing is matched with another class or stream.
func TestRoundsInScript(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 9))
		for _, times := range [][]int{{60, 20}, {20, 60}, {64, 3}, {12, 10}} {
			all := loops(r, times...)
			a, b := all[0], all[1]
			behind := 0
			for _, m := range newScript(a, b, bySize) {
				for k := range m.n {
					if a[m.i+k].weak != b[m.j+k].weak {
						t.Fatalf("seed %d, %v: %d of %d matches %d of %d, of another class or stream", seed, times, m.i+k, len(a), m.j+k, len(b))
					}
					if fromEnd := len(a) - m.i - k; fromEnd == len(b)-m.j-k && fromEnd <= 4800 {
						behind++
					}
				}
			}
			if behind < 4600 {
				t.Errorf("seed %d, %v: %d of 4,788 behind the loop are matched with their like", seed, times, behind)
			}
			for j, i := range align(a, b) {
				if i >= 0 && a[i].stream != b[j].stream {
					t.Fatalf("seed %d, %v: aligned with another stream", seed, times)
				}
			}
		}
	}
}

// TestEpisodes compares with the longest run, counted while the two sequences are drawn. No
// class recurs, so no run is more rounds of a loop.
func TestEpisodes(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 8))
		var a, b []int32
		var passes rotation
		want, run, side := 0, 0, 0
		for k := range int32(r.IntN(60)) {
			has := r.IntN(4)
			passes.weak = append(passes.weak, uint64(k))
			if has&1 != 0 {
				a = append(a, k)
			}
			if has&2 != 0 {
				b = append(b, k)
			}
			switch {
			case has == 0:
				continue
			case has == 3:
				run = 0
			case has == side:
				run++
			default:
				run = 1
			}
			side = has
			want = max(want, run)
		}
		for limit := range 60 {
			if none := passes.noEpisode(a, b, limit) && passes.noEpisode(b, a, limit); none != (want <= limit) {
				t.Fatalf("seed %d: none above %d: %v, expected runs of %d at most, of %v and %v", seed, limit, none, want, a, b)
			}
		}
	}
}

// mismatch is the cost of matching allocation b with element a, case by case.
func mismatch(a, b *token) int64 {
	if a.stream != b.stream {
		return never
	}
	cost := max(0, b.weight-a.weight)
	if a.strong == b.strong {
		return cost
	}
	cost += min(extendGap, max(a.log-b.log, b.log-a.log))
	if (a.class == forever) != (b.class == forever) {
		return cost + otherClass // the recording may end before the free
	}
	apart := int64(a.class) - int64(b.class)
	return cost + otherClass*min(farClass, max(apart, -apart))
}
