package peak

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/stplan/stplan/internal/trace"
)

// Group is what some live buffers have in common.
type Group[K comparable] struct {
	Key   K
	Bytes trace.Bytes
	Count int
	// Sure are the bytes whose category the recording shows.
	Sure trace.Bytes
	// In are the bytes by category.
	In [categories]trace.Bytes
	// Largest is the largest buffer.
	Largest trace.Bytes
	// Stack is that of the largest buffer, or trace.None.
	Stack int32
}

// Main is the category with the most bytes of the group.
func (g *Group[K]) Main() Category { return Category(slices.Index(g.In[:], slices.Max(g.In[:]))) }

// groupBy puts what was allocated into groups, the largest first, then by key.
func groupBy[K comparable](p *Peak, key func(*Live) K, order func(a, b K) int) []Group[K] {
	found := map[K]*Group[K]{}
	for i := range p.Live {
		l := &p.Live[i]
		if l.Pending {
			continue
		}
		k := key(l)
		g := found[k]
		if g == nil {
			g = &Group[K]{Key: k, Largest: l.Buffer.Size, Stack: l.Stack} // Live is by size
			found[k] = g
		}
		g.Bytes += l.Buffer.Size
		g.Count++
		g.In[l.Category] += l.Buffer.Size
		if l.Sure {
			g.Sure += l.Buffer.Size
		}
	}
	groups := make([]Group[K], 0, len(found))
	for g := range maps.Values(found) {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group[K]) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), order(a.Key, b.Key))
	})
	return groups
}

// ByCategory groups what was allocated by what it is for.
func (p *Peak) ByCategory() []Group[Category] {
	return groupBy(p, func(l *Live) Category { return l.Category }, cmp.Compare)
}

// ByRule groups what was allocated by why it has its category.
func (p *Peak) ByRule() []Group[Verdict] {
	return groupBy(p, func(l *Live) Verdict { return l.Verdict }, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.Rule, b.Rule))
	})
}

// ByPhase groups what was allocated by when that was.
func (p *Peak) ByPhase() []Group[Phase] {
	return groupBy(p, func(l *Live) Phase { return l.Phase }, func(a, b Phase) int {
		return cmp.Or(cmp.Compare(a.Iteration, b.Iteration), cmp.Compare(a.Part, b.Part))
	})
}

// ByLine groups what was allocated by line of code, and by the line of the user's own
// code that led there. Parameters and the optimizer's state have the user's line alone,
// if there is one: the lines of the modules that were built say little, and there are
// many.
func (r *Recording) ByLine(p *Peak) []Group[Line] {
	lines, owners := newCache(r.Line), newCache(r.owner)
	return groupBy(p, func(l *Live) Line {
		line := lines.of(l.Stack)
		switch {
		case l.Category == Parameters || l.Category == OptimizerState:
			if owner := owners.of(l.Stack); owner.File != "" {
				return owner
			}
		case line.File == "" && l.Twin != "":
			line.From = AsLargeAs + l.Twin
		}
		return line
	}, compareLines)
}

// AsLargeAs begins what is known of a line that no stack shows: a line that allocated
// as much.
const AsLargeAs = "the size of "

func compareLines(a, b Line) int {
	return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.From, b.From), cmp.Compare(a.File, b.File))
}

// ByModule groups what was allocated by the forward calls that led there, outermost
// first, joined by moduleJoin. Buffers without one have the empty key.
func (r *Recording) ByModule(p *Peak) []Group[string] {
	modules := newCache(func(stack int32) string { return strings.Join(r.Modules(stack), moduleJoin) })
	return groupBy(p, func(l *Live) string { return modules.of(l.Stack) }, cmp.Compare)
}

const moduleJoin = "\n"

// cache computes something of each stack once.
type cache[V any] struct {
	make func(stack int32) V
	got  map[int32]V
}

func newCache[V any](f func(stack int32) V) *cache[V] { return &cache[V]{f, map[int32]V{}} }

func (c *cache[V]) of(stack int32) V {
	v, ok := c.got[stack]
	if !ok {
		v = c.make(stack)
		c.got[stack] = v
	}
	return v
}
