package verify

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPositions compares with a sorted slice, for sizes around those at which a level is
// added.
func TestPositions(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{1, 2, 63, 64, 65, 4095, 4096, 4097, 1<<18 - 1, 1 << 18, 1<<18 + 1} {
		p := newPositions(n)
		var members []int
		for range 2000 {
			// Sparse sets leave whole words and levels empty.
			i := r.IntN(n)
			k, in := slices.BinarySearch(members, i)
			switch {
			case in:
				p.remove(i)
				members = slices.Delete(members, k, k+1)
			case len(members) < 40:
				p.insert(i)
				members = slices.Insert(members, k, i)
			}
			q := r.IntN(n)
			k, in = slices.BinarySearch(members, q)
			if in {
				k++
			}
			at, after := -1, n
			if k > 0 {
				at = members[k-1]
			}
			if k < len(members) {
				after = members[k]
			}
			if got := p.at(q); got != at {
				t.Fatalf("of %d: at(%d) = %d, expected %d in %d", n, q, got, at, members)
			}
			if got := p.after(q, n); got != after {
				t.Fatalf("of %d: after(%d) = %d, expected %d in %d", n, q, got, after, members)
			}
		}
	}
}
