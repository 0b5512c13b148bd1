package trace

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/stplan/stplan/internal/trace/pickle"
)

// say adds a note to the trace.
func (b *builder) say(format string, args ...any) {
	b.trace.Notes = append(b.trace.Notes, fmt.Sprintf(format, args...))
}

const moreEntries = "record with a larger max_entries, which is unlimited by default"

// noteTruncation notes that torch's ring buffer, which keeps the newest entries, was
// full. From torch 2.12 on the snapshot says so. Before, the sign is a round number of
// entries of which some free blocks that no entry allocates.
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

// roundCount reports whether n looks like a limit that a person chose: a multiple of 1000,
// or a power of two from 1024 on.
func roundCount(n int) bool {
	return n >= 1000 && (n%1000 == 0 || bits.OnesCount(uint(n)) == 1)
}

// overflowed looks for the flag of torch 2.12. It may be at the top or in the settings,
// and be one flag for all devices or a list with one for each.
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

// noteMissing notes actions that the recording should have and lacks (skip_actions), and
// unknown ones.
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
