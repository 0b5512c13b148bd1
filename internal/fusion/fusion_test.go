package fusion

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/synth"
)

// randomBuffers are n buffers with small random sizes and lives, so that many starts,
// ends and sizes are equal.
func randomBuffers(rng *rand.Rand, n int) []Buffer {
	var out []Buffer
	for range n {
		start := Time(rng.Int64N(int64(2 * n)))
		out = append(out, Buffer{start, start + 1 + Time(rng.Int64N(12)), 1 + Bytes(rng.Int64N(4))})
	}
	return out
}

// repeated is a few random problems one after the other, each several times, beside
// buffers that live throughout some of them.
func repeated(rng *rand.Rand) []Buffer {
	var kinds [][]Buffer
	for range 3 {
		kinds = append(kinds, randomBuffers(rng, 1+rng.IntN(12)))
	}
	var out []Buffer
	now := Time(1)
	var open []int
	for range 12 {
		switch rng.IntN(4) {
		case 0:
			open = append(open, len(out))
			out = append(out, Buffer{now, -1, 1 + Bytes(rng.Int64N(9))})
			now++
		case 1:
			if len(open) > 0 {
				out[open[len(open)-1]].End = now
				open = open[:len(open)-1]
				now++
			}
		}
		kind, last := kinds[rng.IntN(len(kinds))], now
		for _, b := range kind {
			out = append(out, Buffer{now + b.Start, now + b.End, b.Size})
			last = max(last, now+b.End)
		}
		now = last
	}
	for _, i := range open {
		out[i].End = now
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func pipelineBuffers(spec synth.Pipeline, seed uint64) []Buffer {
	var out []Buffer
	for _, b := range synth.Generate(spec, seed) {
		out = append(out, Buffer{Time(b.Start), Time(b.End), Bytes(b.Size)})
	}
	return out
}

// samples are problems of all kinds.
func samples() [][]Buffer {
	rng := rand.New(rand.NewPCG(1, 2))
	out := [][]Buffer{nil, {{0, 1, 1}}, {{3, 9, 5}, {3, 9, 5}}}
	for i := range 150 {
		out = append(out, randomBuffers(rng, 1+i), repeated(rng))
	}
	small := synth.Pipeline{Layers: 4, Chunks: 2, Stages: 2, MicroBatches: 6, Iterations: 3, PerLayer: 5}
	for seed := range uint64(6) {
		spec := small
		spec.Varied, spec.Recompute, spec.Optimizer = seed%2 == 1, seed%3 == 1, int(seed)
		if seed > 3 {
			spec.Jitter, spec.Drift = 0.1, 0.1
		}
		out = append(out, pipelineBuffers(spec, seed))
	}
	return out
}

// maxLoad is the most bytes live at one instant, and the first such instant.
func maxLoad(buffers []Buffer) (load Bytes, at Time) {
	type change struct {
		at    Time
		bytes Bytes
	}
	var changes []change
	for _, b := range buffers {
		changes = append(changes, change{b.Start, b.Size}, change{b.End, -b.Size})
	}
	slices.SortFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.bytes - b.bytes)
	})
	live := Bytes(0)
	for _, c := range changes {
		if live += c.bytes; live > load {
			load, at = live, c.at
		}
	}
	return load, at
}

// place gives every buffer the lowest free offset, in a random order.
func place(rng *rand.Rand, buffers []Buffer) []Bytes {
	off := make([]Bytes, len(buffers))
	var placed []int
	for _, i := range rng.Perm(len(buffers)) {
		b := buffers[i]
		var near []int
		for _, k := range placed {
			if o := buffers[k]; o.Start < b.End && b.Start < o.End {
				near = append(near, k)
			}
		}
		slices.SortFunc(near, func(x, y int) int { return int(off[x] - off[y]) })
		for _, k := range near {
			if off[k] < off[i]+b.Size {
				off[i] = max(off[i], off[k]+buffers[k].Size)
			}
		}
		placed = append(placed, i)
	}
	return off
}

// overlap finds two buffers that are live at once on the same bytes.
func overlap(buffers []Buffer, off []Bytes) (int, int, bool) {
	for i, a := range buffers {
		for k, b := range buffers[:i] {
			if a.Start < b.End && b.Start < a.End && off[i] < off[k]+b.Size && off[k] < off[i]+a.Size {
				return k, i, true
			}
		}
	}
	return 0, 0, false
}

func makespan(buffers []Buffer, off []Bytes) Bytes {
	top := Bytes(0)
	for i, b := range buffers {
		top = max(top, off[i]+b.Size)
	}
	return top
}

var reductions = map[string]func([]Buffer) (*Reduced, error){
	"fold":        Fold,
	"group 0.03":  func(b []Buffer) (*Reduced, error) { return Group(b, 0.03) },
	"group 0.25":  func(b []Buffer) (*Reduced, error) { return Group(b, 0.25) },
	"fold, group": foldGroup,
}

func foldGroup(b []Buffer) (*Reduced, error) {
	fold, err := Fold(b)
	if err != nil {
		return nil, err
	}
	group, err := Group(fold.Buffers, 0.25)
	if err != nil {
		return nil, err
	}
	return fold.Then(group), nil
}

// TestExpandIsValid: a valid placement of the reduced problem becomes a valid one of
// the original with no larger makespan, and the max loads are the same.
func TestExpandIsValid(t *testing.T) {
	for name, reduce := range reductions {
		rng := rand.New(rand.NewPCG(3, 4))
		fewer := 0
		for i, buffers := range samples() {
			r, err := reduce(buffers)
			if err != nil {
				t.Fatal(err)
			}
			fewer += len(buffers) - len(r.Buffers)
			load, at := maxLoad(buffers)
			if l, a := maxLoad(r.Buffers); l != load || a != at {
				t.Fatalf("%s, sample %d: expected max load %d at %d, found %d at %d", name, i, load, at, l, a)
			}
			for k, first := range r.First() {
				if h := r.home[first]; int(h.object) != k || buffers[first].Start != r.Buffers[k].Start || name == "fold" && buffers[first] != r.Buffers[k] {
					t.Fatalf("%s, sample %d: expected the original that starts first in %v, found %v", name, i, r.Buffers[k], buffers[first])
				}
			}
			off := place(rng, r.Buffers)
			full := r.Expand(off)
			if a, b, ok := overlap(buffers, full); ok {
				t.Fatalf("%s, sample %d: expected no overlap, found %v at %d and %v at %d", name, i, buffers[a], full[a], buffers[b], full[b])
			}
			if was, is := makespan(r.Buffers, off), makespan(buffers, full); is > was {
				t.Fatalf("%s, sample %d: expected a makespan of at most %d, found %d", name, i, was, is)
			}
		}
		if fewer < 1000 {
			t.Errorf("%s: expected at least 1000 fewer buffers over all samples, found %d", name, fewer)
		}
	}
}

// TestMembersLieInTheirComposite: each original lies within the bytes and the life of
// one composite. Each composite is as long as its members and at least as high as their
// max load.
func TestMembersLieInTheirComposite(t *testing.T) {
	for i, buffers := range samples() {
		r, err := Group(buffers, 0.25)
		if err != nil {
			t.Fatal(err)
		}
		members := make([][]Buffer, len(r.Buffers))
		for k, b := range buffers {
			h := r.home[k]
			c := r.Buffers[h.object]
			if b.Start < c.Start || b.End > c.End || h.inner < 0 || h.inner+b.Size > c.Size {
				t.Fatalf("sample %d: expected %v within its composite %v, found it at %d", i, b, c, h.inner)
			}
			members[h.object] = append(members[h.object], b)
		}
		for k, c := range r.Buffers {
			if len(members[k]) == 0 {
				t.Fatalf("sample %d: expected members of composite %v, found none", i, c)
			}
			first, last := members[k][0].Start, Time(0)
			for _, b := range members[k] {
				first, last = min(first, b.Start), max(last, b.End)
			}
			if load, _ := maxLoad(members[k]); load > c.Size || first != c.Start || last != c.End {
				t.Fatalf("sample %d: expected members as long and at most as high as composite %v, found [%d, %d) with load %d", i, c, first, last, load)
			}
		}
	}
}

// TestFoldFindsRepetitions: the size of a folded pipeline does not depend on the number
// of its iterations.
func TestFoldFindsRepetitions(t *testing.T) {
	spec := synth.Pipeline{Layers: 4, Chunks: 2, Stages: 2, MicroBatches: 6, PerLayer: 5, Optimizer: 3}
	var sizes []int
	for _, n := range []int{1, 2, 7, 40} {
		spec.Iterations = n
		r, err := Fold(pipelineBuffers(spec, 1))
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(r.Buffers))
	}
	if slices.Min(sizes) != slices.Max(sizes) {
		t.Errorf("expected equal sizes after 1, 2, 7 and 40 iterations, found %d", sizes)
	}
}

// TestFoldKeepsDifferences: a segment beside other buffers, or with another size, order
// or end, is no repetition.
func TestFoldKeepsDifferences(t *testing.T) {
	pair := func(at Time, a, b Bytes, end Time) []Buffer { return []Buffer{{at, at + 3, a}, {at + 1, at + end, b}} }
	resident := Buffer{0, 100, 7}
	for _, c := range []struct {
		what    string
		buffers []Buffer
		kept    int
	}{
		{"equal", append(append([]Buffer{resident}, pair(10, 1, 2, 2)...), pair(20, 1, 2, 2)...), 3},
		{"another size", append(append([]Buffer{resident}, pair(10, 1, 2, 2)...), pair(20, 1, 3, 2)...), 5},
		{"another order", append(append([]Buffer{resident}, pair(10, 1, 2, 2)...), pair(20, 2, 1, 2)...), 5},
		{"one more resident", append(append([]Buffer{resident, {15, 90, 1}}, pair(10, 1, 2, 2)...), pair(20, 1, 2, 2)...), 6},
		{"another end", []Buffer{resident, {10, 14, 1}, {11, 12, 2}, {13, 14, 3}, {20, 24, 1}, {21, 24, 2}, {23, 24, 3}}, 7},
	} {
		r, err := Fold(c.buffers)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Buffers) != c.kept {
			t.Errorf("%s: expected %d buffers, found %d", c.what, c.kept, len(r.Buffers))
		}
	}
}

// TestOrderAndTimeDoNotMatter: if the buffers are shuffled and time is shifted and
// stretched, the reduced problem is the same.
func TestOrderAndTimeDoNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for i, buffers := range samples() {
		moved := make([]Buffer, len(buffers))
		for k, from := range rng.Perm(len(buffers)) {
			b := buffers[from]
			moved[k] = Buffer{1000 + 7*b.Start, 1000 + 7*b.End, b.Size}
		}
		one, err := foldGroup(buffers)
		if err != nil {
			t.Fatal(err)
		}
		other, err := foldGroup(moved)
		if err != nil {
			t.Fatal(err)
		}
		for k, b := range other.Buffers {
			other.Buffers[k] = Buffer{(b.Start - 1000) / 7, (b.End - 1000) / 7, b.Size}
		}
		if !slices.Equal(one.Buffers, other.Buffers) {
			t.Fatalf("sample %d: expected %v, found %v", i, one.Buffers, other.Buffers)
		}
	}
}

// TestPipelinesGetSmall: pipelines of any shape keep at most a tenth of their objects.
func TestPipelinesGetSmall(t *testing.T) {
	for seed := range uint64(8) {
		spec := synth.Pipeline{Layers: 8, Chunks: 1 + int(seed%2), Stages: 4, MicroBatches: 16, Iterations: 4,
			PerLayer: 16, Varied: seed%4 > 1, Recompute: seed > 5}
		buffers := pipelineBuffers(spec, seed)
		r, err := foldGroup(buffers)
		if err != nil {
			t.Fatal(err)
		}
		if 10*len(r.Buffers) > len(buffers) {
			t.Errorf("%+v: expected a tenth of %d buffers at most, found %d", spec, len(buffers), len(r.Buffers))
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		buffers []Buffer
		want    string
	}{
		{[]Buffer{{0, 1, 1}, {4, 4, 1}}, "buffer 1: expected a start of 0 or later and an end after it, found [4, 4)"},
		{[]Buffer{{-1, 4, 1}}, "found [-1, 4)"},
		{[]Buffer{{0, 4, 0}}, "buffer 0: size 0"},
		{[]Buffer{{0, 4, 1 << 62}, {0, 4, 1 << 62}}, "buffer 1: size 4611686018427387904: expected sizes above 0 that add up to at most 9223372036854775807"},
	} {
		for name, reduce := range reductions {
			if _, err := reduce(c.buffers); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: expected an error with %q, found %v", name, c.want, err)
			}
		}
	}
}

// TestSorter compares sorter with the standard library's stable sort.
func TestSorter(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for n := range 200 {
		keys := make([]int64, n)
		list, want := make([]int32, n), make([]int32, n)
		for i := range keys {
			keys[i] = rng.Int64() >> rng.IntN(63)
			list[i], want[i] = int32(i), int32(i)
		}
		newSorter(n).sort(list, func(i int32) int64 { return keys[i] })
		slices.SortStableFunc(want, func(a, b int32) int {
			if keys[a] < keys[b] {
				return -1
			}
			return int(min(keys[a]-keys[b], 1))
		})
		if !slices.Equal(list, want) {
			t.Fatalf("expected %v, found %v", want, list)
		}
	}
}
