package packing

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestValidateNamesEachFault corrupts one good placement in every way.
func TestValidateNamesEachFault(t *testing.T) {
	problem := func() *Problem {
		return &Problem{Alignment: 4, Buffers: []Buffer{{Start: 0, End: 2, Size: 3}, {Start: 1, End: 3, Size: 4}, {Start: 2, End: 4, Size: 5}}}
	}
	good := func() Placement { return Placement{Offsets: []Bytes{0, 8, 0}, Makespan: 12} }
	if err := Validate(problem(), good()); err != nil {
		t.Fatalf("expected no error for a valid placement, found %v", err)
	}
	cases := []struct {
		name    string
		corrupt func(p *Problem, pl *Placement)
		want    string
	}{
		{"missing offset", func(_ *Problem, pl *Placement) { pl.Offsets = pl.Offsets[:2] }, "expected 3 offsets, one per buffer, found 2"},
		{"negative", func(_ *Problem, pl *Placement) { pl.Offsets[1] = -4 }, "buffer 1: expected an offset of 0 or more, found -4"},
		{"unaligned", func(_ *Problem, pl *Placement) { pl.Offsets[1] = 9 }, "buffer 1: expected an offset that is a multiple of 4, found 9"},
		{"overflow", func(_ *Problem, pl *Placement) { pl.Offsets[1] = math.MaxInt64 - 3 }, "buffer 1: offset 9223372036854775804 + size 4 is out of range"},
		{"makespan too small", func(_ *Problem, pl *Placement) { pl.Makespan = 8 }, "expected a makespan of 12 bytes, the largest offset + size, found 8"},
		{"makespan too large", func(_ *Problem, pl *Placement) { pl.Makespan = 16 }, "expected a makespan of 12 bytes, the largest offset + size, found 16"},
		{"overlap", func(_ *Problem, pl *Placement) { pl.Offsets[2] = 4 }, "buffers 1 and 2 are live at once and overlap: bytes [8, 12) and [4, 12)"},
		{"overlap in the padding", func(p *Problem, pl *Placement) { p.Buffers[2].Size, pl.Offsets[2] = 6, 4 }, "buffers 1 and 2 are live at once and overlap: bytes [8, 12) and [4, 12)"},
		{"inside another", func(_ *Problem, pl *Placement) { pl.Offsets[1], pl.Makespan = 0, 8 }, "buffers 0 and 1 are live at once and overlap: bytes [0, 4) and [0, 4)"},
	}
	for _, c := range cases {
		p, pl := problem(), good()
		c.corrupt(p, &pl)
		if err := Validate(p, pl); err == nil || err.Error() != c.want {
			t.Errorf("%s: expected %q, found %v", c.name, c.want, err)
		}
	}
}

// TestValidateAgreesWithEveryPair compares the sweep with all pairs, on random
// placements of which about half are valid.
func TestValidateAgreesWithEveryPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	verdicts := map[bool]int{}
	for range 5000 {
		p := randomProblem(rng, 1+rng.IntN(7), 12, 4)
		pl := Placement{Offsets: make([]Bytes, len(p.Buffers))}
		valid := true
		for i, b := range p.Buffers {
			pl.Offsets[i] = Bytes(rng.IntN(40))
			pl.Makespan = max(pl.Makespan, pl.Offsets[i]+b.Size)
			for k, o := range p.Buffers[:i] {
				apart := b.End <= o.Start || o.End <= b.Start ||
					pl.Offsets[i]+b.Size <= pl.Offsets[k] || pl.Offsets[k]+o.Size <= pl.Offsets[i]
				valid = valid && apart
			}
		}
		if err := Validate(p, pl); (err == nil) != valid {
			t.Fatalf("expected valid=%v, as from all pairs, found %v: %v at %v", valid, err, p.Buffers, pl.Offsets)
		}
		verdicts[valid]++
	}
	if verdicts[true] < 500 || verdicts[false] < 500 {
		t.Fatalf("expected at least 500 valid and 500 invalid placements, found %v", verdicts)
	}
}

// TestPlacesAgreeWithAMap compares the set with a map, over sizes of one to three levels.
func TestPlacesAgreeWithAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 63, 64, 65, 4096, 4097, 9000} {
		set, want := newPlaces(n), map[int]bool{}
		for range 2000 {
			k := rng.IntN(n)
			if want[k] = rng.IntN(2) == 0; want[k] {
				set.add(k)
			} else {
				set.remove(k)
			}
			k = rng.IntN(n)
			before, after := k-1, k+1
			for before >= 0 && !want[before] {
				before--
			}
			for after < n && !want[after] {
				after++
			}
			if after == n {
				after = -1
			}
			if b, a := set.before(k), set.after(k); b != before || a != after {
				t.Fatalf("of %d places: expected %d and %d around %d, found %d and %d", n, before, after, k, b, a)
			}
		}
	}
}
