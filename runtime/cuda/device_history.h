/* device_history.h: the history of a device object. It is off, which costs a comparison
 * for each request, until stplan_history_begin. */
#ifndef STPLAN_DEVICE_HISTORY_H
#define STPLAN_DEVICE_HISTORY_H

#include "device.h"
#include "history.h"

/* sp_device_history_room makes sure that the history has room for a request that begins
 * now. If it has not, it lets go of the lock. Locked. */
void sp_device_history_room(stplan_device *d);

/* sp_device_history_exchange notes that the exchange of this number has just begun, and
 * sp_device_history_await that a stream, by its index, waits for it. Locked. */
void sp_device_history_exchange(stplan_device *d, uint64_t exchange);
void sp_device_history_await(stplan_device *d, uint64_t exchange, int stream);

#endif
