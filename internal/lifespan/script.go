package lifespan

// script is the rough alignment of two sequences that the exact one follows: the
// stretches that both have, in order. It is made in layers, each of which fills the gaps
// that the layer before it left. The first layer matches allocations that both sides have
// equally often, by size and lifetime class. What data decides, such as the work of an
// expert, hardly ever occurs equally often, but what surrounds it does. The second layer
// matches those of the same class that both have equally often, whatever their size. The
// third matches all, by class.
type script struct {
	a, b    []token
	matches []match
}

// newScript finds the script of a and b. If data decides only sizes, equal sizes recur by
// chance in other places and would mislead the first layer. So the script by class alone
// is taken if it finds nearly everything, and the layers are made only if it does not.
func newScript(a, b []token) []match {
	plain := &script{a: a, b: b}
	plain.fill(0, len(a), 0, len(b), len(layers)-1)
	if plain.solid() >= agreement*float64(min(len(a), len(b))) {
		return plain.matches
	}
	layered := &script{a: a, b: b}
	layered.fill(0, len(a), 0, len(b), 0)
	return layered.matches
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

// layers are the passes of fill: the hash that tokens are compared by, and whether only
// hashes that both sides have equally often take part.
var layers = []struct {
	hash         func(*token) uint64
	equallyOften bool
}{
	{func(t *token) uint64 { return t.strong }, true},
	{func(t *token) uint64 { return t.weak }, true},
	{func(t *token) uint64 { return t.weak }, false},
}

// fill matches a[i0:i1] with b[j0:j1], with the given layer and the ones after it.
func (s *script) fill(i0, i1, j0, j1, layer int) {
	if i0 == i1 || j0 == j1 || layer == len(layers) {
		return
	}
	l := layers[layer]
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
