/* device_defer.h: freed blocks that nobody can use for now.
 *
 * A block that record_stream has named other streams for may be used again behind what these had been
 * given by its free. While an exchange with another process is under way that may be too
 * early to wait for (streams.h). If such a block were merged with its free neighbours, all of
 * them could not be waited for, which may be most of the memory. So it stays out of the free
 * memory until its own stream can be made to wait for it: once the program has awaited the
 * exchange, or the device has done with it. */
#ifndef STPLAN_DEVICE_DEFER_H
#define STPLAN_DEVICE_DEFER_H

#include "device.h"

/* sp_device_give makes a taken range free, now or as soon as that makes sense. Locked. */
void sp_device_give(stplan_device *d, sp_range *r);

/* sp_device_recall makes those ranges free that can be used by now, and returns how many
 * these were. Locked. */
int sp_device_recall(stplan_device *d);

/* sp_device_recall_all waits for the device if there are such ranges, and makes all of them free.
 * Locked; lets go of the lock. */
void sp_device_recall_all(stplan_device *d);

/* sp_device_deferred says whether a byte of [addr, addr+size) is in such a range. Locked. */
int sp_device_deferred(const stplan_device *d, uint64_t addr, uint64_t size);

#endif
