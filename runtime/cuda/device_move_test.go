//go:build cgo

package cuda

import "testing"

// TestSmallBlocksTakeWhatIsIdle frees a large block and then allocates small ones. Each
// lacks too little to move memory for. Together they get what is idle, and only their first
// granule is reserved in addition.
func TestSmallBlocksTakeWhatIsIdle(t *testing.T) {
	const granule, large, small, count = 2 << 20, 120 << 20, 256 << 10, 400
	d, err := Open(nil, 0, Options{Capacity: 1 << 40, Granularity: granule, Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	address, _, err := d.Malloc(large, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Free(address, 0); err != nil {
		t.Fatal(err)
	}
	for range count {
		if _, _, err := d.Malloc(small, 0); err != nil {
			t.Fatal(err)
		}
	}
	c := d.Counters()
	if c.PeakReserved > large+granule || c.MovedBytes < count*small-granule {
		t.Errorf("%d B reserved at most, %d moved, for %d small ones where %d had been freed; expected at most %d and at least %d",
			c.PeakReserved, c.MovedBytes, count*small, large, large+granule, count*small-granule)
	}
}

// TestPlanThatStays: if memory does not move, a plan's memory is taken in one piece, at the
// first request, and nothing of it goes. If moving ends later, what the plan lacks is taken
// then.
func TestPlanThatStays(t *testing.T) {
	const mib, granule, places = 1 << 20, 2 << 20, 40
	sizes := make([]uint64, places)
	for i := range sizes {
		sizes[i] = 8 * mib
	}
	for _, before := range []int{0, 1, places * 3 / 4} {
		d := open(t, recorded(sizes), Options{Capacity: 1 << 40, Granularity: granule, Partial: true})
		get := func(size uint64) (uint64, Source) {
			t.Helper()
			at, source, err := d.Malloc(size, 0)
			if err != nil {
				t.Fatal(err)
			}
			return at, source
		}
		var last uint64
		for _, size := range sizes[:before] {
			last, _ = get(size)
		}
		d.StopMoving()
		for i, size := range sizes[before:] {
			at, source := get(size)
			if source != FromPlan || (before+i > 0 && at != last+8*mib) {
				t.Fatalf("moving ends before request %d: request %d is at %#x, from %v; expected %#x of the plan", before, before+i, at, source, last+8*mib)
			}
			last = at
		}
		c := d.Counters()
		if c.ReservedBytes != places*8*mib || c.Growths > 1+uint64(before)+1 {
			t.Errorf("moving ends before request %d: %d B reserved in %d pieces, expected %d", before, c.ReservedBytes, c.Growths, places*8*mib)
		}
		if _, err := d.Pause(); err != nil {
			t.Fatal(err)
		}
		get(300 * mib)
		if now := d.Counters(); now.MovedBytes != 0 || now.ReservedBytes != c.ReservedBytes+300*mib {
			t.Errorf("%d B moved, %d reserved, expected 0 and %d", now.MovedBytes, now.ReservedBytes, c.ReservedBytes+300*mib)
		}
	}
}
