package lifespan

import (
	"math/rand/v2"
	"testing"
)

// TestDiff compares the number of shared elements with the length of the longest common
// subsequence by dynamic programming. A search that is given up may find fewer.
func TestDiff(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 9))
		letters := 1 + r.IntN(6)
		word := func() []uint64 {
			out := make([]uint64, r.IntN(40))
			for i := range out {
				out[i] = uint64(r.IntN(letters))
			}
			return out
		}
		a, b := word(), word()
		d := newDiffer(a, b)
		if seed%3 == 0 {
			d.limit = 1 + r.IntN(5)
		}
		d.compare(0, len(a), 0, len(b))
		shared, i, j := 0, 0, 0
		for _, m := range d.matches {
			if m.i < i || m.j < j || m.n < 1 || m.i+m.n > len(a) || m.j+m.n > len(b) {
				t.Fatalf("seed %d: match %+v after (%d, %d) of %v and %v", seed, m, i, j, a, b)
			}
			for k := range m.n {
				if a[m.i+k] != b[m.j+k] {
					t.Fatalf("seed %d: match %+v of %v and %v", seed, m, a, b)
				}
			}
			shared += m.n
			i, j = m.i+m.n, m.j+m.n
		}
		if want := longestCommon(a, b); shared > want || shared < want && seed%3 != 0 {
			t.Fatalf("seed %d: %d shared, expected %d, of %v and %v", seed, shared, want, a, b)
		}
	}
}

func longestCommon(a, b []uint64) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			next := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			diagonal = next
		}
	}
	return row[len(b)]
}
