/* device_move.h: idle memory moves to where it is needed: it is mapped there
 * (device_carry.h), or given back where it lies and taken again where a request goes, so that no
 * more is reserved. That takes calls of the driver, and sometimes a wait for the device, so it is
 * done only if it is worth it.
 * docs/runtime.md ("Memory that moves") has the rules. */
#ifndef STPLAN_DEVICE_MOVE_H
#define STPLAN_DEVICE_MOVE_H

#include "device.h"

/* Bytes. Memory moves for a need of at least this; for less a stall costs more than
 * it saves. Of 3, 20, 32 and 50 MiB this reserves the least over the recordings. If a run
 * that no plan serves has far more than it allocates, memory moves for any need, and such a move is owed as
 * one of this. */
#define SP_MOVE_LEAST (UINT64_C(20) << 20)

/* sp_device_make_room is called before `bytes` are taken from the device for
 * addresses of [low, high). If that would exceed the limit, or what has been
 * reserved so far, idle memory elsewhere is given back first, if there is any in
 * large pieces. Except at the limit, that is done only as long as the run can afford
 * it (device_debt.h). If the plan is not worth the bytes, it yields (device_plan.h), and the
 * answer is 0; otherwise 1. Nothing is done if memory does not move. Locked; lets go
 * of the lock. Growth lock held. */
int sp_device_make_room(stplan_device *d, uint64_t bytes, uint64_t low, uint64_t high);

#endif
