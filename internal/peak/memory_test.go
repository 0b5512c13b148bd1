package peak

import (
	"testing"

	"github.com/stplan/stplan/internal/trace"
)

// TestFinalState: at the end of a recording, memory is as the allocator itself described
// it: its segments, and the free and held bytes of each.
func TestFinalState(t *testing.T) {
	compared := 0
	var surplus, all trace.Bytes
	for name, r := range recordings(t) {
		final := r.Device.Final
		if len(final) == 0 {
			continue
		}
		p, err := r.At(r.Timeline.Events - 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Memory.Segments) != len(final) {
			t.Errorf("%s: %d segments, the allocator had %d", name, len(p.Memory.Segments), len(final))
			continue
		}
		for i, s := range p.Memory.Segments {
			var free trace.Bytes
			held := 0
			for _, b := range final[i].Blocks {
				if b.State == trace.BlockInactive {
					free += b.Size
				} else {
					held++
				}
			}
			want := final[i]
			if s.Address != want.Address || s.Size != want.Size || s.Stream != want.Stream || s.Private != (want.Pool != trace.PoolID{}) ||
				s.Expandable != want.Expandable || len(s.Blocks) != held {
				t.Errorf("%s: segment %d: %+v, the allocator had %+v with %d blocks", name, i, s, want, held)
			}
			if held > 0 && s.Small != want.Small {
				t.Errorf("%s: segment %d: small %v, the allocator had %v", name, i, s.Small, want.Small)
			}
			// What the allocator left to a block, up to 1 MiB, shows only if another block
			// follows it: beside free memory it looks free.
			most := free
			if !s.Small && !s.Expandable {
				most += trace.Bytes(held) << 20
			}
			if got := s.FreeBytes(); got < free || got > most {
				t.Errorf("%s: segment %d: %d B free, the allocator had %d, expected at most %d", name, i, got, free, most)
			}
			surplus += s.FreeBytes() - free
			all += free
			compared++
		}
	}
	if compared < 1000 || surplus > all/100 {
		t.Errorf("%d segments were compared, expected 1000; %d B more are free than the allocator's %d B, expected at most 1 %%", compared, surplus, all)
	}
}

// TestReservedPieces: maps and unmaps in any order leave what is mapped, in as few
// ranges as they make.
func TestReservedPieces(t *testing.T) {
	const page = 2 << 20
	event := func(a trace.Action, from, pages uint64) trace.Event {
		return trace.Event{Action: a, Addr: 1<<30 + from*page, Size: trace.Bytes(pages * page), Stack: trace.None}
	}
	d := &trace.Device{Events: []trace.Event{
		event(trace.ActionSegmentMap, 0, 10),
		event(trace.ActionSegmentMap, 10, 10), // touches the first
		event(trace.ActionSegmentUnmap, 5, 2), // a hole in it
		event(trace.ActionSegmentMap, 30, 4),
		event(trace.ActionSegmentUnmap, 18, 14), // the end of one and the beginning of another
		event(trace.ActionSegmentAlloc, 100, 1),
		event(trace.ActionSegmentFree, 100, 1),
		event(trace.ActionSegmentFree, 200, 1), // of memory from before the recording
	}}
	m := reservedAt(d, trace.Time(len(d.Events)-1))
	want := [][2]uint64{{0, 5}, {7, 11}, {32, 2}}
	if len(m.Segments) != len(want) {
		t.Fatalf("%d segments, expected %v: %+v", len(m.Segments), want, m.Segments)
	}
	for i, s := range m.Segments {
		if got := [2]uint64{(s.Address - 1<<30) / page, uint64(s.Size) / page}; got != want[i] {
			t.Errorf("segment %d: %v, expected %v", i, got, want[i])
		}
	}
}
