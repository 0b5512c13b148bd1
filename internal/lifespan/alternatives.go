package lifespan

import "slices"

const (
	// episodeShare is the share of the shorter pass that an episode has to exceed. The
	// longest run in the shared recordings that only logging or data decide is 1/20 of a
	// pass, and the evaluation is 0.64 of a step (docs/steady-state.md). At 1/32 a body
	// too many is found.
	episodeShare = 1. / 8
	// leastEpisode is the number of allocations that an episode has to exceed as well. In
	// a short program a few logged tensors are more than 1/8 of a pass.
	leastEpisode = 8
)

// alternatives returns the body of each pass. Two steps have the same body unless one of
// them has an episode that the other lacks: a long run of allocations with none of the
// other's in between. An evaluation is an episode. An expert without tokens, or an extra
// tensor, is too short; it makes optional slots, and so do more rounds of a loop that both
// have. An interlude has a body of its own.
func alternatives(r *rotation) []int {
	var leaders, bodies []int
	for j := range r.steps() {
		body := 0
		for body < len(leaders) && !r.alike(r.pass(leaders[body]), r.pass(j)) {
			body++
		}
		if body == len(leaders) {
			leaders = append(leaders, j)
		}
		bodies = append(bodies, body)
	}
	if r.interlude {
		bodies = append(bodies, len(leaders))
	}
	return bodies
}

// pass is the ranks of the allocations of pass j, in order.
func (r *rotation) pass(j int) []int32 {
	return r.rank[r.first[j]-r.first[0] : r.first[j+1]-r.first[0]]
}

// alike says whether neither of two passes has an episode that the other lacks.
func (r *rotation) alike(a, b []int32) bool {
	limit := episode(min(len(a), len(b)))
	return r.noEpisode(a, b, limit) && r.noEpisode(b, a, limit)
}

// episode is the limit that a run has to exceed to be an episode, by the length of the shortest pass.
func episode(shortest int) int { return max(leastEpisode, int(episodeShare*float64(shortest))) }

// noEpisode says whether each run of ranks that a has, with none of b's in between, has at
// most limit ranks besides more rounds of a loop.
func (r *rotation) noEpisode(a, b []int32, limit int) bool {
	var loops *looping // of a, made once it is asked
	whole := b
	for from := 0; from < len(a); {
		for len(b) > 0 && b[0] < a[from] {
			b = b[1:]
		}
		if len(b) > 0 && b[0] == a[from] {
			from++
			continue
		}
		to := from + 1
		for to < len(a) && (len(b) == 0 || a[to] < b[0]) {
			to++
		}
		if n := to - from; n > limit {
			if r.apart {
				return false
			}
			if loops == nil {
				loops = r.looping(a, whole)
			}
			if n-loops.rounds(from, to) > limit {
				return false
			}
			r.looped = true
			loops.share(from, to)
		}
		from = to
	}
	return true
}

const (
	// roundProbes is the number of grams, one behind the other, that are looked for before
	// and behind a run to find the period of a loop. The first may be one that the end of the
	// loop has changed.
	roundProbes = 4
	// roundPeriods is the number of periods that are tried for each gram. A round has
	// repetitions in itself, such as the 16 to 80 layers of a model, so the first periods
	// found are those of these.
	roundPeriods = 128
	// loopShare is the share of a round that two passes have, or that is more rounds of a loop already, if what repeats it is
	// more rounds of a loop. Of a batch of an evaluation 1/10 was taken for what a step does; of rounds of a made-up
	// generation, which are aligned with others here and there, it is between a quarter and a half.
	loopShare = 1. / 4
)

// looping is the allocations of a pass, in order and in reverse.
type looping struct {
	has               []bool // another pass has the allocation too, or it is of more rounds of a loop
	forward, backward direction
}

// direction is the hashes of the classes of allocations, and how many of the first n others have too.
type direction struct {
	classes []uint64
	shared  []int32
}

// looping looks for loops in a pass that another one has too.
func (r *rotation) looping(pass, other []int32) *looping {
	l := &looping{has: make([]bool, len(pass))}
	l.forward = direction{make([]uint64, len(pass)), make([]int32, len(pass)+1)}
	for i, rank := range pass {
		l.forward.classes[i] = r.weak[rank]
		_, l.has[i] = slices.BinarySearch(other, rank)
	}
	l.backward = direction{slices.Clone(l.forward.classes), make([]int32, len(pass)+1)}
	slices.Reverse(l.backward.classes)
	l.share(0, 0)
	return l
}

// share notes that the allocations [from, to) are more rounds of a loop.
func (l *looping) share(from, to int) {
	for i := from; i < to; i++ {
		l.has[i] = true
	}
	count := func(into []int32, at func(i int) bool) {
		for i := range l.has {
			into[i+1] = into[i]
			if at(i) {
				into[i+1]++
			}
		}
	}
	count(l.forward.shared, func(i int) bool { return l.has[i] })
	count(l.backward.shared, func(i int) bool { return l.has[len(l.has)-1-i] })
}

// rounds is how many of the allocations [from, to) of a pass, at their beginning or at their
// end, are more rounds of a loop that goes on before or behind them, such as the tokens of a
// longer generation, or more micro-batches: they repeat, with some period, what is there.
func (l *looping) rounds(from, to int) int {
	length := len(l.forward.classes)
	n, _ := repeated(l.forward.classes, l.forward.shared, from, to)
	back, _ := repeated(l.backward.classes, l.backward.shared, length-to, length-from)
	return max(n, back)
}

// repeated is how much of v[from:to] repeats what is before it, and with which period. The first
// round has to, since an evaluation of many batches repeats itself too. With shared, which counts what another pass has
// too of the first elements of v, so has loopShare of the round before: a few allocations in the midst of an evaluation may be
// taken for those of a step, and what is behind them repeats the evaluation's own batches.
func repeated(v []uint64, shared []int32, from, to int) (most, with int) {
	for at := from; at < from+roundProbes*maxGram && at+maxGram <= to; at += maxGram {
		tried := 0
		for period := 1; period <= min(from, to-from) && tried < roundPeriods; period++ {
			if !slices.Equal(v[at:at+maxGram], v[at-period:at-period+maxGram]) {
				continue
			}
			tried++
			if asBefore(v[from-period:from+period], period) < period {
				continue
			}
			if shared != nil && float64(shared[from]-shared[from-period]) < loopShare*float64(period) {
				continue
			}
			if n := asBefore(v[from-period:to], period); n > most {
				most, with = n, period
			}
			if most == to-from {
				return most, with
			}
		}
	}
	return most, with
}

// asBefore is how much of v[period:] has, in the share agreement, what is period places before it.
func asBefore(v []uint64, period int) int {
	n, unlike := 0, 0
	for i := period; i < len(v); i++ {
		if v[i] != v[i-period] {
			unlike++
		}
		if float64(unlike) <= (1-agreement)*float64(i+1-period) {
			n = i + 1 - period
		} else if float64(unlike) > (1-agreement)*float64(len(v)-period) {
			break
		}
	}
	return n
}

// dropFirst makes the first pass part of the prologue if it cannot be one of the passes:
// if it is the only one of its body, since nothing shows then what the body does with the
// state that another pass leaves; and if the recording begins with it, since there is no
// prologue then that what lived before could be in. It repeats that with the next pass,
// and renumbers the bodies. why is not empty if fewer than leastPasses steps are left.
func dropFirst(tl *Timeline, r *rotation, bodies []int) (left []int, why string) {
	why = "no two steady passes have the same body"
	for r.steps() > 1 && (only(bodies, bodies[0]) || tl.eventOf(r.first[0]) == 0) {
		if tl.eventOf(r.first[0]) == 0 {
			why = "the recording begins with a steady pass, and fewer than two follow"
		}
		r.rank = r.rank[r.first[1]-r.first[0]:]
		r.first, bodies = r.first[1:], bodies[1:]
	}
	if r.steps() < leastPasses {
		return nil, why
	}
	numbers := map[int]int{}
	for i, b := range bodies {
		if _, ok := numbers[b]; !ok {
			numbers[b] = len(numbers)
		}
		bodies[i] = numbers[b]
	}
	return bodies, ""
}

// only says whether no body but the first is equal to body.
func only(bodies []int, body int) bool {
	for _, b := range bodies[1:] {
		if b == body {
			return false
		}
	}
	return true
}
