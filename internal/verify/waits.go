package verify

import (
	"strings"

	"github.com/stplan/stplan/internal/planfile"
)

// reuse is a slot whose bytes [from, to) another slot takes over. over says that the slot
// belongs to the phase before.
type reuse struct {
	earlier  int
	over     bool
	from, to uint64
}

// waits compares the reuses of slot i with the waits that are listed for it. Both are by
// earlier slot.
func (j *judge) waits(i int, reused []reuse, listed []planfile.Wait) {
	for len(reused) > 0 || len(listed) > 0 {
		switch {
		case len(listed) == 0 || len(reused) > 0 && reused[0].earlier < int(listed[0].Earlier):
			r := reused[0]
			if kind := j.kind(r, i); kind != 0 {
				j.violated(RuleWait, r.earlier, i, "%s takes over bytes [%d, %d) of %s without a wait, expected one that is %s",
					j.slot(i), r.from, r.to, j.slot(r.earlier), kinds(kind))
			}
			reused = reused[1:]
		case len(reused) == 0 || int(listed[0].Earlier) < reused[0].earlier:
			e := int(listed[0].Earlier)
			j.violated(RuleWait, e, i, "%s waits for %s, but is not the next owner of any of its bytes", j.slot(i), j.slot(e))
			listed = listed[1:]
		default:
			if kind := j.kind(reused[0], i); kind != listed[0].Kind {
				e := reused[0].earlier
				j.violated(RuleWait, e, i, "the wait of %s for %s is %s, expected %s", j.slot(i), j.slot(e), kinds(listed[0].Kind), kinds(kind))
			}
			reused, listed = reused[1:], listed[1:]
		}
	}
}

// kind is the kind of wait that slot later needs for a reuse, 0 if the order of their
// stream is enough.
func (j *judge) kind(r reuse, later int) (kind planfile.WaitKind) {
	e, l := &j.d.Slots[r.earlier], &j.d.Slots[later]
	if j.d.Streams[e.Stream] != j.d.Streams[l.Stream] {
		kind |= planfile.WaitCrossStream
	}
	start := l.Start
	if r.over {
		start += j.stageOf(r.earlier).length
	}
	// With completed ends nothing is reused before its free completed.
	if j.keptCompleted[r.earlier] > start && j.d.End == planfile.EndRequested {
		kind |= planfile.WaitPending
	}
	if kind != 0 && r.over {
		kind |= planfile.WaitSeam
	}
	return kind
}

// kinds names a kind of wait in messages.
func kinds(k planfile.WaitKind) string {
	var names []string
	if k&planfile.WaitCrossStream != 0 {
		names = append(names, "cross-stream")
	}
	if k&planfile.WaitPending != 0 {
		names = append(names, "pending")
	}
	if len(names) == 0 {
		return "none"
	}
	text := strings.Join(names, " and ")
	if k&planfile.WaitSeam != 0 {
		text += " over the seam"
	}
	return text
}
