package lifespan

import (
	"slices"

	"github.com/stplan/stplan/internal/splitmix"
)

// script is the rough alignment of two sequences that the exact one follows: the
// stretches that both have, in order. It is made in layers, each of which fills the gaps
// that the layer before it left.
type script struct {
	a, b    []token
	layers  []layer
	matches []match
}

// layer is a pass of fill: the hash that tokens are compared by, and whether only hashes
// that both sides have equally often take part.
type layer struct {
	hash         func(*token) uint64
	equallyOften bool
}

var (
	// byClass matches all by class.
	byClass = []layer{{weakOf, false}}
	// inRounds first matches what both sides have equally often in the same context. If
	// one has more rounds of a loop than the other, such as tokens of a generation, what is
	// in the loop does not take part, and what is before and behind it does. A shortest edit
	// script would be given up after minEdits, far from the end of what only one side has.
	inRounds = []layer{{func(t *token) uint64 { return t.context }, true}, {weakOf, false}}
	// bySize matches those that both have equally often, by size and lifetime class, then
	// those of a class that both have equally often, whatever their size, and then all, by
	// class. What data decides, such as the work of an expert, hardly ever occurs equally
	// often, but what surrounds it does.
	bySize = []layer{{func(t *token) uint64 { return t.strong }, true}, {weakOf, true}, {weakOf, false}}
	// byRatio is bySize without the sizes. If data decide these, equal ones are not those of the same expert.
	byRatio = bySize[1:]
)

func weakOf(t *token) uint64 { return t.weak }

// newScript finds the script of a and b. If data decides only sizes, equal sizes recur by
// chance in other places and would mislead bySize. So a script by class alone is taken if it
// finds nearly everything, and one of the given layers if not. inRounds is for what differs by as much as an episode in one place.
func newScript(a, b []token, layers []layer) []match {
	script := makeScript(a, b, byClass)
	if all := float64(min(len(a), len(b))); script.solid() < all {
		if rounds := makeScript(inContext(a), inContext(b), inRounds); rounds.solid() > script.solid() && rounds.widest().size() > episode(min(len(a), len(b))) {
			script = rounds
		}
		if script.solid() < agreement*all {
			script = makeScript(a, b, layers)
		}
	}
	return script.matches
}

func makeScript(a, b []token, layers []layer) *script {
	s := &script{a: a, b: b, layers: layers}
	s.fill(0, len(a), 0, len(b), 0)
	return s
}

// inContext is a copy of tokens that have the hash of the gram of classes that begins at
// each. At the end, where none begins, it is the hash of all classes that are left, and of their
// number.
func inContext(tokens []token) []token {
	out, weak := slices.Clone(tokens), hashes(tokens, weakOf)
	var left uint64
	for i := len(out) - 1; i > len(out)-maxGram && i >= 0; i-- {
		left = splitmix.Mix(left + weak[i])
		out[i].context = splitmix.Mix(left ^ uint64(len(out)-i))
	}
	if len(out) >= maxGram {
		for i, h := range rolling(weak, maxGram) {
			out[i].context = h
		}
	}
	return out
}

// agreement is the share of the shorter sequence that a script by class alone has to
// match in long stretches to be taken. If only sizes depend on data, nearly everything is
// matched; with experts that get no tokens, less is. A share of 0, so never any layers,
// makes the envelope of qwen3-moe-eager cost 1.36 instead of 1.11.
const agreement = 15. / 16

// solid is the number of allocations matched in stretches of maxGram or more, which are
// too long to recur by chance.
func (s *script) solid() float64 {
	n := 0
	for _, m := range s.matches {
		if m.n >= maxGram {
			n += m.n
		}
	}
	return float64(n)
}

// fill matches a[i0:i1] with b[j0:j1], with the given layer and the ones after it.
func (s *script) fill(i0, i1, j0, j1, layer int) {
	if i0 == i1 || j0 == j1 || layer == len(s.layers) {
		return
	}
	l := s.layers[layer]
	x, y := hashes(s.a[i0:i1], l.hash), hashes(s.b[j0:j1], l.hash)
	at, bt := positions(len(x)), positions(len(y))
	if l.equallyOften {
		at, bt = equallyOften(x, y)
	}
	i, j := i0, j0
	for _, m := range diff(pick(x, at), pick(y, bt)) {
		for k := range m.n {
			p, q := i0+int(at[m.i+k]), j0+int(bt[m.j+k])
			s.fill(i, p, j, q, layer+1)
			s.matches = add(s.matches, p, q, 1)
			i, j = p+1, q+1
		}
	}
	s.fill(i, i1, j, j1, layer+1)
}

func hashes(tokens []token, hash func(*token) uint64) []uint64 {
	out := make([]uint64, len(tokens))
	for i := range tokens {
		out[i] = hash(&tokens[i])
	}
	return out
}

func positions(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

func pick(values []uint64, at []int32) []uint64 {
	out := make([]uint64, len(at))
	for i, k := range at {
		out[i] = values[k]
	}
	return out
}

// equallyOften returns the positions in x and y of the values that both have equally
// often.
func equallyOften(x, y []uint64) (at, bt []int32) {
	surplus := make(map[uint64]int32, len(x))
	for _, v := range x {
		surplus[v]++
	}
	for _, v := range y {
		surplus[v]--
	}
	for i, v := range x {
		if surplus[v] == 0 {
			at = append(at, int32(i))
		}
	}
	for i, v := range y {
		if surplus[v] == 0 {
			bt = append(bt, int32(i))
		}
	}
	return at, bt
}
