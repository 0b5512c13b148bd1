package lifespan

import (
	"cmp"
	"math"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// seams looks for the best place in an iteration to cut: where the least
// memory is live, so that the fewest buffers cross. The beats of the loop are
// near such a place but seldom in it, since the next forward pass begins as
// every one does. So each is moved, for as long as its occurrences agree on
// what they pass. The first and the last may disagree: the optimizer makes its
// state in the first iteration, and what the last one leaves is never freed.
type seams struct {
	tl   *Timeline
	s    *sequence
	load Profile
	loop []beat // equally frequent, by position
	n    int32  // allocations in the sequence
	// grain is the difference in load that counts.
	grain trace.Bytes
	// lag is how far off the first and the last position (true) were lately,
	// and budget how many steps may yet be spent on looking for them.
	lag    map[bool]int32
	budget int
}

// seam is one position in each iteration.
type seam struct {
	beat  beat
	moved int32 // from the beat, back where negative
	step  int32 // the direction it moves in, 1 or -1
	// live is the mean load before it and growth how much more is live before
	// the second position than before the first, both in grains.
	live, growth trace.Bytes
}

func newSeams(tl *Timeline, s *sequence, loop []beat) *seams {
	return &seams{
		tl: tl, s: s, loop: loop, load: tl.Load(EndRequested),
		n:     int32(len(s.grams) + s.gram - 1),
		grain: tl.PeakAllocated.Bytes/1024 + 1,
		lag:   map[bool]int32{}, budget: 64 * len(s.grams),
	}
}

// best is the quietest seam; of equals the one after which the least is left
// behind for good, and then the one nearest to a beat.
func (f *seams) best() []int32 {
	best := seam{beat: f.loop[0], step: 1, live: math.MaxInt64}
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

// move tries the seams from b in one direction, up to a period away. It
// returns how many agreed.
func (f *seams) move(b beat, step int32, best *seam) int32 {
	c := seam{beat: b, step: step}
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

func (c seam) distance() int32 { return max(c.moved, -c.moved) }

func (c seam) compare(d seam) int {
	return cmp.Or(
		cmp.Compare(c.live, d.live),
		cmp.Compare(c.growth, d.growth),
		cmp.Compare(c.distance(), d.distance()),
	)
}

// gramAt is the gram at a position, -1 where none begins.
func (f *seams) gramAt(p int32) int32 {
	if p < 0 || int(p) >= len(f.s.grams) {
		return -1
	}
	return f.s.grams[p]
}

// agree says whether the same gram begins at every position but the first and
// the last; one of those has to be the same where there are no others to agree.
func (f *seams) agree(c seam) bool {
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

// live is a seam's. In the first iteration less is allocated yet, and the last
// position may be the end of the recording: neither counts.
func (f *seams) live(c seam) trace.Bytes {
	at := c.beat.at
	var sum trace.Bytes
	for _, p := range at[1 : len(at)-1] {
		sum += f.before(p+c.moved) / f.grain
	}
	return sum / trace.Bytes(len(at)-2)
}

// before is the load just before the allocation at a position.
func (f *seams) before(p int32) trace.Bytes {
	b := &f.tl.Buffers[f.s.first+int(min(max(p, 0), f.n-1))]
	return f.load[b.Start] - b.Size
}

// positions are a seam's.
func (f *seams) positions(c seam) []int32 {
	at := slices.Clone(c.beat.at)
	for i := range at {
		at[i] = min(at[i]+c.moved, f.n)
	}
	at[0], at[len(at)-1] = f.mend(c, 0), f.mend(c, len(at)-1)
	return at
}

// mend returns position i of a seam, the first or the last. Where it disagrees
// with the others, the program did something else between the beat and the
// seam there, so it is where their gram begins: further on, if that is near,
// since the first iteration does more than others, and else before. The last
// may be the end of the recording.
func (f *seams) mend(c seam, i int) int32 {
	p := min(max(c.beat.at[i]+c.moved, 0), f.n)
	if int(p) >= len(f.s.grams) || f.fits(c, i, p) {
		return p
	}
	if q := p + f.lag[i > 0]; f.fits(c, i, q) {
		return q
	}
	for _, step := range [2]int32{c.step, -c.step} {
		for q := p; max(q-p, p-q) <= c.beat.period/2 && f.budget > 0; q += step {
			f.budget--
			if f.fits(c, i, q) {
				f.lag[i > 0] = q - p
				return q
			}
		}
	}
	return p
}

// fits says whether position i of a seam can be q: the same gram begins there,
// and about a period lies between it and its neighbour. In half a period the
// gram may begin too, as every micro-batch does.
func (f *seams) fits(c seam, i int, q int32) bool {
	distance := c.beat.at[1] + c.moved - q
	if i > 0 {
		distance = q - c.beat.at[i-1] - c.moved
	}
	return f.gramAt(q) == f.gramAt(c.beat.at[1]+c.moved) && float64(distance)*spread >= float64(c.beat.period)
}

// sampled bounds how many beats one is compared with.
const sampled = 64

// typical says whether b takes turns with most others of the loop, so that
// each occurs once from an occurrence of the other to the next.
func (f *seams) typical(b beat) bool {
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

// inStep says whether two beats are equally far apart everywhere but at the
// first and the last.
func inStep(x, y []int32) bool {
	for i := 1; i < len(x)-1; i++ {
		if y[i]-x[i] != y[1]-x[1] {
			return false
		}
	}
	return true
}
