package lifespan

// The edges by which a path can reach a point.
const (
	byMatch  = iota // an allocation matched with an element
	bySkip          // an element that the new iteration does not have
	byInsert        // an allocation that becomes a new element
	edges           // the number of edges
	edgeBits = 2    // bits that hold an edge in a step
	edgeMask = 1<<edgeBits - 1
)

// leastCost is the alignment of least cost within a band around a script, with affine
// gaps (Gotoh, An improved algorithm for matching biological sequences, 1982). The result
// has the element of a for each allocation of b, or -1.
func leastCost(a, b []token, script []match) []int32 {
	g := newGotoh(len(b), bandOf(len(a), len(b), script))
	for i := range g.w.low {
		var element *token
		if i > 0 {
			element = &a[i-1]
		}
		g.row(i, element, b)
	}
	return g.trace(len(a), len(b))
}

// gotoh holds two rows of costs, by the edge that a path ends with, and for every point
// in the band the edge before each of these.
type gotoh struct {
	w band
	// now and last are the current row and the one before it. They have column j at
	// index j+1, and the cost never outside of the band.
	now, last [edges][]int64
	steps     [][]uint8 // by row and column from w.low on: three edges of edgeBits each
}

func newGotoh(columns int, w band) *gotoh {
	g := &gotoh{w: w, steps: make([][]uint8, len(w.low))}
	for edge := range edges {
		g.now[edge], g.last[edge] = make([]int64, columns+2), make([]int64, columns+2)
		for j := range g.now[edge] {
			g.now[edge][j], g.last[edge][j] = never, never
		}
	}
	g.now[byMatch][1] = 0 // a path begins in the first corner
	return g
}

// row fills row i, which comes after the given element of a. Row 0 has no element.
func (g *gotoh) row(i int, element *token, b []token) {
	low, high := g.w.low[i], g.w.high[i]
	steps := make([]uint8, high-low+1)
	if element != nil {
		g.now, g.last = g.last, g.now
	}
	lastM, lastS, lastI := g.last[byMatch], g.last[bySkip], g.last[byInsert]
	nowM, nowS, nowI := g.now[byMatch], g.now[bySkip], g.now[byInsert]
	nowM[low], nowS[low], nowI[low] = never, never, never
	for j := low; j <= high; j++ {
		insert, insertFrom := least(nowM[j]+openGap, nowS[j]+openGap, nowI[j])
		if j > 0 {
			insert += extendGap + b[j-1].weight
		}
		nowI[j+1] = insert
		steps[j-low] = insertFrom << (edgeBits * byInsert)
		if element == nil {
			continue
		}
		skip, skipFrom := least(lastM[j+1]+openGap, lastS[j+1], lastI[j+1]+openGap)
		nowS[j+1] = skip + extendGap
		match, matchFrom := least(lastM[j], lastS[j], lastI[j])
		if match < never {
			match += mismatch(element, &b[j-1])
		}
		nowM[j+1] = match
		steps[j-low] |= matchFrom<<(edgeBits*byMatch) | skipFrom<<(edgeBits*bySkip)
	}
	g.steps[i] = steps
}

// least is the least of three costs and its edge. Of equals it is the first.
func least(match, skip, insert int64) (cost int64, edge uint8) {
	cost, edge = match, byMatch
	if skip < cost {
		cost, edge = skip, bySkip
	}
	if insert < cost {
		cost, edge = insert, byInsert
	}
	return cost, edge
}

// trace follows the path of least cost back from point (i, j), the last one.
func (g *gotoh) trace(i, j int) []int32 {
	out := make([]int32, j)
	_, edge := least(g.now[byMatch][j+1], g.now[bySkip][j+1], g.now[byInsert][j+1])
	for i > 0 || j > 0 {
		before := g.steps[i][int32(j)-g.w.low[i]] >> (edgeBits * edge) & edgeMask
		switch edge {
		case byMatch:
			i, j = i-1, j-1
			out[j] = int32(i)
		case bySkip:
			i--
		default:
			j--
			out[j] = -1
		}
		edge = before
	}
	return out
}
