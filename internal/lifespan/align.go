package lifespan

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// aligner matches allocations b with elements a, in order: out[j] is the element that b[j] is, -1 if it is a new one.
type aligner func(a, b []token) (out []int32)

// align matches allocations b with elements a, in order: out[j] is the element that b[j]
// is, -1 if b[j] is a new one. A script finds what the two have in common by lifetime
// class. Its certain stretches are taken as they are, but for bandWidth at their ends. A
// script ignores sizes and near misses, so between them it only gives the middle of a
// band, and the alignment of least cost in the band is taken.
func align(a, b []token) []int32 { return alignAlong(a, b, bySize, extendGap) }

// alignRatios is align for tokens that readRatios reads, and along a script in which sizes say nothing.
func alignRatios(a, b []token) []int32 { return alignAlong(a, b, byRatio, extendGap) }

// alignClasses is align if sizes say next to nothing. If lengths vary, a whole batch is else matched with another one than
// its own for the sake of sizes that are nearer.
func alignClasses(a, b []token) []int32 { return alignAlong(a, b, byRatio, otherSize) }

// alignAlong is align along a script of the given layers. Two sizes cost up to sizes if they differ.
func alignAlong(a, b []token, layers []layer, sizes int64) []int32 {
	out := make([]int32, len(b))
	var near []match // of the script since the last certain stretch
	var between []section
	i, j := 0, 0
	uncertain := func(i1, j1 int) {
		between = append(between, section{i, i1, j, j1, near})
		near = nil
	}
	for _, m := range stretches(a, b, newScript(a, b, layers)) {
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
	concurrently(len(between), func(k int) {
		s := between[k]
		for k, at := range leastCost(a[s.i0:s.i1], b[s.j0:s.j1], s.near, sizes) {
			out[s.j0+k] = at
			if at >= 0 {
				out[s.j0+k] += int32(s.i0)
			}
		}
	})
	return out
}

// section is a part of the alignment that is not certain: a[i0:i1] with b[j0:j1], and the
// script there.
type section struct {
	i0, i1, j0, j1 int
	near           []match
}

// concurrently calls use for each k below n, as many at once as there are processors: none knows of another.
// Calls begin in order.
func concurrently(n int, use func(k int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := next.Add(1) - 1; k < int64(n); k = next.Add(1) - 1 {
				use(int(k))
			}
		}()
	}
	wg.Wait()
}

// stretch is a match of the script. Even a certain one is not certain at its ends: next
// to allocations that only one side has, a match may go on by chance.
type stretch struct {
	match
	certain bool
}

// stretches splits a script into stretches and says which are certain. A match is split
// where equal sizes begin or end, and the stretches of equal sizes are certain. Two kinds
// of match are certain as a whole, because of their classes alone: one as long as an
// episode in which most sizes differ, since data decides all sizes there and they say
// nothing; and one that covers both sequences from end to end.
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
		long := m.n >= int(episodeShare*float64(min(len(a), len(b))))
		if long && 2*equal < m.n || m.n == max(len(a), len(b)) {
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

// The costs of an alignment have no unit; only their ratios matter. The largest part of
// a cost is mostly the weight of the bytes that a match adds to the envelope (see
// meanWeight), so that the slots together grow least. The costs below decide between
// matches that weigh about the same. docs/steady-state.md has what other values do.
const (
	// openGap is the cost of beginning a gap: a run of allocations that only one side
	// has. What is missing comes in runs, so many short gaps cost more than a long one.
	// A larger value mostly makes fewer optional slots and a larger envelope.
	openGap = 12
	// extendGap is the cost of each allocation in a gap. Two unlike allocations can be
	// put into gaps that are open anyway for 12. That is more than to match them if their
	// classes are neighbours (8) and less than if these are two apart (16).
	extendGap = 6
	// otherClass is the cost of a match for each class that the lifetimes are apart.
	// The lifetime says more about what an allocation is than its size does.
	otherClass = 8
	// farClass is the number of classes apart beyond which a match costs no more. A
	// lifetime may differ much because of one other allocation that only one side has.
	farClass = 3
	// octave is the cost of a match for each doubling from one size to the other, up to
	// extendGap in all. The limit keeps a difference in size alone from making long gaps:
	// if lengths vary, all sizes differ.
	octave = 16
	// otherSize is the most that a difference of two sizes costs for alignClasses, a third of what a gap does.
	otherSize = 2
	// never is above the cost of any alignment, and leaves room for sums and for the edge
	// of costs. It keeps allocations of two streams from being matched.
	never = 1 << 58
)

// classCosts are the costs of a match by the two lifetime classes. The recording may end
// before a free, so forever is no further away than the next class.
var classCosts = func() (costs [classCount][classCount]int64) {
	for a := range costs {
		for b := range costs {
			costs[a][b] = otherClass * int64(min(farClass, max(a-b, b-a)))
			if (a == forever) != (b == forever) {
				costs[a][b] = otherClass
			}
		}
	}
	return costs
}()
