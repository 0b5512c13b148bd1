package packing

import "github.com/stplan/stplan/internal/splitmix"

// exactOrders are value orderings (preorderings) that the exact search tries in turn,
// in one restart each a round, with shares of nodes that double from round to round. An
// ordering says which of several buffers is tried first at equal offsets. How soon one
// leads to a layout differs from instance to instance by factors of a thousand; for
// some instances the best one counts widths in sections, for others in time. A search
// that has made a wrong choice early does not get back to it in its share. So two of
// the orderings have random noise on their keys, other noise in each round.
var exactOrders = []exactOrder{
	{order: byLifeArea}, {order: byCrestArea}, {order: byCrestLife}, {order: bySpanArea}, {order: byTimeArea}, {order: byCrestTime},
	{byLifeArea, orderNoise}, {bySpanArea, orderNoise},
}

// orderNoise is the share by which noise varies keys, from -15 % to +15 %. With more an
// ordering keeps less of its sense, with less the restarts look like one another.
const orderNoise = 0.3

// exactOrder is an order with noise on its keys, as a share of them; 0 is none.
type exactOrder struct {
	order
	noise float64
}

// String is the order's name, with ~ if it has noise.
func (o exactOrder) String() string {
	if o.noise > 0 {
		return o.name + "~"
	}
	return o.name
}

// keyIn is the key of b in a round. The noise depends on the buffer's number and the
// round alone, so that equal problems are searched alike.
func (o exactOrder) keyIn(in *instance, b int32, round uint64) sortKey {
	k := o.key(in, b)
	if o.noise > 0 {
		for i := range k {
			random := float64(splitmix.Mix(uint64(b)*4+uint64(i)+round<<40)>>11) / (1 << 53) // in [0, 1)
			k[i] *= 1 + o.noise*(random-0.5)
		}
	}
	return k
}
