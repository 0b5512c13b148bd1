package stalloc

import (
	"math/bits"

	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/trace"
)

// role is what STAlloc takes a request for that is large enough for its plan.
type role uint8

const (
	// roleStatic is served by the next line of the plan.
	roleStatic role = iota
	// roleDynamic is in a module with a hook, whose requests vary.
	roleDynamic
	// roleOther is in an iteration of another kind than the planned one, such as an
	// evaluation, or after the last whole one.
	roleOther
)

// hooks is what a recording does not show and STAlloc gets from hooks on modules: which
// requests vary from one iteration to the next, in size or in whether they are there, and
// which are in an iteration of another kind. STAlloc is taken to have hooks on exactly the
// modules in which something varies.
type hooks struct {
	body  *lifespan.Body
	roles []role     // by buffer
	slots []int32    // by buffer: the slot of its pass, -1 if it has none
	first trace.Time // at which the first iteration begins whose requests are known
}

// findHooks aligns the iterations of a recording. why says what it lacks.
func findHooks(tl *lifespan.Timeline, it lifespan.Iterations) (h *hooks, why string) {
	per, why := lifespan.FindPeriodic(tl, it, lifespan.EndRequested)
	if per == nil {
		return nil, why
	}
	h = &hooks{
		body: &per.Bodies[per.Passes[0].Body], first: per.Passes[0].First,
		roles: make([]role, len(tl.Buffers)), slots: make([]int32, len(tl.Buffers)),
	}
	for i := range h.slots {
		h.slots[i] = -1
	}
	next := 0 // the first buffer of the passes
	for next < len(tl.Buffers) && (tl.Buffers[next].Initial || tl.Buffers[next].Start < per.Cut) {
		next++
	}
	for k := range per.Passes {
		next = h.align(&per.Passes[k], next, per.Passes[k].Body == per.Passes[0].Body)
	}
	for ; next < len(tl.Buffers); next++ {
		h.roles[next] = roleOther
	}
	return h, ""
}

// align notes the slots and roles of a pass whose first buffer is from, and returns the one
// after it. planned says that the pass is of the kind of the planned one.
func (h *hooks) align(pass *lifespan.Pass, from int, planned bool) (next int) {
	next = from
	for w, word := range pass.Present {
		for ; word != 0; word &= word - 1 {
			slot := int32(64*w + bits.TrailingZeros64(word))
			switch {
			case !planned:
				h.roles[next] = roleOther
			case h.varies(slot):
				h.roles[next], h.slots[next] = roleDynamic, slot
			default:
				h.slots[next] = slot
			}
			next++
		}
	}
	return next
}

func (h *hooks) varies(slot int32) bool {
	s := &h.body.Slots[slot]
	return s.Occurrences < h.body.Occurrences || s.Least != s.Requested
}
