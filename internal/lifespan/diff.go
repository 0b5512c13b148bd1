package lifespan

import "math"

// match is a stretch that two sequences share: a[i:i+n] equals b[j:j+n].
type match struct{ i, j, n int }

// add appends the stretch a[i:i+n], b[j:j+n] to a list of matches. A stretch that
// continues the last match makes it longer.
func add(matches []match, i, j, n int) []match {
	if n == 0 {
		return matches
	}
	if k := len(matches); k > 0 {
		if last := &matches[k-1]; last.i+last.n == i && last.j+last.n == j {
			last.n += n
			return matches
		}
	}
	return append(matches, match{i, j, n})
}

// differ finds a shortest edit script between two sequences in linear space
// (Myers, An O(ND) Difference Algorithm and Its Variations, 1986, section 4b).
// If the two have little in common it stops searching after limit edits and splits at the
// point that got furthest. That keeps the time near-linear and may cost a few matches.
type differ struct {
	a, b              []uint64
	forward, backward []int32 // by diagonal: how far into a a search has come
	limit             int     // edits searched from either side
	matches           []match
}

const (
	// minEdits is the least number of edits that a search from either side goes before
	// it is given up. It trades time in long iterations that differ much against matches
	// there. Of the shared recordings only the two of qwen3-moe-eager depend on it
	// (docs/steady-state.md).
	minEdits = 512
	// maxSteps bounds the work of a whole diff, in points looked at: all its searches
	// together take about the limit times both lengths. So short sequences are searched
	// for more than minEdits edits.
	maxSteps = 1 << 26
)

// diff returns the shared stretches of a shortest edit script, in order.
func diff(a, b []uint64) []match {
	d := newDiffer(a, b)
	d.compare(0, len(a), 0, len(b))
	return d.matches
}

func newDiffer(a, b []uint64) *differ {
	size := 2*(len(a)+len(b)) + 4
	return &differ{
		a: a, b: b, limit: max(minEdits, maxSteps/size),
		forward: make([]int32, size), backward: make([]int32, size),
	}
}

// compare finds the matches of a[a0:a1] and b[b0:b1].
func (d *differ) compare(a0, a1, b0, b1 int) {
	n := 0
	for a0+n < a1 && b0+n < b1 && d.a[a0+n] == d.b[b0+n] {
		n++
	}
	d.matches = add(d.matches, a0, b0, n)
	a0, b0 = a0+n, b0+n
	tail := 0
	for a0 < a1-tail && b0 < b1-tail && d.a[a1-tail-1] == d.b[b1-tail-1] {
		tail++
	}
	if a0 < a1-tail && b0 < b1-tail {
		x, y := d.split(a0, a1-tail, b0, b1-tail)
		d.compare(a0, x, b0, y)
		d.compare(x, a1-tail, y, b1-tail)
	}
	d.matches = add(d.matches, a1-tail, b1-tail, tail)
}

// split finds a point that a shortest script goes through, other than the two corners.
// Neither stretch is empty, and they differ in their first and in their last elements.
// Diagonal k holds the points with i-j = k, counted from the corner that the search
// starts at.
func (d *differ) split(a0, a1, b0, b1 int) (x, y int) {
	n, m := a1-a0, b1-b0
	mid := m + 1 // of the diagonals, which go from -m to n
	fw, bw := d.forward[:n+m+3], d.backward[:n+m+3]
	for k := range fw {
		fw[k], bw[k] = unsearched, unsearched
	}
	fw[mid-1], bw[mid-1] = -1, -1 // so that the searches begin at 0
	a, b := d.a[a0:a1], d.b[b0:b1]
	delta := n - m
	odd := delta%2 != 0
	for e := 0; ; e++ {
		from, to := -e+2*max(0, e-m), e-2*max(0, e-n)
		for k := from; k <= to; k += 2 {
			i := max(int(fw[mid+k-1])+1, int(fw[mid+k+1]))
			for j := i - k; i < n && j < m && a[i] == b[j]; i, j = i+1, j+1 {
			}
			fw[mid+k] = int32(i)
			if odd && i+int(bw[mid+delta-k]) >= n {
				return a0 + i, b0 + i - k
			}
		}
		for k := from; k <= to; k += 2 {
			i := max(int(bw[mid+k-1])+1, int(bw[mid+k+1]))
			for j := i - k; i < n && j < m && a[n-1-i] == b[m-1-j]; i, j = i+1, j+1 {
			}
			bw[mid+k] = int32(i)
			if !odd && i+int(fw[mid+delta-k]) >= n {
				return a1 - i, b1 - (i - k)
			}
		}
		if e >= d.limit {
			return d.furthest(a0, b0, n, m, e)
		}
	}
}

// unsearched is what a search reaches on a diagonal that it has not come to: less than any point and any sum with one.
const unsearched = math.MinInt32

// furthest is the point that the forward search reached with the most elements behind it.
func (d *differ) furthest(a0, b0, n, m, e int) (x, y int) {
	mid, most := m+1, -1
	for k := -e + 2*max(0, e-m); k <= e-2*max(0, e-n); k += 2 {
		if i := int(d.forward[mid+k]); i <= n && i-k <= m && 2*i-k > most {
			most, x, y = 2*i-k, a0+i, b0+i-k
		}
	}
	return x, y
}
