package lifespan

import "slices"

// roundAligner aligns sequences one of which runs a loop more often, such as for the tokens of a longer
// generation. Which of the rounds the other one lacks is open, as they are alike: it is the ones behind a
// multiple of `every` rounds that both have, so that those behind them are the last ones of both. What is
// live there has to live until these, for each place at which an iteration lacks rounds. So few places
// cost little. If there are several such loops, the others follow once the widest is done.
type roundAligner struct {
	align   aligner // for all else
	every   int
	longest int // the most rounds before those that one side lacks, so far
}

// mostLoops bounds the loops that two sequences are aligned by, as a script is made for each: a
// generation, micro-batches, an evaluation, and one more.
const mostLoops = 4

// rounds is an aligner.
func (r *roundAligner) rounds(a, b []token) []int32 { return r.alignLoops(a, b, mostLoops) }

func (r *roundAligner) alignLoops(a, b []token, loops int) []int32 {
	if loops == 0 {
		return r.align(a, b)
	}
	g := makeScript(inContext(a), inContext(b), inRounds).widest()
	period := g.period()
	if period == 0 {
		return r.align(a, b)
	}
	rounds := g.rounds(period)
	r.longest = max(r.longest, rounds)
	cut := g.from - rounds%r.every*period
	more := min(g.size()+period/2, len(g.of)-cut) / period * period
	if more == 0 {
		return r.align(a, b)
	}
	rest := slices.Concat(g.of[:cut], g.of[cut+more:])
	if g.inA {
		out := r.alignLoops(rest, b, loops-1)
		for j, at := range out {
			if int(at) >= cut {
				out[j] += int32(more)
			}
		}
		return out
	}
	out := r.alignLoops(a, rest, loops-1)
	return slices.Concat(out[:cut], slices.Repeat([]int32{-1}, more), out[cut:])
}

// gap is the stretch [from, to) of a sequence that another one lacks, between two stretches that both
// have, before the first or behind the last.
type gap struct {
	of       []token
	from, to int
	inA      bool // of is the first of the two sequences
}

func (g gap) size() int { return g.to - g.from }

// widest is the stretch by which one side has the most allocations more than the other.
func (s *script) widest() gap {
	var most gap
	i, j := 0, 0
	for _, m := range append(slices.Clone(s.matches), match{len(s.a), len(s.b), 0}) {
		more := (m.i - i) - (m.j - j)
		if more > most.size() {
			most = gap{s.a, i, i + more, true}
		} else if -more > most.size() {
			most = gap{s.b, j, j - more, false}
		}
		i, j = m.i+m.n, m.j+m.n
	}
	return most
}

// period is the number of allocations of a round if the gap is more rounds of a loop that goes on
// before it. Otherwise it is 0.
func (g gap) period() int {
	n, period := repeated(hashes(g.of, weakOf), nil, g.from, g.to)
	if float64(n) < agreement*float64(g.size()) {
		return 0
	}
	return period
}

// rounds is the number of rounds right before the gap that are like the one before each of them.
func (g gap) rounds(period int) int {
	weak, n := hashes(g.of[:g.from], weakOf), 0
	for to := g.from; to >= 2*period && asBefore(weak[to-2*period:to], period) == period; to -= period {
		n++
	}
	return n
}
