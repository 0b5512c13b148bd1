/* device_trim.h: idle memory is given back to the device. */
#ifndef STPLAN_DEVICE_TRIM_H
#define STPLAN_DEVICE_TRIM_H

#include "device.h"

/* sp_device_idle narrows bytes [*addr, *end) of a range to those that can be
 * given back, and says whether there are any. Locked. */
int sp_device_idle(const stplan_device *d, const sp_range *r, uint64_t *addr, uint64_t *end);

/* sp_device_whole is the same, as if nothing were pinned. */
int sp_device_whole(const stplan_device *d, const sp_range *r, uint64_t *addr, uint64_t *end);

/* sp_device_chain takes idle bytes [addr, end) of a free range out of use, at
 * the head of a list. It needs a node. Locked. */
void sp_device_chain(stplan_device *d, sp_range *gap, uint64_t addr, uint64_t end, sp_range **list);

/* Why memory is given back. To be moved: then only what may still use it is waited for,
 * and not for long. Otherwise the whole device is, as by PyTorch's own allocator: to be taken
 * elsewhere, or to be lent to others, until it is taken back where it was. */
typedef enum { SP_TO_MOVE, SP_TO_TRIM, SP_TO_LEND } sp_reason;

/* sp_device_withdraw gives back the bytes of a list, and returns how many were.
 * Streams may still use them, so that is waited for first. What is not given back is
 * free again, and d->held_up says why. Locked; lets go of the lock. Growth
 * lock held. */
uint64_t sp_device_withdraw(stplan_device *d, sp_range *list, sp_reason reason);

/* sp_device_trim gives all idle memory back, that of the plan too, and returns the bytes. It
 * waits for the device. Locked; lets go of the lock. Growth lock held. */
uint64_t sp_device_trim(stplan_device *d, sp_reason reason);

/* sp_device_gather gives idle memory of addresses [low, high) back, that of the plan too, for a
 * plan that is about to take memory elsewhere, and returns the bytes: 0 as well if nothing can be
 * given back at present. They count as moved, and the run does not owe them: plans come a few
 * times in a run, and each leaves its own places at most once. Locked; lets go of the lock. Growth
 * lock held. */
uint64_t sp_device_gather(stplan_device *d, uint64_t low, uint64_t high);

#endif
