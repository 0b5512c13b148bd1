package lifespan

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// SizeLaw is a size in bytes as a function of a quantity, such as the length of a batch:
// constant + growth × quantity + square × quantity². The last is of attention that keeps a
// square of the length; a law with it has no constant.
type SizeLaw struct {
	Constant, Growth, Square float64
}

// At is what the law says for a quantity, in bytes.
func (l SizeLaw) At(x float64) float64 { return l.Constant + (l.Growth+l.Square*x)*x }

// Near says whether the law gives these bytes for a quantity, but for roundings.
func (l SizeLaw) Near(x, bytes float64) bool {
	return math.Abs(l.At(x)-bytes) <= max(1, nearLaw*bytes)
}

// nearLaw is the share by which sizes may lie off a law: roundings of small sizes.
const nearLaw = 1e-3

// Quantity is what sizes follow, from one iteration to the next: the slots whose sizes have
// the same ratios in all iterations follow one quantity, which is counted in bytes of the
// largest of them.
type Quantity struct {
	Slot  int     // the largest
	Bytes float64 // of all its slots in the first iteration
}

// Quantities are those of slots, of which each has its size in every iteration, 0 in one that
// lacks it. Only slots of all iterations whose sizes change show any. The one with the most
// bytes comes first.
func Quantities(sizes [][]float64) []Quantity {
	groups := map[string]*Quantity{}
	for i, s := range sizes {
		key, ok := ratios(s)
		if !ok {
			continue
		}
		q := groups[key]
		if q == nil {
			q = &Quantity{Slot: i}
			groups[key] = q
		}
		q.Bytes += s[0]
		if s[0] > sizes[q.Slot][0] {
			q.Slot = i
		}
	}
	out := make([]Quantity, 0, len(groups))
	for _, q := range groups {
		out = append(out, *q)
	}
	slices.SortFunc(out, func(a, b Quantity) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Slot, b.Slot))
	})
	return out
}

// ratios is a text that slots of the same quantity have in common. ok is false for a slot
// that some iteration lacks, or whose size never changes.
func ratios(s []float64) (key string, ok bool) {
	var b strings.Builder
	for _, n := range s {
		if n == 0 {
			return "", false
		}
		ok = ok || n != s[0]
		b.WriteString(strconv.Itoa(int(math.Round(math.Log(n/s[0])/nearLaw))) + " ")
	}
	return b.String(), ok
}

// LawOver is the law of a slot with these sizes, 0 in an iteration that lacks it, in one of
// the quantities, each with its values in the iterations. The first quantity that it is in
// proportion to is taken, else the first that a straight line fits, and else the first that
// a parabola through 0 fits. If a quantity had only two values, and the size grows faster
// than in proportion, line and parabola are both possible; then it is the parabola, which
// grows faster. ok is false if there is none.
func LawOver(s []float64, quantities [][]float64) (law SizeLaw, of int, ok bool) {
	for _, shape := range []func(points) (SizeLaw, bool){points.ray, points.line, points.bow} {
		for of, x := range quantities {
			p := pointsOf(s, x)
			if p.distinct < 2 {
				continue
			}
			if law, ok := shape(p); ok && p.fit(law) {
				return law, of, true
			}
		}
	}
	return SizeLaw{}, 0, false
}

// Distinct is the number of different values of a quantity, counted up to 3. Three show what
// law sizes follow; two are on a line with any sizes.
func Distinct(values []float64) int {
	var seen []float64
	for _, x := range values {
		if len(seen) < 3 && !slices.Contains(seen, x) {
			seen = append(seen, x)
		}
	}
	return len(seen)
}

// points are the sizes of a slot over a quantity, with those at its least and its largest.
type points struct {
	x, s      []float64
	low, high int
	distinct  int // values of the quantity (Distinct)
}

func pointsOf(s, x []float64) points {
	p := points{low: -1, high: -1}
	for k := range s {
		if s[k] == 0 {
			continue
		}
		p.x, p.s = append(p.x, x[k]), append(p.s, s[k])
		if n := len(p.x) - 1; p.low < 0 || x[k] < p.x[p.low] {
			p.low = n
		}
		if n := len(p.x) - 1; p.high < 0 || x[k] > p.x[p.high] {
			p.high = n
		}
	}
	p.distinct = Distinct(p.x)
	return p
}

// fit says whether a law gives all the sizes.
func (p points) fit(law SizeLaw) bool {
	for k := range p.s {
		if !law.Near(p.x[k], p.s[k]) {
			return false
		}
	}
	return true
}

// faster says that sizes grow faster than in proportion.
func (p points) faster() bool {
	return p.s[p.high]*p.x[p.low] > p.s[p.low]*p.x[p.high]*(1+nearLaw)
}

// ray is the straight line through 0 and the outer point.
func (p points) ray() (SizeLaw, bool) {
	return SizeLaw{Growth: p.s[p.high] / p.x[p.high]}, true
}

// line is the straight line through the outer points.
func (p points) line() (SizeLaw, bool) {
	growth := (p.s[p.high] - p.s[p.low]) / (p.x[p.high] - p.x[p.low])
	law := SizeLaw{Constant: p.s[p.low] - growth*p.x[p.low], Growth: growth}
	return law, growth >= 0 && (p.distinct > 2 || !p.faster())
}

// bow is the parabola through 0 and the outer points.
func (p points) bow() (SizeLaw, bool) {
	low, high := p.s[p.low]/p.x[p.low], p.s[p.high]/p.x[p.high]
	square := (high - low) / (p.x[p.high] - p.x[p.low])
	law := SizeLaw{Growth: low - square*p.x[p.low], Square: square}
	return law, p.faster() && law.Growth >= -nearLaw*low
}
