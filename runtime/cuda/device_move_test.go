//go:build cgo

package cuda

import "testing"

// TestSmallBlocksTakeWhatIsIdle frees a large block and then fills small ones, each of
// which lacks too little to move anything for: together they get what lies idle, and
// nothing but their first granule is reserved for them.
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
