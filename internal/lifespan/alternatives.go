package lifespan

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
// tensor, is too short; it makes optional slots. An interlude has a body of its own.
func alternatives(r *rotation) []int {
	var leaders, bodies []int
	for j := range r.steps() {
		body := 0
		for body < len(leaders) && !alike(r.pass(leaders[body]), r.pass(j)) {
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
func alike(a, b []int32) bool {
	limit := max(leastEpisode, int(episodeShare*float64(min(len(a), len(b)))))
	return longestRun(a, b) <= limit
}

// longestRun is the longest run of ranks that only one of the two has.
func longestRun(a, b []int32) int {
	longest, run := 0, 0
	inA := false // whether a is the side that has the run
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(a) > 0 && len(b) > 0 && a[0] == b[0]:
			run, a, b = 0, a[1:], b[1:]
			continue
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			if !inA {
				run, inA = 0, true
			}
			a = a[1:]
		default:
			if inA {
				run, inA = 0, false
			}
			b = b[1:]
		}
		run++
		longest = max(longest, run)
	}
	return longest
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
