package trace

import "fmt"

// reserved checks a device's segment entries: what they take from the driver stays
// within maxHeld, and segment_alloc takes no range that is taken already. If the
// recording has no segment_free at all, these may have been skipped (skip_actions):
// then a range that is taken twice counts as given back in between.
func (c *checker) reserved(d *Device, found *census) *InputError {
	taken, entries := segmentRanges(d, found)
	var sum Bytes
	for i := range d.Initial {
		sum += d.Initial[i].Size
	}
	for _, i := range found.segments {
		e := &d.Events[i]
		switch e.Action {
		case ActionSegmentAlloc:
			k := taken.find(e.Addr)
			if other := taken.overlap(k, e.Size); other >= 0 && found.count[ActionSegmentFree] > 0 {
				return &InputError{Where: c.where(d, int(i)), Column: colAddr, Problem: fmt.Sprintf(
					"segment_alloc of %d B at %#x overlaps the %d B at %#x of %s (not released since)",
					e.Size, e.Addr, taken.sizes[other], taken.addresses[other], c.where(d, int(entries[other])))}
			}
			taken.take(k, e.Size)
			entries[k] = i
			sum += e.Size
		case ActionSegmentMap:
			sum += e.Size
		case ActionSegmentFree:
			if k := taken.find(e.Addr); k < len(entries) && taken.addresses[k] == e.Addr && taken.has(k) {
				taken.release(k)
			}
			sum = max(0, sum-e.Size)
		case ActionSegmentUnmap:
			sum = max(0, sum-e.Size)
		}
		if sum > maxHeld {
			return &InputError{Where: c.where(d, int(i)), Column: colSize,
				Problem: fmt.Sprintf("with these %d B, segments take %d B, expected at most %d B", e.Size, sum, maxHeld)}
		}
	}
	return nil
}

// segmentRanges returns an empty set for the ranges of segment_alloc entries, and a
// list for the index of each range's entry.
func segmentRanges(d *Device, found *census) (occupied, []int32) {
	addresses := make([]uint64, 0, found.count[ActionSegmentAlloc])
	for _, i := range found.segments {
		if e := &d.Events[i]; e.Action == ActionSegmentAlloc {
			addresses = append(addresses, e.Addr)
		}
	}
	ranges := newOccupied(addresses)
	return ranges, make([]int32, len(ranges.addresses))
}
