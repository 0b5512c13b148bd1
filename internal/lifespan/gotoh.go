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
// has the element of a for each allocation of b, or -1. otherSize is the most that a difference of two sizes costs.
func leastCost(a, b []token, script []match, otherSize int64) []int32 {
	g := newGotoh(len(b), bandOf(len(a), len(b), script))
	g.otherSize, g.columns = otherSize, columnsOf(b)
	g.first(b)
	for i := range a {
		g.row(i+1, &a[i])
	}
	return g.trace(len(a), len(b))
}

// costs are those of the cheapest paths to a point, by the edge that a path ends with.
// Each is the cost times edges' power of two, plus the edge: the least of several is
// then one comparison each, which needs no branch, and knows its edge. Of equal costs the
// first edge is the least.
type costs [edges]int64

// tagged is a cost with an edge.
func tagged(cost int64, edge int64) int64 { return cost<<edgeBits | edge }

// gotoh holds two rows of costs, and for every point in the band the edge before each of
// its three.
type gotoh struct {
	w         band
	otherSize int64
	columns   []column
	// now and last are the current row and the one before it. They have column j at
	// index j+1, and the cost never outside of the band.
	now, last []costs
	steps     []uint8 // by row and column: three edges of edgeBits each
	begin     []int   // by row: where its column 0 is, or would be, in steps
}

func newGotoh(columns int, w band) *gotoh {
	g := &gotoh{w: w, begin: make([]int, len(w.low)), now: make([]costs, columns+2), last: make([]costs, columns+2)}
	area := 0
	for i := range w.low {
		g.begin[i] = area - int(w.low[i])
		area += int(w.high[i]-w.low[i]) + 1
	}
	g.steps = make([]uint8, area)
	for j := range g.now {
		g.now[j], g.last[j] = unreached, unreached
	}
	g.now[1][byMatch] = 0 // a path begins in the first corner
	return g
}

var unreached = costs{tagged(never, byMatch), tagged(never, bySkip), tagged(never, byInsert)}

// rowSteps are the steps of row i, from its first column on.
func (g *gotoh) rowSteps(i int) []uint8 {
	from := g.begin[i] + int(g.w.low[i])
	return g.steps[from : from+int(g.w.high[i]-g.w.low[i])+1]
}

// first fills row 0, which no element of a comes before: all its columns are inserted.
func (g *gotoh) first(b []token) {
	low := int(g.w.low[0])
	for j := range g.rowSteps(0) {
		if j += low; j > 0 {
			insert := g.now[j].insert()
			g.now[j+1][byInsert] = insert&^edgeMask + tagged(extendGap+b[j-1].weight, byInsert)
			g.rowSteps(0)[j-low] = uint8(insert&edgeMask) << (edgeBits * byInsert)
		}
	}
}

// insert is the cost of going on from here with an insertion, with the edge before it.
func (c *costs) insert() int64 {
	return min(c[byMatch]+openGap<<edgeBits, c[bySkip]+openGap<<edgeBits, c[byInsert])
}

// skip is the cost of going on from here with a skip, with the edge before it.
func (c *costs) skip() int64 {
	return min(min(c[byMatch], c[byInsert])+openGap<<edgeBits, c[bySkip])
}

// column is what a row reads of an allocation of b. It is packed, since a row reads all of them.
type column struct {
	insert, weight, log int64 // insert is the tagged cost of another insertion
	stream              uint64
	class               uint8
}

func columnsOf(b []token) []column {
	out := make([]column, len(b))
	for j := range b {
		t := &b[j]
		out[j] = column{tagged(extendGap+t.weight, byInsert), t.weight, t.log, t.stream, t.class}
	}
	return out
}

// row fills row i, which comes after the given element of a. It is where alignment spends
// its time, so it has no branch that depends on the data.
func (g *gotoh) row(i int, element *token) {
	low := int(g.w.low[i])
	steps := g.rowSteps(i)
	g.now, g.last = g.last, g.now
	before, left := g.last[low], unreached // of the column before the first one
	g.now[low] = left
	now, last := g.now[low+1:], g.last[low+1:]
	if low == 0 {
		// Nothing comes before column 0, which only skips reach.
		skip := last[0].skip()
		steps[0] = uint8(skip & edgeMask << (edgeBits * bySkip))
		left[bySkip] = skip&^edgeMask + tagged(extendGap, bySkip)
		now[0], before = left, last[0]
		now, last, steps, low = now[1:], last[1:], steps[1:], 1
	}
	// now, last and steps begin with column low, and columns with the allocation before it.
	columns := g.columns[low-1 : low-1+len(steps)]
	now, last = now[:len(steps)], last[:len(steps)]
	apart := &classCosts[element.class%classCount]
	weight, log, otherSize, stream := element.weight, element.log, g.otherSize, element.stream
	b0, b1, b2 := before[byMatch], before[bySkip], before[byInsert]
	l0, l1, l2 := left[byMatch], left[bySkip], left[byInsert]
	for k := range columns {
		t := &columns[k]
		here := &last[k]
		h0, h1, h2 := here[byMatch], here[bySkip], here[byInsert]
		insert := min(min(l0, l1)+openGap<<edgeBits, l2)
		skip := here.skip()
		match := min(b0, b1, b2)
		steps[k] = uint8(match&edgeMask | skip&edgeMask<<(edgeBits*bySkip) | insert&edgeMask<<(edgeBits*byInsert))
		unlike := max(0, t.weight-weight) + min(otherSize, max(log-t.log, t.log-log)) + apart[t.class%classCount]
		if t.stream != stream {
			unlike = never
		}
		l0 = min(match&^edgeMask+unlike<<edgeBits, never<<edgeBits)
		l1 = skip&^edgeMask + tagged(extendGap, bySkip)
		l2 = insert&^edgeMask + t.insert
		out := &now[k]
		out[byMatch], out[bySkip], out[byInsert] = l0, l1, l2
		b0, b1, b2 = h0, h1, h2
	}
}

// trace follows the path of least cost back from point (i, j), the last one.
func (g *gotoh) trace(i, j int) []int32 {
	out := make([]int32, j)
	end := &g.now[j+1]
	edge := uint8(min(end[byMatch], end[bySkip], end[byInsert]) & edgeMask)
	for i > 0 || j > 0 {
		before := g.steps[g.begin[i]+j] >> (edgeBits * edge) & edgeMask
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
