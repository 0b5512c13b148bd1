/* device_wait.h: what the host waits for, and what nobody should wait for. */
#ifndef STPLAN_DEVICE_WAIT_H
#define STPLAN_DEVICE_WAIT_H

#include "device.h"

/* sp_device_look finds out which exchanges with other processes are over, and returns how
 * many freed blocks can be used for that (device_defer.h). Locked; if there are exchanges, it
 * lets go of the lock. */
int sp_device_look(stplan_device *d);

/* sp_device_poll finds out what the device has done, by the events of the whole device that have been recorded, and says
 * whether one of these is still to come. Locked; may let go of the lock. */
int sp_device_poll(stplan_device *d);

/* sp_device_await waits until nothing uses memory with this clock any more. Zero is
 * success. It fails if that takes longer than a few seconds, if it may depend on
 * another process, or while something is captured. Locked; lets go of the lock. */
int sp_device_await(stplan_device *d, const sp_clock *uses);

#endif
