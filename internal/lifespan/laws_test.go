package lifespan

import (
	"math"
	"testing"
)

// TestLawOver: sizes in proportion to a quantity, affine in it and with its square are told
// apart, also if some iterations lack the slot; what follows none has no law.
func TestLawOver(t *testing.T) {
	length := []float64{100, 250, 175, 400}
	other := []float64{64, 16, 48, 32}
	over := func(f func(x float64) float64, x []float64) []float64 {
		s := make([]float64, len(x))
		for i := range x {
			s[i] = f(x[i])
		}
		return s
	}
	square := func(x float64) float64 { return 32*x*x + 8*x }
	affine := func(x float64) float64 { return 4096 + 64*x }
	for _, c := range []struct {
		name string
		s    []float64
		of   int
		at   float64 // for 600
	}{
		{"in proportion", over(func(x float64) float64 { return 512 * x }, length), 0, 512 * 600},
		{"affine", over(affine, length), 0, affine(600)},
		{"affine, less than none at 0", over(func(x float64) float64 { return 64*x - 1000 }, length), 0, 64*600 - 1000},
		{"square", over(square, length), 0, square(600)},
		{"constant", []float64{77, 77, 77, 77}, 0, 77},
		{"of another quantity", over(affine, other), 1, affine(600)},
		{"not in all", []float64{0, affine(250), affine(175), affine(400)}, 0, affine(600)},
		{"two, slower than in proportion", []float64{affine(100), affine(250), 0, 0}, 0, affine(600)},
		{"two, faster than in proportion", []float64{square(100), square(250), 0, 0}, 0, square(600)},
	} {
		law, of, ok := LawOver(c.s, [][]float64{length, other})
		if !ok || of != c.of || math.Abs(law.At(600)-c.at) > c.at/1000 {
			t.Errorf("%s: %+v over %d, %t; at 600 %g, expected %g over %d", c.name, law, of, ok, law.At(600), c.at, c.of)
		}
	}
	for _, s := range [][]float64{{100, 90, 300, 20}, {0, 5000, 0, 0}} {
		if law, _, ok := LawOver(s, [][]float64{length, other}); ok {
			t.Errorf("%v: found %+v, expected no law", s, law)
		}
	}
}

// TestQuantities: slots that change in the same ratios are of one quantity, that with the most
// bytes is the first, and what stays or is not in all iterations shows none.
func TestQuantities(t *testing.T) {
	got := Quantities([][]float64{
		{10, 10, 10},
		{4000, 8000, 2000},
		{3000, 9000, 6000},
		{2000, 4000, 1000},
		{0, 90000, 6000},
	})
	want := []Quantity{{Slot: 1, Bytes: 6000}, {Slot: 2, Bytes: 3000}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("found %+v, expected %+v", got, want)
	}
}
