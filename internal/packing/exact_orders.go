package packing

// exactOrders are the preorderings that the search takes turns with, each
// deciding what is tried first among equal offsets. Which one is lucky differs
// from instance to instance by factors of a thousand, in sections or in time. A
// search that is not lucky early stays in the wrong corner, so some turns begin
// somewhere else in each round: their keys are shaken.
var exactOrders = []exactOrder{
	{order: byLifeArea}, {order: byCrestArea}, {order: byCrestLife}, {order: bySpanArea}, {order: byTimeArea}, {order: byCrestTime},
	{byLifeArea, 0.3}, {bySpanArea, 0.3},
}

// exactOrder is an order whose keys vary by a share.
type exactOrder struct {
	order
	noise float64
}

// String is the order's name, with a mark where it is shaken.
func (t exactOrder) String() string {
	if t.noise > 0 {
		return t.name + "~"
	}
	return t.name
}

// keyIn is the key in a round. Its noise depends on nothing but the buffer's
// number and the round.
func (t exactOrder) keyIn(in *instance, b int32, round uint64) sortKey {
	k := t.key(in, b)
	if t.noise > 0 {
		for i := range k {
			noise := float64(mix(uint64(b)*4+uint64(i)+round<<40)>>11) / (1 << 53)
			k[i] *= 1 + t.noise*(noise-0.5)
		}
	}
	return k
}
