package page

import (
	"maps"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/export"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// TestFirstFitInSharedPlaces: each buffer lies in the first gap that is large enough when it
// is allocated, and in none if there is no such gap.
func TestFirstFitInSharedPlaces(t *testing.T) {
	plan := &planfile.Device{End: planfile.EndCompleted, Slots: []planfile.Slot{
		{Offset: 4096, Size: 2048, Cell: planfile.NoCell},
		{Offset: 4096, Size: 2048, Cell: 0, Flags: planfile.SlotShares},
		{Offset: 0, Size: 512, Cell: planfile.NoCell},
	}}
	buffer := func(start, end trace.Time, size trace.Bytes) lifespan.Buffer {
		return lifespan.Buffer{Start: start, RequestedEnd: start + 1, CompletedEnd: end, Size: size}
	}
	tl := &lifespan.Timeline{Buffers: []lifespan.Buffer{
		buffer(0, 9, 512),   // of slot 2, which is alone
		buffer(1, 4, 512),   // at the start of the place
		buffer(2, 9, 1024),  // behind it
		buffer(4, 9, 1024),  // the gap of 512 B at the start is too small, the rest as well
		buffer(5, 7, 512),   // the gap at the start
		buffer(6, 9, 512),   // what is left
		buffer(7, 9, 512),   // the gap at the start again
		buffer(9, 10, 2048), // all of it
		buffer(10, 11, 512), // of no slot
	}}
	got := inShared(plan, tl, []int32{2, 0, 1, 1, 0, 1, 0, 1, -1})
	want := map[int]uint64{1: 4096, 2: 4608, 4: 4096, 5: 5632, 6: 4096, 7: 4096}
	if !maps.Equal(got, want) {
		t.Errorf("addresses %v, expected %v", got, want)
	}
}

// TestPictureOfSharedPlaces: what shares a place is drawn in it, without overlaps. What
// does not fit there is counted as off the plan.
func TestPictureOfSharedPlaces(t *testing.T) {
	in, before := example(t, "resnet50", planfile.ModePeriodic)
	d := in.Plan
	body := &d.Phases[1]
	holder := -1
	var members []int
	all := uint64(0)
	for i := int(body.FirstSlot); i < int(body.FirstSlot+body.SlotCount) && len(members) < 40; i++ {
		s := &d.Slots[i]
		if s.Flags != 0 {
			continue
		}
		if members, all = append(members, i), all+s.Size; holder < 0 {
			holder = i
			continue
		}
		s.Flags, s.Cell = planfile.SlotShares, uint32(holder)
	}
	arena := d.ArenaBytes
	slots := export.Slots(d, in.Recording.Timeline)
	for _, size := range []uint64{all, d.Slots[holder].Size} {
		d.ArenaBytes = arena + size
		for _, i := range members {
			d.Slots[i].Offset, d.Slots[i].Size = arena, size
		}
		after, err := Build(in)
		if err != nil {
			t.Fatal(err)
		}
		var drawn []rect
		inPlace := 0
		for i, a := range after.buffers.place {
			if a == nowhere {
				continue
			}
			drawn = append(drawn, rect{after.buffers.start[i], after.buffers.freed[i], a, a + after.buffers.units[i]})
			if k := slots[i]; slices.Contains(members, int(k)) {
				if inPlace++; uint64(a) < arena/512 || uint64(a)+uint64(after.buffers.units[i]) > (arena+size)/512 {
					t.Fatalf("a place of %d B: slot %d is drawn at %d, outside of its place", size, k, a)
				}
			}
		}
		demandApart(t, "shared", drawn)
		if fits := after.Counts.OffPlan == before.Counts.OffPlan; fits != (size == all) || inPlace == 0 {
			t.Errorf("a place of %d B: %d buffers in it, %d off the plan, %d before", size, inPlace, after.Counts.OffPlan, before.Counts.OffPlan)
		}
	}
}
