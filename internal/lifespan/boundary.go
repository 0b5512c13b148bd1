package lifespan

import (
	"cmp"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// boundarySearch looks for the boundary between iterations: the place in the loop
// where the least memory is live, so that the fewest buffers cross it. A beat occurs
// near that place but seldom at it, because the next forward pass begins as every
// forward pass does. So each beat is shifted step by step, as long as the same gram
// begins at all of its shifted positions. The first and the last position may have
// another gram: the optimizer allocates its state in the first iteration, and what the
// last one leaves is never freed.
type boundarySearch struct {
	tl   *Timeline
	s    *sequence
	load Profile
	loop []beat // equally frequent, by position
	n    int32  // allocations in the sequence
	// grain is the unit that loads are compared in, in bytes.
	grain trace.Bytes
	// lag is the distance, in allocations, that mend last moved the first position
	// (false) and the last one (true) by. The next boundary mostly needs the same.
	lag map[bool]int32
}

const (
	// grains is the number of grains in the peak: loads that differ by less than
	// 1/1024 of the peak count as equal, as keptShare does. A smaller grain would let
	// a few small tensors decide between two places.
	grains = 1024
	// sampled is about the number of beats of the loop that one beat is compared with. To
	// compare all with all would be quadratic. With 8, or with all, as many iterations
	// are found in the shared recordings.
	sampled = 64
)

// boundary is one position in each iteration.
type boundary struct {
	beat  beat
	moved int32 // distance from the beat in allocations, negative for earlier
	step  int32 // the direction it moves in, 1 or -1
	// live is the mean load before its positions. growth is the difference of the load
	// before its second position and before its first. Both are in grains.
	live, growth trace.Bytes
}

func newBoundarySearch(tl *Timeline, s *sequence, loop []beat) *boundarySearch {
	return &boundarySearch{
		tl: tl, s: s, loop: loop, load: tl.Load(EndRequested),
		n:     int32(len(s.grams) + s.gram - 1),
		grain: tl.PeakAllocated.Bytes/grains + 1,
		lag:   map[bool]int32{},
	}
}

// best returns the positions of the boundary with the least live bytes. Of equals it
// takes the one with the least growth, then the one nearest to a beat.
func (f *boundarySearch) best() []int32 {
	best := boundary{beat: f.loop[0], step: 1, live: math.MaxInt64}
	var previous beat
	var reached int32 // how far previous was moved
	for _, b := range f.loop {
		if previous.at != nil && inStep(previous.at, b.at) && b.at[1]-previous.at[1] <= reached || !f.typical(b) {
			continue
		}
		f.move(b, -1, &best)
		previous, reached = b, f.move(b, 1, &best)
	}
	return f.positions(best)
}

// move tries the boundaries from b in one direction, up to a period away and as long as
// their positions agree. It returns how far it got, in allocations.
func (f *boundarySearch) move(b beat, step int32, best *boundary) int32 {
	c := boundary{beat: b, step: step}
	for ; c.distance() < b.period && f.agree(c); c.moved += step {
		if c.live = f.live(c); c.live > best.live {
			continue
		}
		growth := (f.before(b.at[1]+c.moved) - f.before(f.mend(c, 0))) / f.grain
		c.growth = max(growth, -growth)
		if c.compare(*best) < 0 {
			*best = c
		}
	}
	return c.distance()
}

func (c boundary) distance() int32 { return max(c.moved, -c.moved) }

func (c boundary) compare(d boundary) int {
	return cmp.Or(
		cmp.Compare(c.live, d.live),
		cmp.Compare(c.growth, d.growth),
		cmp.Compare(c.distance(), d.distance()),
	)
}

// gramAt is the gram at a position, -1 if none begins there.
func (f *boundarySearch) gramAt(p int32) int32 {
	if p < 0 || int(p) >= len(f.s.grams) {
		return -1
	}
	return f.s.grams[p]
}

// agree says whether the same gram begins at every position but the first and the
// last. With only one position between them there is nothing to compare, so then the
// first or the last has to begin with that gram too.
func (f *boundarySearch) agree(c boundary) bool {
	at := c.beat.at
	last := len(at) - 1
	gram := f.gramAt(at[1] + c.moved)
	for _, p := range at[2:last] {
		if f.gramAt(p+c.moved) != gram {
			return false
		}
	}
	return gram >= 0 && (last > 2 || f.gramAt(at[0]+c.moved) == gram || f.gramAt(at[last]+c.moved) == gram)
}

// live is the mean load before the positions of a boundary, in grains. The first and
// the last position do not count: in the first iteration less is allocated yet, and
// the last position may be the end of the recording.
func (f *boundarySearch) live(c boundary) trace.Bytes {
	at := c.beat.at
	var sum trace.Bytes
	for _, p := range at[1 : len(at)-1] {
		sum += f.before(p+c.moved) / f.grain
	}
	return sum / trace.Bytes(len(at)-2)
}

// before is the load just before the allocation at a position.
func (f *boundarySearch) before(p int32) trace.Bytes {
	b := &f.tl.Buffers[f.s.first+int(min(max(p, 0), f.n-1))]
	return f.load[b.Start] - b.Size
}

// positions are the positions of a boundary, the first and the last one mended.
func (f *boundarySearch) positions(c boundary) []int32 {
	at := slices.Clone(c.beat.at)
	for i := range at {
		at[i] = min(at[i]+c.moved, f.n)
	}
	at[0], at[len(at)-1] = f.mend(c, 0), f.mend(c, len(at)-1)
	return at
}

// mend returns position i of a boundary, where i is the first or the last. Another
// gram than at the other positions may begin there, because the program allocated more
// or fewer buffers between the beat and the boundary than in other iterations. Then
// mend looks for the nearest position, at most half a period away, that fits. It first
// looks in the direction in which the boundary was moved, because the first iteration
// allocates more than others, and then in the opposite one. The position stays as it
// is if none fits, or if no gram begins there because the recording ends.
func (f *boundarySearch) mend(c boundary, i int) int32 {
	p := min(max(c.beat.at[i]+c.moved, 0), f.n)
	if int(p) >= len(f.s.grams) || f.fits(c, i, p) {
		return p
	}
	if q := p + f.lag[i > 0]; f.fits(c, i, q) {
		return q
	}
	places := f.s.places(f.gramAt(c.beat.at[1] + c.moved))
	for _, step := range [2]int32{c.step, -c.step} {
		for k := nextPlace(places, p, step); k >= 0 && k < len(places); k += int(step) {
			q := places[k]
			if max(q-p, p-q) > c.beat.period/2 {
				break
			}
			if f.fits(c, i, q) {
				f.lag[i > 0] = q - p
				return q
			}
			if i == 0 && step > 0 || i > 0 && step < 0 {
				break // the next ones are even nearer to the neighbouring position
			}
		}
	}
	return p
}

// nextPlace is the index of the first of places beyond p in a direction. It is one before
// the first or after the last if there is none.
func nextPlace(places []int32, p, step int32) int {
	k, found := slices.BinarySearch(places, p)
	switch {
	case step < 0:
		return k - 1
	case found:
		return k + 1
	}
	return k
}

// fits says whether position i of a boundary, the first or the last, can be q: the gram
// of the other positions begins there, and q is about a period or more away from the
// neighbouring position. The distance matters because the gram may also begin within an
// iteration, for example with every micro-batch.
func (f *boundarySearch) fits(c boundary, i int, q int32) bool {
	from, to := q, c.beat.at[1]+c.moved
	if i > 0 {
		from, to = c.beat.at[i-1]+c.moved, q
	}
	return f.gramAt(q) == f.gramAt(c.beat.at[1]+c.moved) && f.s.newsBetween(from, to)*spread >= c.beat.news
}

// typical says whether b alternates with at least three quarters of a sample of the
// loop's beats: each occurs exactly once between two occurrences of the other.
func (f *boundarySearch) typical(b beat) bool {
	turns, asked := 0, 0
	for i := 0; i < len(f.loop); i += 1 + len(f.loop)/sampled {
		other := f.loop[i]
		asked++
		if takeTurns(b.at, other.at) || takeTurns(other.at, b.at) {
			turns++
		}
	}
	return 4*turns >= 3*asked
}

func takeTurns(first, second []int32) bool {
	for i := range first {
		if second[i] < first[i] || i+1 < len(first) && first[i+1] <= second[i] {
			return false
		}
	}
	return true
}

// inStep says whether two beats are equally far apart at all positions but the first
// and the last.
func inStep(x, y []int32) bool {
	for i := 1; i < len(x)-1; i++ {
		if y[i]-x[i] != y[1]-x[1] {
			return false
		}
	}
	return true
}
