package trace

import "fmt"

// reserved checks a device's segment entries: what they take from the driver
// stays within maxHeld, and segment_alloc takes nothing that is taken already.
// In a recording without any segment_free those may have been skipped
// (skip_actions), and a range that is taken twice was given back in between.
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
					"segment_alloc of %d B at %#x, of which %s has %d B at %#x (not released since)",
					e.Size, e.Addr, c.where(d, int(entries[other])), taken.sizes[other], taken.addresses[other])}
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
				Problem: fmt.Sprintf("%d B more make segments of %d B, expected at most %d B", e.Size, sum, maxHeld)}
		}
	}
	return nil
}

// segmentRanges returns an empty set for the ranges of segment_alloc entries,
// and room for their entries.
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
