package trace

import "math"

// poolTable numbers the pools of a whole recording.
type poolTable struct {
	list  []PoolID
	index map[PoolID]int16
}

func newPoolTable() poolTable { return poolTable{index: map[PoolID]int16{}} }

// number returns the number of a pool, or false if Event.Pool has no number left.
func (t *poolTable) number(id PoolID) (int16, bool) {
	n, ok := t.index[id]
	if !ok {
		if len(t.list) > math.MaxInt16 {
			return -1, false
		}
		n = int16(len(t.list))
		t.list = append(t.list, id)
		t.index[id] = n
	}
	return n, true
}

// ownPools gives a device a table of the pools that its own events name, by first
// appearance. Before, the events have indices into all.
func (d *Device) ownPools(all []PoolID) {
	if len(all) == 0 {
		return
	}
	of := make([]int16, len(all)) // from an index into all to one into d.Pools
	for i := range of {
		of[i] = int16(None)
	}
	for i := range d.Events {
		e := &d.Events[i]
		if e.Pool == int16(None) {
			continue
		}
		if of[e.Pool] == int16(None) {
			of[e.Pool] = int16(len(d.Pools))
			d.Pools = append(d.Pools, all[e.Pool])
		}
		e.Pool = of[e.Pool]
	}
}
