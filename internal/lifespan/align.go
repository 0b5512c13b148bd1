package lifespan

// align matches allocations b with elements a, in order: out[j] is the element
// that b[j] is, -1 where it is a new one. A script finds what the two have in
// common by lifetime class. Some of it is certain. Elsewhere it ignores sizes and
// takes no account of near misses, and an alignment of least cost in a band
// around it takes its place.
func align(a, b []token) []int32 {
	out := make([]int32, len(b))
	var near []match // of the script since the last certain stretch
	i, j := 0, 0
	uncertain := func(i1, j1 int) {
		for k, at := range leastCost(a[i:i1], b[j:j1], near) {
			out[j+k] = at
			if at >= 0 {
				out[j+k] += int32(i)
			}
		}
		near = nil
	}
	for _, m := range stretches(a, b, newScript(a, b)) {
		lead, trail := bandWidth, bandWidth
		if m.i == 0 && m.j == 0 {
			lead = 0
		}
		if m.i+m.n == len(a) && m.j+m.n == len(b) {
			trail = 0
		}
		if m.n <= lead+trail || !m.certain {
			near = append(near, match{m.i - i, m.j - j, m.n})
			continue
		}
		near = append(near, match{m.i - i, m.j - j, lead})
		uncertain(m.i+lead, m.j+lead)
		for k := lead; k < m.n-trail; k++ {
			out[m.j+k] = int32(m.i + k)
		}
		i, j = m.i+m.n-trail, m.j+m.n-trail
		near = append(near, match{0, 0, trail})
	}
	uncertain(len(a), len(b))
	return out
}

// stretch is a match that may be certain, but for its ends: next to what is
// missing a chance likeness reaches too far.
type stretch struct {
	match
	certain bool
}

// stretches says what of a script is certain. Stretches of equal sizes are, and
// the others are split where such begin or end. But where most sizes differ
// they say nothing, since they depend on data all over: then the classes alone
// are believed in a stretch that is as long as an episode. And they are where they
// are the same from one end to the other.
func stretches(a, b []token, script []match) []stretch {
	var out []stretch
	for _, m := range script {
		same := func(k int) bool { return a[m.i+k].strong == b[m.j+k].strong }
		equal := 0
		for k := range m.n {
			if same(k) {
				equal++
			}
		}
		episode := m.n >= int(episodeShare*float64(min(len(a), len(b))))
		if episode && 2*equal < m.n || m.n == max(len(a), len(b)) {
			out = append(out, stretch{m, true})
			continue
		}
		from := 0
		for k := 1; k <= m.n; k++ {
			if k == m.n || same(k) != same(from) {
				out = append(out, stretch{match{m.i + from, m.j + from, k - from}, same(from)})
				from = k
			}
		}
	}
	return out
}

// Costs of an alignment. What counts most is what a match adds to the
// envelope, so that the slots together grow least: the weight of a token says
// it. The others decide where sizes do not.
const (
	// openGap and extendGap are for allocations that only one side has: what
	// is missing comes in stretches.
	openGap, extendGap = 12, 6
	// otherClass is for each class that the lifetimes are apart, up to
	// farClass of them.
	otherClass, farClass = 8, 3
	// octave is for each doubling from one size to the other, up to extendGap:
	// a difference in size alone never makes a long gap, since where lengths
	// vary all sizes differ.
	octave = 16
	// never is more than any alignment costs, so that no stream is taken for
	// another.
	never = 1 << 60
)

// mismatch is the cost of taking b for one more allocation of element a.
func mismatch(a, b *token) int64 {
	if a.stream != b.stream {
		return never
	}
	cost := max(0, b.weight-a.weight)
	if a.strong == b.strong {
		return cost
	}
	cost += min(extendGap, max(a.log-b.log, b.log-a.log))
	if (a.class == forever) != (b.class == forever) {
		return cost + otherClass // the recording may end before the free
	}
	apart := int64(a.class) - int64(b.class)
	return cost + otherClass*min(farClass, max(apart, -apart))
}
