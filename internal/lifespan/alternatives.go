package lifespan

// A run of allocations makes an alternative if it is longer than episodeShare of
// the pass, which no layer is and an evaluation that matters is, and than
// leastEpisode, which what is logged in short programs is not.
const (
	episodeShare = 1. / 8
	leastEpisode = 8
)

// alternatives tells bodies apart: it returns the body of each pass. An
// interlude has its own. Two steps are of one body unless one of them has an episode that the other lacks:
// a long run of allocations with not one of the other's in between. An
// evaluation is one; an expert without tokens or an extra tensor is not, and
// makes optional slots.
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

// pass is the ranks of a pass's allocations, in order.
func (r *rotation) pass(j int) []int32 {
	return r.rank[r.first[j]-r.first[0] : r.first[j+1]-r.first[0]]
}

func alike(a, b []int32) bool {
	limit := max(leastEpisode, int(episodeShare*float64(min(len(a), len(b)))))
	return longestRun(a, b) <= limit
}

// longestRun is the longest run of ranks that only one of the two has.
func longestRun(a, b []int32) int {
	longest, run := 0, 0
	inA := false // the side that has the run
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

// dropLonely makes the first pass part of the prologue where it is the only
// one of its body: nothing shows then what the body does with the state that
// another pass leaves. It renumbers the bodies.
func dropLonely(r *rotation, bodies []int) ([]int, string) {
	for r.steps() > 1 && only(bodies, bodies[0]) {
		r.rank = r.rank[r.first[1]-r.first[0]:]
		r.first, bodies = r.first[1:], bodies[1:]
	}
	if r.steps() < leastPasses {
		return nil, "no two of the steady passes are of one body"
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

// only says whether just the first of bodies is body.
func only(bodies []int, body int) bool {
	for _, b := range bodies[1:] {
		if b == body {
			return false
		}
	}
	return true
}
