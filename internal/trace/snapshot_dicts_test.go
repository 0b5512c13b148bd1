package trace

import (
	"fmt"
	"math/rand/v2"
)

const start = 0x7f0000000000

// entryDict is a trace entry as torch 2.11 writes it; more items may follow.
func entryDict(action string, addr, size, stream, timeUS int64, more ...any) *pyDict {
	return newDict(append([]any{"action", action, "addr", addr, "size", size, "stream", stream,
		"time_us", timeUS, "compile_context", "N/A", "user_metadata", ""}, more...)...)
}

func blockDict(addr, size, requested int64, state string, frames *pyList) *pyDict {
	return newDict("address", addr, "size", size, "requested_size", requested, "state", state, "frames", frames)
}

func segmentDict(device int, addr, size, stream int64, kind string, blocks ...any) *pyDict {
	return newDict("device", device, "address", addr, "total_size", size, "allocated_size", 0, "active_size", 0,
		"requested_size", 0, "stream", stream, "segment_type", kind, "segment_pool_id", newTuple(0, 0),
		"is_expandable", false, "frames", newList(), "blocks", newList(blocks...))
}

func snapshotDict(segments *pyList, traces *pyList, annotations *pyList) *pyDict {
	return newDict("segments", segments, "device_traces", traces, "allocator_settings", settingsDict(), "external_annotations", annotations)
}

func settingsDict() *pyDict {
	divisions := newDict()
	for i := range 16 {
		divisions.items = append(divisions.items, fmt.Sprint(1<<i), i)
	}
	return newDict("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", "max_split_size", 64<<20,
		"garbage_collection_threshold", 0.75, "expandable_segments", true, "roundup_power2_divisions", divisions)
}

// oneBlock is the smallest recording: a segment with one block on device 0.
func oneBlock() *pyDict {
	return snapshotDict(
		newList(segmentDict(0, start, 2<<20, 0, "small",
			blockDict(start, 512, 100, "active_allocated", newList()), blockDict(start+512, 2<<20-512, 77, "inactive", newList()))),
		newList(newList(entryDict("segment_alloc", start, 2<<20, 0, 1000), entryDict("alloc", start, 100, 0, 1001))),
		newList())
}

// randomSnapshot is a recording of n allocations and some of their frees on each of two
// devices of three, with shared stacks, metadata and annotations.
func randomSnapshot(r *rand.Rand, n int) *pyDict {
	frames := make([]any, 12)
	for i := range frames {
		frames[i] = newDict("filename", fmt.Sprintf("/src/m%d.py", i%4), "line", i*i, "name", fmt.Sprintf("f%d", i%5))
	}
	stacks := make([]*pyList, 10)
	for i := range stacks {
		stacks[i] = newList()
		for range r.IntN(6) {
			stacks[i].items = append(stacks[i].items, frames[r.IntN(len(frames))])
		}
	}
	traces := newList(newList(), newList(), newList())
	segments, annotations := newList(), newList()
	for _, device := range []int{0, 2} {
		list := traces.items[device].(*pyList)
		clock := int64(1_700_000_000_000_000)
		for i := range n {
			clock += int64(r.IntN(3))
			addr := start + int64(i)<<21
			more := []any{"frames", stacks[r.IntN(len(stacks))]}
			e := entryDict("alloc", addr, int64(r.IntN(1<<20)), int64(r.IntN(2)), clock, more...)
			e.items[13] = []string{"", "warm-up", "step"}[r.IntN(3)]
			list.items = append(list.items, entryDict("segment_alloc", addr, 2<<20, 0, clock), e)
			if r.IntN(2) == 0 {
				list.items = append(list.items, entryDict("free_requested", addr, 5, 0, clock), entryDict("free_completed", addr, 5, 0, clock))
			} else {
				segments.items = append(segments.items, segmentDict(device, addr, 2<<20, 0, "small",
					blockDict(addr, 1<<20, 9, "active_allocated", stacks[r.IntN(len(stacks))]),
					blockDict(addr+1<<20, 1<<20, 9, "inactive", newList())))
			}
			if r.IntN(4) == 0 {
				annotations.items = append(annotations.items,
					newDict("name", "Optimizer.step#SGD.step", "stage", []string{"START", "END"}[r.IntN(2)], "device", device, "time_us", clock+int64(r.IntN(5))-2))
			}
		}
	}
	return snapshotDict(segments, traces, annotations)
}

// shuffled returns a copy in which dicts have their items in another order, with unknown
// items among them. What was shared is still shared.
func shuffled(r *rand.Rand, v any, done map[any]any) any {
	switch o := v.(type) {
	case *pyList:
		if c, ok := done[o]; ok {
			return c
		}
		c := newList()
		done[o] = c
		for _, e := range o.items {
			c.items = append(c.items, shuffled(r, e, done))
		}
		return c
	case *pyDict:
		if c, ok := done[o]; ok {
			return c
		}
		c := newDict()
		done[o] = c
		items := append([]any{"unknown", newList(newDict("action", 1, "filename", newList()), newTuple(1, newTuple(), 2, 3), nil), newTuple(7, "a"), 1.5}, o.items...)
		for _, i := range r.Perm(len(items) / 2) {
			value := items[2*i+1]
			if i > 0 {
				value = shuffled(r, value, done)
			}
			c.items = append(c.items, items[2*i], value)
		}
		return c
	}
	return v
}
