package trace

import (
	"slices"
	"testing"
)

// TestFailures: a recording ends in an out-of-memory if nothing is allocated after the
// last one, whatever is freed.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name    string
		actions []Action
		at      []Time
		fatal   Time
	}{
		{"none", []Action{ActionSegmentAlloc, ActionAlloc, ActionFreeRequested}, nil, -1},
		{"the last entry", []Action{ActionAlloc, ActionOOM}, []Time{1}, 1},
		{"frees follow", []Action{ActionAlloc, ActionOOM, ActionFreeRequested, ActionFreeCompleted, ActionSegmentFree, ActionSnapshot}, []Time{1}, 1},
		{"survived", []Action{ActionOOM, ActionAlloc}, []Time{0}, -1},
		{"survived once", []Action{ActionOOM, ActionAlloc, ActionOOM}, []Time{0, 2}, 2},
		{"twice in a row", []Action{ActionAlloc, ActionOOM, ActionOOM, ActionFreeRequested}, []Time{1, 2}, 2},
	} {
		d := Device{}
		for _, a := range c.actions {
			d.Events = append(d.Events, Event{Action: a})
		}
		f := d.Failures()
		last := Time(-1)
		if len(c.at) > 0 {
			last = c.at[len(c.at)-1]
		}
		if !slices.Equal(f.At, c.at) || f.FatalAt() != c.fatal || f.Fatal != (c.fatal >= 0) || f.Last() != last {
			t.Errorf("%s: %+v, last %d, fatal at %d; expected %v and %d", c.name, f, f.Last(), f.FatalAt(), c.at, c.fatal)
		}
	}
}
