package packing

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func packPart(part *Problem, _ []int32) (Placement, error) {
	return Pack(context.Background(), part, Options{Workers: 1})
}

// TestApartSharesNoByte: no byte is ever used by two classes, and the bounds are the
// sums over the classes.
func TestApartSharesNoByte(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 1))
	for range 200 {
		p := randomProblem(rng, 1+rng.IntN(12), 12, 9)
		classes := make([]int32, len(p.Buffers))
		parts := map[int32]*Problem{}
		for b := range classes {
			classes[b] = int32(rng.IntN(3))
			if parts[classes[b]] == nil {
				parts[classes[b]] = &Problem{Alignment: 1}
			}
			parts[classes[b]].Buffers = append(parts[classes[b]].Buffers, p.Buffers[b])
		}
		pl, err := Apart(p, classes, packPart)
		if err != nil {
			t.Fatal(err)
		}
		if err := Validate(p, pl); err != nil {
			t.Fatal(err)
		}
		owner := map[Bytes]int32{}
		for b, buf := range p.Buffers {
			for x := pl.Offsets[b]; x < pl.Offsets[b]+buf.Size; x++ {
				if class, ok := owner[x]; ok && class != classes[b] {
					t.Fatalf("byte %d is used by classes %d and %d", x, class, classes[b])
				}
				owner[x] = classes[b]
			}
		}
		var sum, least Bytes
		for _, part := range parts {
			sum += loadByTrial(part).Load
			least += optimum(part)
		}
		if pl.MaxLoad.Load != sum || pl.Makespan != least || pl.LowerBound != least {
			t.Fatalf("expected load %d and makespan %d, found %v", sum, least, pl)
		}
		if load, err := ApartLoad(p, classes); err != nil || load != sum {
			t.Fatalf("expected a load of %d of the classes apart, found %d and error %v", sum, load, err)
		}
		at := int32(-1)
		for b, buf := range p.Buffers {
			if buf.Start <= pl.MaxLoad.At && pl.MaxLoad.At < buf.End {
				at = max(at, int32(b))
			}
		}
		if at < 0 {
			t.Fatalf("expected MaxLoad.At to be an instant with live buffers, found %d", pl.MaxLoad.At)
		}
	}
}

func TestApartOfOneClassIsPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(42, 1))
	p := randomProblem(rng, 30, 30, 9)
	want := mustPack(t, p, Options{Workers: 1})
	got, err := Apart(p, make([]int32, 30), packPart)
	if err != nil || !slices.Equal(got.Offsets, want.Offsets) || got.MaxLoad != want.MaxLoad || got.Heuristic != want.Heuristic {
		t.Errorf("expected %v, found %v: %v", want, got, err)
	}
}

func TestApartRefuses(t *testing.T) {
	p := &Problem{Buffers: []Buffer{{Start: 0, End: 1, Size: 1}, {Start: 1, End: 2, Size: 1}}}
	if _, err := Apart(p, []int32{1}, packPart); err == nil || err.Error() != "classes: expected 2, one per buffer, found 1" {
		t.Errorf("expected an error about the length of classes, found %v", err)
	}
	stop := errors.New("stop")
	if _, err := Apart(p, []int32{1, 2}, func(*Problem, []int32) (Placement, error) { return Placement{}, stop }); err != stop {
		t.Errorf("expected the error of pack, found %v", err)
	}
}

// TestApartLoadWithGaps: a buffer does not count in the load during its gaps.
func TestApartLoadWithGaps(t *testing.T) {
	p := &Problem{
		Buffers: []Buffer{{Start: 0, End: 10, Size: 4}, {Start: 3, End: 5, Size: 3}, {Start: 0, End: 9, Size: 2}},
		Gaps:    []Gap{{Buffer: 0, From: 2, To: 6}},
	}
	for _, c := range []struct {
		classes []int32
		want    Bytes
	}{
		{[]int32{0, 0, 0}, 6}, // 4 + 2, or 3 + 2 within the gap
		{[]int32{0, 0, 1}, 4 + 2},
		{[]int32{0, 1, 0}, 6 + 3},
	} {
		if got, err := ApartLoad(p, c.classes); err != nil || got != c.want {
			t.Errorf("classes %v: expected %d, found %d and error %v", c.classes, c.want, got, err)
		}
	}
}
