/* device_grow.h: memory is taken from the device. */
#ifndef STPLAN_DEVICE_GROW_H
#define STPLAN_DEVICE_GROW_H

#include "device_plan.h"

/* sp_device_begin takes the plan's memory, if it has not been asked for: all of
 * it, or, if memory moves, its addresses and the first granule. It is for a
 * request with a place in the plan: *place then has its address, or is not
 * planned any more. Locked; lets go of the lock. */
void sp_device_begin(stplan_device *d, sp_place *place);

/* sp_device_grow takes memory so that `need` bytes of a stream fit into the zone, or finds
 * that they fit by now. With `fresh` it takes all of them, as an extent of its
 * own, at *addr. 0 if there is no memory. Locked; lets go of the lock. */
int sp_device_grow(stplan_device *d, sp_zone zone, uint64_t need, int stream, int fresh, uint64_t *addr);

/* sp_device_map takes memory for what is absent of [addr, end), as far as that lies in
 * extents. sp_device_add takes bytes that follow on what the zone has, or begin an extent.
 * 0 if there is no memory. Locked; they let go of the lock. Growth lock held. */
int sp_device_map(stplan_device *d, uint64_t addr, uint64_t end);
int sp_device_add(stplan_device *d, sp_zone zone, uint64_t bytes);

/* sp_device_commit takes memory for what is absent of a place of the plan, [addr,
 * addr+size), that a stream asks for, if need be where something else is idle. If the plan is not worth that, or the
 * device has none, the plan is given up, unless memory was lent that may come back. 0 if the place has no memory, as none comes if memory does not move. Locked; lets go of the lock. */
int sp_device_commit(stplan_device *d, uint64_t addr, uint64_t size, int stream);

#endif
