/* device_carry.h: idle memory moves to other addresses while streams may still use it
 * where it was. Nobody waits: the memory is at both addresses for a while. Streams that get
 * it at the new ones are ordered behind its uses, as with any other free memory, and the old ones are
 * given back when memory is needed there, or when any memory is to go to the device. */
#ifndef STPLAN_DEVICE_CARRY_H
#define STPLAN_DEVICE_CARRY_H

#include "device.h"

/* sp_carry_take takes from a list of idle ranges (sp_device_chain) those whose memory can be
 * carried to `at`, where memory is about to be taken, and returns their bytes, which stay
 * reserved. Locked; lets go of the lock. Growth lock held. */
uint64_t sp_carry_take(stplan_device *d, sp_range **list, uint64_t at);

/* sp_carry_adds is how many bytes have to be added for `bytes` that are to be taken. Locked. */
uint64_t sp_carry_adds(const stplan_device *d, uint64_t bytes);

/* sp_carry_extend takes `bytes` of memory at an address: first what there is to be carried there, whose
 * clock *uses is, and *added of the device. 0 if the limit or the device has no more, or what
 * was carried from there before is still in use. Otherwise sp_carry_leave is due once they are in the arena.
 * Locked; lets go of the lock. Growth lock held. */
int sp_carry_extend(stplan_device *d, uint64_t at, uint64_t bytes, sp_clock *uses, uint64_t *added);

/* sp_carry_leave makes absent what memory has been carried from. Locked. Growth lock held. */
void sp_carry_leave(stplan_device *d);

/* sp_carry_end makes free again, where it is, what was not carried anywhere after all. Locked. Growth lock
 * held. */
void sp_carry_end(stplan_device *d);

/* sp_carry_uses merges into a clock the uses of all addresses that memory was carried from and that are not
 * given back yet. Growth lock held. */
void sp_carry_uses(const stplan_device *d, sp_clock *uses);

/* sp_carry_give gives back those of them that touch [low, high), which nothing uses any more, and
 * says whether all went. Called without the lock, and with a hold (device_hold.h). Growth lock held. */
int sp_carry_give(stplan_device *d, uint64_t low, uint64_t high);

/* sp_carry_clear waits for what uses those, and gives them back; it says whether that was done. If it was not, as
 * they may be in use for ever or a graph is being captured, they are blocked. sp_carry_blocks says whether any
 * that touch [low, high) are. sp_carry_unblock is called once the request has been served, or not: then they are tried again,
 * and so is carrying, if that has just failed. Locked; the first lets go of the lock. Growth lock held. */
int sp_carry_clear(stplan_device *d, uint64_t low, uint64_t high);
int sp_carry_blocks(const stplan_device *d, uint64_t low, uint64_t high);
void sp_carry_unblock(stplan_device *d);

/* sp_carry_drop forgets all of them, in the end. */
void sp_carry_drop(stplan_device *d);

#endif
