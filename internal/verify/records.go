package verify

import "github.com/stplan/stplan/internal/planfile"

// largest is the largest size in bytes, and the largest time, that a plan may have: no
// sum of two of them overflows.
const largest = 1 << 62

// records checks the device's own figures, and each slot and each wait by itself. It
// returns whether all are right. If not, nothing else can be judged.
func (j *judge) records() bool {
	before := j.found
	j.device()
	if j.found > before || !j.divide() {
		return false
	}
	for p := range j.stages {
		st := &j.stages[p]
		for i := st.first; i < st.end; i++ {
			if j.d.Mode == planfile.ModePeriodic {
				j.kindOf(st, i)
				j.timesIn(st, i)
			} else {
				j.times(i)
			}
			j.place(i)
			j.shares(st, i)
			if st.body {
				j.followsIn(st, i)
			} else {
				j.follows(i)
			}
		}
	}
	j.cells()
	j.passes()
	for i := range j.d.Waits {
		j.waitFollows(i)
	}
	if j.found > before {
		return false
	}
	j.keep()
	return true
}

// device checks the fields of the device record that slots are judged by.
func (j *judge) device() {
	d := j.d
	if d.Mode != planfile.ModeRecorded && d.Mode != planfile.ModePeriodic {
		j.violated(RuleDevices, none, none, "%s, expected recorded or periodic", d.Mode)
	}
	if d.End != planfile.EndRequested && d.End != planfile.EndCompleted {
		j.violated(RuleDevices, none, none, "%s, expected requested or completed", d.End)
	}
	if a := d.Alignment; a < unit || a&(a-1) != 0 {
		j.violated(RuleAlignment, none, none, "alignment of %d B, expected a power of two, at least %d B", a, unit)
	} else if d.ArenaBytes%a != 0 {
		j.violated(RuleAlignment, none, none, "arena of %d B, expected a multiple of %d B", d.ArenaBytes, a)
	}
	if d.ArenaBytes > largest {
		j.violated(RuleBounds, none, none, "arena of %d B, expected at most 2^62", d.ArenaBytes)
	}
	if d.Events > largest {
		j.violated(RuleTimes, none, none, "%d events, expected at most 2^62", d.Events)
	}
	if d.SteadyStart > d.Events {
		j.violated(RuleTimes, none, none, "steady from event %d on, expected at most %d", d.SteadyStart, d.Events)
	}
}

// times checks the times of slot i of a recorded plan.
func (j *judge) times(i int) {
	s, events := &j.d.Slots[i], j.d.Events
	switch {
	case s.Start >= s.RequestedEnd:
		j.violated(RuleTimes, i, none, "slot %d: empty live range: starts at %d and is freed at %d", i, s.Start, s.RequestedEnd)
	case s.RequestedEnd > s.CompletedEnd:
		j.violated(RuleTimes, i, none, "slot %d: freed at %d, but reusable before that, at %d", i, s.RequestedEnd, s.CompletedEnd)
	case s.CompletedEnd > events:
		j.violated(RuleTimes, i, none, "slot %d: reusable at %d, after the last of %d events", i, s.CompletedEnd, events)
	case s.Flags&planfile.SlotInitial != 0 && s.Start != 0:
		j.violated(RuleTimes, i, none, "slot %d: live before the recording, but starts at %d", i, s.Start)
	case s.Flags&planfile.SlotResident != 0 && s.RequestedEnd != events:
		j.violated(RuleTimes, i, none, "slot %d: never freed, but ends at %d of %d events", i, s.RequestedEnd, events)
	}
}

// place checks the stream, offset and size of slot i.
func (j *judge) place(i int) {
	s, a := &j.d.Slots[i], j.d.Alignment
	if uint64(s.Stream) >= uint64(len(j.d.Streams)) {
		j.violated(RuleStream, i, none, "slot %d: stream %d of %d", i, s.Stream, len(j.d.Streams))
	}
	switch {
	case s.Flags&planfile.SlotStray != 0:
		if s.Offset != 0 || s.Size != 0 || s.Requested > largest {
			j.violated(RuleSize, i, none, "slot %d: a stray of %d B at offset %d for a request of %d B, expected one without a place", i, s.Size, s.Offset, s.Requested)
		}
	case s.Offset%a != 0:
		j.violated(RuleAlignment, i, none, "slot %d: offset %d, expected a multiple of %d", i, s.Offset, a)
	case s.Size%a != 0:
		j.violated(RuleAlignment, i, none, "slot %d: size %d B, expected a multiple of %d B", i, s.Size, a)
	case !inside(s.Offset, s.Size, j.d.ArenaBytes):
		j.violated(RuleBounds, i, none, "slot %d: %d B at offset %d, beyond the arena of %d B", i, s.Size, s.Offset, j.d.ArenaBytes)
	case s.Requested > largest || s.Size < needed(s.Requested):
		j.violated(RuleSize, i, none, "slot %d: %d B for a request of %d B", i, s.Size, s.Requested)
	}
}

// follows checks that slot i is in order: slots are by start. One event allocates one
// buffer, so only slots that were live before the recording may share a start.
func (j *judge) follows(i int) {
	if i == 0 {
		return
	}
	a, b := &j.d.Slots[i-1], &j.d.Slots[i]
	switch {
	case b.Start < a.Start:
		j.violated(RuleOrder, i-1, i, "slot %d starts at %d, slot %d before it at %d", i, b.Start, i-1, a.Start)
	case b.Start == a.Start && a.Flags&planfile.SlotInitial == 0:
		j.violated(RuleOrder, i-1, i, "slots %d and %d both start at event %d", i-1, i, b.Start)
	}
}

// waitFollows checks that wait i names two slots and is in order.
func (j *judge) waitFollows(i int) {
	w := j.d.Waits[i]
	seam := j.d.Mode == planfile.ModePeriodic && w.Kind&planfile.WaitSeam != 0
	if n := int64(len(j.d.Slots)); int64(w.Later) >= n || int64(w.Earlier) >= n || w.Earlier >= w.Later && !seam {
		j.violated(RuleOrder, none, none, "wait %d: slot %d waits for slot %d, expected a slot before it, and both below %d", i, w.Later, w.Earlier, len(j.d.Slots))
		return
	}
	if i > 0 && !ascend(j.d.Waits[i-1], w) {
		j.violated(RuleOrder, int(w.Earlier), int(w.Later), "wait %d: slots %d and %d, after slots %d and %d", i, w.Later, w.Earlier, j.d.Waits[i-1].Later, j.d.Waits[i-1].Earlier)
	}
}

func ascend(a, b planfile.Wait) bool {
	return a.Later < b.Later || a.Later == b.Later && a.Earlier < b.Earlier
}
