package fusion

import "math"

// Group joins buffers to stacks and chains, and these again to larger ones. Of a
// composite's size × life at most the share waste (0 to 1) may be unused, and nothing
// unused is added while the load is within a 64th of its maximum (headroom). Buffers
// that fit best are joined first: the share allowed starts at firstWaste and doubles.
// It returns an error if a buffer has no size or no life, or the sizes overflow.
//
// Each decision compares neighbours in time only. So time and memory are near-linear in
// the number of buffers, and repetitions are joined alike.
func Group(buffers []Buffer, waste float64) (*Reduced, error) {
	if err := check(buffers); err != nil {
		return nil, err
	}
	g := newGrouping(buffers)
	for share := min(waste, firstWaste); ; share = min(waste, 2*share) {
		for before := math.MaxInt; len(g.objects) < before-before/minProgress; {
			before = len(g.objects)
			g.pass(share, (*pass).chain)
			g.pass(share, (*pass).stack)
		}
		if share == waste {
			return g.reduced(), nil
		}
	}
}

// firstWaste is the share of a composite that may be unused in the first passes. It
// doubles up to Group's waste, so that close fits come before loose ones.
const firstWaste = 1.0 / 64

// minProgress ends the passes at one share: another pass of chains and one of stacks
// follow only if the last two left more than a 64th fewer objects.
const minProgress = 64

// object is a buffer or a composite. Its life is counted in starts of buffers (ranked).
type object struct {
	start, end int32
	last       Time // the time of its end
	size       Bytes
	used       float64 // the part of its size × life that buffers take up
}

// area is o's size × life. The conversion rounds the product before it is added to
// anything, so that the result is the same on processors that fuse the two operations.
func (o *object) area() float64 { return float64(float64(o.size) * float64(o.end-o.start)) }

// wasted is the share of o's size × life that no buffer takes up.
func (o *object) wasted() float64 { return 1 - o.used/o.area() }

// grouping is the state between two passes.
type grouping struct {
	buffers []Buffer
	ranked  *ranked
	load    *load
	objects []object // in the order of their starts
	home    []home   // of each buffer of ranked
}

func newGrouping(buffers []Buffer) *grouping {
	r := rank(buffers)
	g := &grouping{buffers: buffers, ranked: r, objects: make([]object, len(r.size)), home: make([]home, len(r.size))}
	for i := range g.objects {
		o := object{start: int32(i), end: r.end[i], last: buffers[r.origin[i]].End, size: r.size[i]}
		o.used = o.area()
		g.objects[i], g.home[i] = o, home{object: int32(i)}
	}
	g.load = newLoad(g.objects)
	return g
}

// pass goes through the objects in the order of their starts, and tries to join each
// with one of those used most recently.
type pass struct {
	load   *load
	waste  float64
	out    []object
	recent []int32 // indices into out, the most recent last
}

// maxRecent is the number of objects that a new one is compared with. With more a pass
// takes longer and finds closer fits.
const maxRecent = 24

// pass runs one pass. join returns the index of the object that o is joined with and
// o's offset in it, or -1 if o stays by itself.
func (g *grouping) pass(waste float64, join func(p *pass, o object) (int32, Bytes)) {
	p := &pass{load: g.load, waste: waste, out: make([]object, 0, len(g.objects))}
	moved := make([]home, len(g.objects))
	for i, o := range g.objects {
		at, inner := join(p, o)
		if at < 0 {
			at = int32(len(p.out))
			p.out = append(p.out, o)
		}
		p.markRecent(at)
		moved[i] = home{at, inner}
	}
	for b, h := range g.home {
		m := moved[h.object]
		g.home[b] = home{m.object, m.inner + h.inner}
	}
	g.objects = p.out
}

// markRecent makes object i the most recent one.
func (p *pass) markRecent(i int32) {
	for k, x := range p.recent {
		if x == i {
			copy(p.recent[k:], p.recent[k+1:])
			p.recent[len(p.recent)-1] = i
			return
		}
	}
	if len(p.recent) == maxRecent {
		copy(p.recent, p.recent[1:])
		p.recent = p.recent[:maxRecent-1]
	}
	p.recent = append(p.recent, i)
}

// best is the recent object that wastes least together with o, and the composite of the
// two; -1 if none is within the waste allowed.
func (p *pass) best(o object, with func(a, b object) (object, bool)) (int32, object) {
	at, best, least := int32(-1), object{}, p.waste
	for k := len(p.recent) - 1; k >= 0; k-- {
		both, ok := with(p.out[p.recent[k]], o)
		if !ok {
			continue
		}
		if w := both.wasted(); w < least || at < 0 && w <= least {
			at, best, least = p.recent[k], both, w
		}
	}
	return at, best
}

// chain joins o with an object that has ended.
func (p *pass) chain(o object) (int32, Bytes) {
	at, both := p.best(o, func(a, b object) (object, bool) {
		return object{a.start, b.end, b.last, max(a.size, b.size), a.used + b.used}, a.end <= b.start
	})
	if at < 0 {
		return -1, 0
	}
	a := p.out[at]
	if !p.load.raise(area{a.start, a.end, both.size - a.size}, area{a.end, o.start, both.size}, area{o.start, o.end, both.size - o.size}) {
		return -1, 0
	}
	p.out[at] = both
	return at, 0
}

// stack puts o on top of an object that lives at the same time.
func (p *pass) stack(o object) (int32, Bytes) {
	at, both := p.best(o, func(a, b object) (object, bool) {
		return object{a.start, max(a.end, b.end), max(a.last, b.last), a.size + b.size, a.used + b.used}, a.end > b.start
	})
	if at < 0 {
		return -1, 0
	}
	a := p.out[at]
	if !p.load.raise(area{a.start, o.start, o.size}, area{a.end, both.end, a.size}, area{o.end, both.end, o.size}) {
		return -1, 0
	}
	p.out[at] = both
	return at, a.size
}

// reduced is the problem that has the objects as buffers.
func (g *grouping) reduced() *Reduced {
	out := &Reduced{Buffers: make([]Buffer, len(g.objects)), home: make([]home, len(g.home)), first: make([]int32, len(g.objects))}
	for i, o := range g.objects {
		out.first[i] = g.ranked.origin[o.start]
		out.Buffers[i] = Buffer{g.buffers[out.first[i]].Start, o.last, o.size}
	}
	for i, h := range g.home {
		out.home[g.ranked.origin[i]] = h
	}
	return out
}
