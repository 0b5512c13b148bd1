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

// leftByPlan is a device whose plan is given up, since a request needs more than what is free between
// its blocks. That is allocated again then: all that is reserved is live, but for what whole granules
// have beyond their blocks.
func leftByPlan(t *testing.T) *Device {
	t.Helper()
	const mib, pieces = 1 << 20, 60
	sizes := make([]uint64, pieces)
	for i := range sizes {
		sizes[i] = 3 * mib
	}
	plan := recorded(append(sizes, 100*mib, 512))
	plan.PeakAllocated = pieces * 3 * mib // fewer bytes than the plan takes
	plan.PeakActive = plan.PeakAllocated
	d := open(t, plan, Options{Capacity: 1 << 40, Granularity: 2 * mib, Partial: true})
	blocks := make([]uint64, pieces)
	for i := range blocks {
		blocks[i] = mustMalloc(t, d, sizes[i])
	}
	for i := 0; i < pieces; i += 2 {
		mustFree(t, d, blocks[i])
	}
	mustMalloc(t, d, 100*mib)
	mustFree(t, d, mustMalloc(t, d, 512))
	if c := d.Counters(); c.State != Off {
		t.Fatalf("the plan is not given up: %+v", c)
	}
	for i := 0; i < pieces; i += 2 {
		mustMalloc(t, d, sizes[i])
	}
	return d
}

// TestLittleIsAdded asks for 6 MiB more than a free range at the end has, while 40 are idle elsewhere.
// They are added, without a plan and once a plan has left the run alike: if they moved there, as they did, some
// runs that a plan had left came to reserve 1.2 % more than without it.
func TestLittleIsAdded(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name string
		d    *Device
		want uint64 // bytes added
	}{{"no plan", pool(t), 6 * mib}, {"left", leftByPlan(t), 6 * mib}} {
		idle := mustMalloc(t, c.d, 40*mib)
		mustMalloc(t, c.d, 16*mib)
		last := mustMalloc(t, c.d, 50*mib)
		mustFree(t, c.d, idle)
		mustFree(t, c.d, last)
		before := c.d.Counters().PeakReserved
		mustMalloc(t, c.d, 56*mib)
		if got := c.d.Counters().PeakReserved - before; got != c.want {
			t.Errorf("%s: %d B more are reserved at most, expected %d", c.name, got, c.want)
		}
	}
}

// TestLittleMovesIfFarMoreIsReserved asks for blocks of 15 MiB while each second of many of 10 MiB
// is idle. Less than 20 MiB move for none of these, but 1/55 of what the pool has allocated is all that it adds: in a
// small one, whose 1/55 is less, 20 MiB.
func TestLittleMovesIfFarMoreIsReserved(t *testing.T) {
	const mib, size = 1 << 20, 15 * mib
	for _, pieces := range []int{60, 200, 400} {
		d := pool(t)
		blocks := make([]uint64, pieces)
		for i := range blocks {
			blocks[i] = mustMalloc(t, d, 10*mib)
		}
		for i := 0; i < pieces; i += 2 {
			mustFree(t, d, blocks[i])
		}
		allocated := d.Counters().PeakAllocated
		most := allocated + max(20*mib, allocated/55) + size
		for range pieces / 4 {
			mustMalloc(t, d, size)
			if c := d.Counters(); c.PeakReserved > most {
				t.Fatalf("%d pieces: %d MiB are reserved at most for %d allocated", pieces, c.PeakReserved/mib, allocated/mib)
			}
		}
		if c := d.Counters(); c.PeakAllocated != allocated || c.MovedBytes == 0 {
			t.Errorf("%d pieces: %+v", pieces, c)
		}
	}
}

// TestLittleMovesCostAStall has a block grow by 6 MiB again and again, while gigabytes are idle in
// pieces too small for it. Every move stalls the run, so each is owed as one of 20 MiB, and the
// run makes as many as it may owe of those.
func TestLittleMovesCostAStall(t *testing.T) {
	const mib, pieces, steps, lacks = 1 << 20, 100, 300, 6
	d := leftByPlan(t)
	var idle []uint64
	for range pieces {
		idle = append(idle, mustMalloc(t, d, 40*mib))
		mustMalloc(t, d, 8*mib)
	}
	last := mustMalloc(t, d, 50*mib)
	for _, at := range idle {
		mustFree(t, d, at)
	}
	moves, moved, from := uint64(0), d.Counters().MovedBytes, d.Counters().AllocationBytes
	for i := range uint64(steps) {
		mustFree(t, d, last)
		last = mustMalloc(t, d, (50+lacks*(i+1))*mib)
		if now := d.Counters().MovedBytes; now > moved {
			moves, moved = moves+1, now
		}
	}
	c := d.Counters()
	beyond := c.PeakReserved + lacks*mib - c.PeakAllocated               // if the last move is not made
	owed := c.PeakReserved/2 + 64*beyond + (c.AllocationBytes-from)/1000 // device_debt.c
	if most := owed/(20*mib) + 1; moves == 0 || moves > most {
		t.Errorf("%d moves of %d MiB, expected 1 to %d: %d MiB may be owed in all", moves, lacks, most, owed/mib)
	}
}
