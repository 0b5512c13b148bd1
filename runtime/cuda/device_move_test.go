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
