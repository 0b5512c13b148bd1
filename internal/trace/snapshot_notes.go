package trace

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/stplan/stplan/internal/trace/pickle"
)

func (b *builder) say(format string, args ...any) {
	b.trace.Notes = append(b.trace.Notes, fmt.Sprintf(format, args...))
}

const moreEntries = "record with a larger max_entries, which is unlimited by default"

// noteTruncation tells of a full ring buffer, which torch keeps the newest
// entries in. From 2.12 the snapshot says so; before, a round number of entries
// that begin in the middle of things gives it away.
func (b *builder) noteTruncation(d *dict, device *Device, p *past) {
	n := len(device.Events)
	switch {
	case b.overflowed(d, device.Ordinal):
		b.say("device %d: the oldest entries were overwritten, %d are left; %s", device.Ordinal, n, moreEntries)
	case len(p.frees) > 0 && roundCount(n):
		b.say("device %d: exactly %d entries, the first of which free what none of them allocated: "+
			"older ones were probably overwritten; %s", device.Ordinal, n, moreEntries)
	}
}

// roundCount tells the numbers that people choose as a limit.
func roundCount(n int) bool {
	return n >= 1000 && (n%1000 == 0 || bits.OnesCount(uint(n)) == 1)
}

// overflowed looks for the flag of torch 2.12, at the top or in the settings,
// for all devices or one by one.
func (b *builder) overflowed(d *dict, ordinal int) bool {
	settings, _ := b.store.Dict(d.get(keyAllocatorSettings))
	for _, items := range [][]pickle.Value{d.items, settings} {
		place := dict{b: b, items: items}
		flag := place.get(keyTraceAllocOverflowed)
		if list, ok := b.store.List(flag); ok && ordinal < len(list) {
			flag = list[ordinal]
		}
		if set, _ := b.store.Bool(flag); set {
			return true
		}
	}
	return false
}

// noteMissing tells of kinds of entries that a recording of this kind has, and
// this one has not (skip_actions).
func (b *builder) noteMissing(d *Device, based bool) {
	var count [ActionOOM + 1]int
	for i := range d.Events {
		count[d.Events[i].Action]++
	}
	segments := count[ActionSegmentAlloc] + count[ActionSegmentFree] + count[ActionSegmentMap] + count[ActionSegmentUnmap]
	missing := func(what, meaning string) {
		b.say("device %d: no %s entries among %d: %s", d.Ordinal, what, len(d.Events), meaning)
	}
	if count[ActionFreeRequested] > 0 && count[ActionFreeCompleted] == 0 {
		missing("free_completed", "they were skipped (skip_actions); memory counts as free from free_requested on")
	}
	if count[ActionFreeCompleted] > 0 && count[ActionFreeRequested] == 0 {
		missing("free_requested", "they were skipped (skip_actions); memory counts as held until free_completed")
	}
	if count[ActionAlloc] > 0 && segments == 0 && !based {
		missing("segment", "either all memory was reserved before recording began, or they were skipped (skip_actions)")
	}
	if n := count[ActionOther]; n > 0 {
		var names []string
		for _, number := range b.unknown {
			names = append(names, b.store.StringNumbered(number))
		}
		b.say("device %d: %d entries of unknown kinds are ignored (in this file: %.200s)", d.Ordinal, n, strings.Join(names, ", "))
	}
}
