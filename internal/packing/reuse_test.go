package packing

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"testing"
)

// reusesByByte is Reuses from a map of the last owner of every byte.
func reusesByByte(p *Problem, pl Placement) []Reuse {
	order := make([]int, len(p.Buffers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Buffers[a].Start, p.Buffers[b].Start) })
	owner := map[Bytes]int32{}
	seen := map[Reuse]Bytes{} // Bytes is 0 in the key
	for _, later := range order {
		size := (p.Buffers[later].Size + p.Alignment - 1) / p.Alignment * p.Alignment
		for x := pl.Offsets[later]; x < pl.Offsets[later]+size; x++ {
			if earlier, ok := owner[x]; ok {
				seen[Reuse{Earlier: earlier, Later: int32(later)}]++
			}
			owner[x] = int32(later)
		}
	}
	var out []Reuse
	for r, n := range seen {
		r.Bytes = n
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Reuse) int {
		return cmp.Or(cmp.Compare(a.Later, b.Later), cmp.Compare(a.Earlier, b.Earlier))
	})
	return out
}

func TestReusesAgreeWithByteOwners(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	found := 0
	for range 400 {
		p := randomProblem(rng, 1+rng.IntN(40), 60, 9)
		for i := range p.Buffers {
			p.Buffers[i].End = p.Buffers[i].Start + 1 + Time(rng.IntN(8))
		}
		p.Alignment = Bytes(1 + rng.IntN(3))
		pl, err := Pack(context.Background(), p, Options{Workers: 1, Capacity: 1 << 40})
		if err != nil {
			t.Fatal(err)
		}
		got, want := Reuses(p, pl), reusesByByte(p, pl)
		if !slices.Equal(got, want) {
			t.Fatalf("expected %v, found %v, for %v at %v", want, got, p.Buffers, pl.Offsets)
		}
		found += len(got)
	}
	if found < 1000 {
		t.Fatalf("expected at least 1000 reuses in all, found %d", found)
	}
}

// TestReusesSkipsOlderOwners: only the last owner of a byte counts.
func TestReusesSkipsOlderOwners(t *testing.T) {
	p := &Problem{Alignment: 1, Buffers: []Buffer{{Start: 0, End: 1, Size: 4}, {Start: 1, End: 2, Size: 2}, {Start: 2, End: 3, Size: 4},
		{Start: 2, End: 3, Size: 1}}}
	pl := Placement{Offsets: []Bytes{0, 0, 0, 4}, Makespan: 5}
	want := []Reuse{{0, 1, 2}, {0, 2, 2}, {1, 2, 2}}
	if got := Reuses(p, pl); !slices.Equal(got, want) {
		t.Fatalf("expected %v, found %v", want, got)
	}
}
