package export

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stplan/stplan/internal/compile"
	"github.com/stplan/stplan/internal/lifespan"
	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// TestOffsets: by the offsets of a plan, recorded or periodic, no two buffers that live
// at once overlap, all lie in the arena, and only what the plan has no place for has none.
func TestOffsets(t *testing.T) {
	for name, mode := range map[string]planfile.Mode{
		"lora-oom": planfile.ModeRecorded, "resnet50": planfile.ModePeriodic, "evaluation": planfile.ModePeriodic,
	} {
		tr, err := trace.ReadFile(filepath.Join("..", "..", "examples", name, name+".pickle.gz"), trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := compile.Compile(context.Background(), tr, compile.Options{Mode: mode, Producer: "test"})
		if err != nil {
			t.Fatal(err)
		}
		dev := &p.Devices[0]
		tl, err := lifespan.Build(&tr.Devices[0])
		if err != nil {
			t.Fatal(err)
		}
		offsets := Offsets(dev, tl)
		placed := 0
		for _, o := range offsets {
			if o >= 0 {
				placed++
			}
		}
		if len(offsets) != len(tl.Buffers) || placed < len(tl.Buffers)*9/10 {
			t.Errorf("%s: %d of %d buffers have a place", name, placed, len(tl.Buffers))
		}
		checkApart(t, name, tl, offsets, int64(dev.ArenaBytes))
	}
}

// checkApart sweeps over the events with the list of live ranges, by offset.
func checkApart(t *testing.T, name string, tl *lifespan.Timeline, offsets []int64, arena int64) {
	t.Helper()
	type change struct {
		at     trace.Time
		begins bool
		buffer int
	}
	var changes []change
	for i := range tl.Buffers {
		if offsets[i] >= 0 {
			b := &tl.Buffers[i]
			changes = append(changes, change{b.Start, true, i}, change{b.RequestedEnd, false, i})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		order := map[bool]int{false: 0, true: 1} // what ends makes room for what begins
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(order[a.begins], order[b.begins]))
	})
	var live []int // by offset
	for _, c := range changes {
		k, found := slices.BinarySearchFunc(live, offsets[c.buffer], func(i int, o int64) int { return cmp.Compare(offsets[i], o) })
		if !c.begins {
			live = slices.Delete(live, k, k+1)
			continue
		}
		end := func(i int) int64 { return offsets[i] + int64(tl.Buffers[i].Size) }
		if found || k > 0 && end(live[k-1]) > offsets[c.buffer] || k < len(live) && offsets[live[k]] < end(c.buffer) || end(c.buffer) > arena {
			t.Fatalf("%s: buffer %d of %d B at %d overlaps another, or leaves the arena of %d B", name, c.buffer, tl.Buffers[c.buffer].Size, offsets[c.buffer], arena)
		}
		live = slices.Insert(live, k, c.buffer)
	}
}

// TestOffsetsOfSharedPlaces: what shares a place, and its holder, have no offset.
func TestOffsetsOfSharedPlaces(t *testing.T) {
	dev := &planfile.Device{
		Mode: planfile.ModePeriodic, End: planfile.EndRequested,
		Slots: []planfile.Slot{
			{Offset: 512, Size: 1024, Cell: planfile.NoCell},
			{Offset: 512, Size: 1024, Flags: planfile.SlotShares, Cell: 0},
			{Offset: 2048, Size: 512, Cell: planfile.NoCell},
			{Flags: planfile.SlotStray, Cell: planfile.NoCell},
		},
		Phases: []planfile.Phase{{SlotCount: 3}, {FirstSlot: 3, SlotCount: 1, Length: 1}},
		Passes: []planfile.Pass{{Phase: 1, Present: []uint64{1}}},
	}
	tl := &lifespan.Timeline{Buffers: make([]lifespan.Buffer, 5)}
	if got, want := Offsets(dev, tl), []int64{-1, -1, 2048, -1, -1}; !slices.Equal(got, want) {
		t.Errorf("offsets %d, expected %d", got, want)
	}
}
