package trace

import (
	"math/rand/v2"
	"testing"
)

// TestNumbering compares with a map, on integers that repeat and on integers that
// share their low or high bits, all in one table.
func TestNumbering(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	n := newNumbering(0)
	for _, draw := range []func() uint64{
		r.Uint64,
		func() uint64 { return uint64(r.IntN(300)) },
		func() uint64 { return uint64(r.IntN(5000)) << 50 },
		func() uint64 { return 0x7f0000000000 + uint64(r.IntN(5000))<<9 },
	} {
		n.reset()
		want := map[uint64]int32{}
		for range 20_000 {
			v := draw()
			before, known := want[v]
			if found := n.find(v); known && found != before || !known && found != None {
				t.Fatalf("find(%#x) = %d, want %d (known: %v)", v, found, before, known)
			}
			if !known {
				before = int32(len(want))
				want[v] = before
			}
			if got, was := n.number(v); got != before || was != known {
				t.Fatalf("number(%#x) = %d, %v, want %d, %v", v, got, was, before, known)
			}
		}
		for v, i := range want {
			if n.values[i] != v {
				t.Fatalf("value %d is %#x, want %#x", i, n.values[i], v)
			}
		}
	}
}
