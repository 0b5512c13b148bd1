package lifespan

// band bounds an alignment: row i, before element i of a, has the columns
// low[i] to high[i], both included, each before an element of b. It bounds the
// work: the path of an edit script and its surroundings.
type band struct{ low, high []int32 }

const (
	// bandWidth is how far from the script the band goes: over a few experts
	// that got no tokens.
	bandWidth = 96
	// fullGap is the shorter side of a gap in the script that is searched
	// whole. In a larger one the band follows the diagonal.
	fullGap = 512
)

// bandOf is the band around the matches of a script between n and m elements.
func bandOf(n, m int, script []match) band {
	w := band{low: make([]int32, n+1), high: make([]int32, n+1)}
	for i := range w.low {
		w.low[i], w.high[i] = int32(m), 0
	}
	i, j := 0, 0
	for _, m := range append(script, match{n, m, 0}) {
		w.gap(i, j, m.i, m.j)
		for k := range m.n + 1 {
			w.cover(m.i+k, m.j+k, m.j+k)
		}
		i, j = m.i+m.n, m.j+m.n
	}
	w.widen(int32(m))
	return w
}

func (w band) cover(i, low, high int) {
	w.low[i] = min(w.low[i], int32(low))
	w.high[i] = max(w.high[i], int32(high))
}

// gap covers what lies between two points of the script.
func (w band) gap(i0, j0, i1, j1 int) {
	full := min(i1-i0, j1-j0) <= fullGap
	for i := i0; i <= i1; i++ {
		if full {
			w.cover(i, j0, j1)
			continue
		}
		// The diagonal's step from this row to the next.
		from := j0 + (i-i0)*(j1-j0)/(i1-i0)
		to := j0 + min(i+1-i0, i1-i0)*(j1-j0)/(i1-i0)
		w.cover(i, from, to)
	}
}

// widen adds the surroundings: a row has what the rows within bandWidth have,
// and bandWidth columns more.
func (w band) widen(last int32) {
	n := len(w.low)
	low, high := make([]int32, n), make([]int32, n)
	for i := range n {
		// Both bounds grow with the row, so the extremes are at the ends.
		low[i] = max(0, w.low[max(0, i-bandWidth)]-bandWidth)
		high[i] = min(last, w.high[min(n-1, i+bandWidth)]+bandWidth)
	}
	copy(w.low, low)
	copy(w.high, high)
}
