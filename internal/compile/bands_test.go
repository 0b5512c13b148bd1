package compile

import (
	"math/rand/v2"
	"testing"

	"github.com/stplan/stplan/internal/packing"
	"github.com/stplan/stplan/internal/planfile"
)

// scattered is a draft of three phases whose slots lie anywhere: bands do not depend on when slots live.
func scattered(rng *rand.Rand) *draft {
	d := &draft{}
	flags := []planfile.SlotFlags{0, 0, 0, planfile.SlotResident, planfile.SlotLeaving, planfile.SlotEntering}
	for range 3 {
		first := len(d.slots)
		for range rng.IntN(12) {
			s := slot{offset: alignment * packing.Bytes(rng.IntN(60)), size: alignment * packing.Bytes(rng.IntN(6)), cell: noCell}
			s.flags = flags[rng.IntN(len(flags))]
			d.slots = append(d.slots, s)
		}
		d.phases = append(d.phases, phase{first: first, count: len(d.slots) - first})
	}
	return d
}

// shared is the bytes that two slots have in common.
func shared(a, b *slot) packing.Bytes {
	return max(0, min(a.offset+a.size, b.offset+b.size)-max(a.offset, b.offset))
}

// TestSortedBands: whatever two slots have in common they have in common when the bands are in another order, so what
// did not overlap does not. Nothing ends higher, neither all nor what is kept, and a second time changes neither.
func TestSortedBands(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	lower := 0
	for range 2000 {
		before := scattered(rng)
		after := before.clone()
		after.sortBands()
		for i := range before.slots {
			if s := &after.slots[i]; s.size > 0 && (s.offset < 0 || s.offset%alignment != 0) {
				t.Fatalf("slot %d is at %d", i, s.offset)
			}
			for j := range i {
				if was, is := shared(&before.slots[i], &before.slots[j]), shared(&after.slots[i], &after.slots[j]); was != is {
					t.Fatalf("slots %d and %d shared %d B, and share %d B", i, j, was, is)
				}
			}
		}
		if after.top() > before.top() || after.keptTop() > before.keptTop() {
			t.Fatalf("ends at %d of %d, and what is kept at %d of %d", after.top(), before.top(), after.keptTop(), before.keptTop())
		}
		if after.keptTop() < before.keptTop() {
			lower++
		}
		again := after.clone()
		again.sortBands()
		if again.top() != after.top() || again.keptTop() != after.keptTop() {
			t.Fatalf("the second time it ends at %d, not %d, and what is kept at %d, not %d", again.top(), after.top(), again.keptTop(), after.keptTop())
		}
	}
	if lower == 0 {
		t.Error("nothing that is kept lies lower than before")
	}
}
