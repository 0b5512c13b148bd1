package baseline

import (
	"cmp"
	"slices"

	"github.com/stplan/stplan/internal/trace"
)

// privatePools says which allocations came from the private pool of a CUDA graph or
// of a MemPool. Before torch 2.12 only the final segments say so, and segments given
// back before the end count as the default pool's.
type privatePools struct {
	ranges []privateRange // by address, disjoint
}

type privateRange struct {
	low, high uint64
	pool      trace.PoolID
	// since is the first entry at which the range belongs to this segment.
	since int
}

func findPrivatePools(d *trace.Device) privatePools {
	var p privatePools
	for i := range d.Final {
		s := &d.Final[i]
		if s.Pool != (trace.PoolID{}) {
			p.ranges = append(p.ranges, privateRange{s.Address, s.Address + uint64(s.Size), s.Pool, 0})
		}
	}
	if len(p.ranges) == 0 {
		return p
	}
	slices.SortFunc(p.ranges, func(a, b privateRange) int { return cmp.Compare(a.low, b.low) })
	for i := range d.Events {
		e := &d.Events[i]
		if e.Action == trace.ActionSegmentFree || e.Action == trace.ActionSegmentUnmap {
			p.released(e.Addr, e.Addr+uint64(e.Size), i)
		}
	}
	return p
}

// released notes that entry i released the segment in [low, high).
func (p *privatePools) released(low, high uint64, i int) {
	for k := p.firstAbove(low); k < len(p.ranges) && p.ranges[k].low < high; k++ {
		p.ranges[k].since = i + 1
	}
}

// firstAbove is the index of the first range that ends above addr.
func (p *privatePools) firstAbove(addr uint64) int {
	k, _ := slices.BinarySearchFunc(p.ranges, addr, func(r privateRange, addr uint64) int {
		if r.high <= addr {
			return -1
		}
		return 1
	})
	return k
}

// of returns the pool of entry i of the recording.
func (p *privatePools) of(d *trace.Device, i int) trace.PoolID {
	e := &d.Events[i]
	if e.Pool >= 0 && int(e.Pool) < len(d.Pools) {
		return d.Pools[e.Pool]
	}
	if e.Action != trace.ActionAlloc {
		return trace.PoolID{}
	}
	k := p.firstAbove(e.Addr)
	if k < len(p.ranges) && p.ranges[k].low <= e.Addr && p.ranges[k].since <= i {
		return p.ranges[k].pool
	}
	return trace.PoolID{}
}

// usesPrivatePools says that the recording names private pools.
func usesPrivatePools(d *trace.Device) bool {
	other := func(id trace.PoolID) bool { return id != trace.PoolID{} }
	return slices.ContainsFunc(d.Pools, other) ||
		slices.ContainsFunc(d.Final, func(s trace.Segment) bool { return other(s.Pool) })
}

// customPools returns the private pools whose segments were not expandable although
// the setting was on: MemPools with an allocator of their own.
func customPools(d *trace.Device, recorded *rules) map[trace.PoolID]bool {
	custom := make(map[trace.PoolID]bool)
	for i := range d.Final {
		if s := &d.Final[i]; recorded.expandable && !s.Expandable && s.Pool != (trace.PoolID{}) {
			custom[s.Pool] = true
		}
	}
	return custom
}
