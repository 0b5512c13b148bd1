package trace

import (
	"fmt"
	"slices"
)

// initial sets a device's state before its first entry, and notes what a reader of
// results should know about it.
func (b *builder) initial(d *Device, p *past, base *Trace) (err error) {
	var guessed int
	if base == nil {
		d.Initial, guessed = inferInitial(d, p, &b.trace.Settings)
		b.noteInitial(d, guessed)
	} else {
		d.Initial, guessed, err = b.fromBase(d, p, base)
	}
	d.InitialInferred = guessed > 0
	return err
}

// fromBase takes a device's initial state from a base snapshot. If the snapshot was
// taken after some entries of this recording, these are undone.
func (b *builder) fromBase(d *Device, p *past, base *Trace) (initial []Segment, guessed int, err error) {
	i := slices.IndexFunc(base.Devices, func(o Device) bool { return o.Ordinal == d.Ordinal })
	if i >= 0 {
		then := &base.Devices[i]
		initial = then.Final
		if beginsWith(d.Events, then.Events) {
			initial, guessed = inferInitial(then, pastOf(then.Events), &base.Settings)
		}
	}
	initial = b.adopt(initial, &base.Stacks)
	c := newBaseCheck(d, p, initial)
	if where, problem := c.run(); problem != "" {
		return nil, 0, b.fail(where, "", "%s: the base snapshot %s is not of this recording, or was not taken at its beginning", problem, base.Name)
	}
	return initial, guessed, nil
}

// beginsWith reports whether events begin with start. It compares what the allocator
// did and when, but not stacks and strings, whose indices differ between traces.
func beginsWith(events, start []Event) bool {
	if len(start) > len(events) {
		return false
	}
	return slices.EqualFunc(events[:len(start)], start, func(a, b Event) bool {
		return a.Action == b.Action && a.Addr == b.Addr && a.Size == b.Size && a.Stream == b.Stream && a.TimeUS == b.TimeUS
	})
}

// adopt copies segments of another trace, and adds their stacks to the table of this
// one.
func (b *builder) adopt(segments []Segment, stacks *Stacks) []Segment {
	mine := map[int32]int32{None: None}
	segments = slices.Clone(segments)
	for i := range segments {
		s := &segments[i]
		s.Blocks = slices.Clone(s.Blocks)
		for k := range s.Blocks {
			theirs := s.Blocks[k].Stack
			if _, ok := mine[theirs]; !ok {
				mine[theirs] = b.stacks.copyOf(stacks, theirs)
			}
			s.Blocks[k].Stack = mine[theirs]
		}
	}
	return segments
}

func (b *builder) noteInitial(d *Device, guessed int) {
	if len(d.Initial) == 0 {
		return
	}
	var reserved, held Bytes
	var blocks int
	for i := range d.Initial {
		reserved += d.Initial[i].Size
		for _, block := range d.Initial[i].Blocks {
			if block.State != BlockInactive {
				blocks++
				held += block.Size
			}
		}
	}
	note := fmt.Sprintf("device %d: when recording began, %s were allocated already (blocks: %d) and %s reserved",
		d.Ordinal, inMiB(held), blocks, inMiB(reserved))
	if guessed == 0 {
		b.say("%s; they are all still there at its end", note)
		return
	}
	b.say("%s; this state is inferred, and blocks that were freed later may be up to 1 MiB larger than assumed. "+
		"To know it exactly, take a snapshot right after recording begins and give it as --base", note)
}

func inMiB(n Bytes) string { return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20)) }
