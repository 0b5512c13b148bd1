/* device_pins.h: memory whose address somebody outside knows, such as a library that has
 * registered it with a network. It keeps its physical memory until it is unpinned. */
#ifndef STPLAN_DEVICE_PINS_H
#define STPLAN_DEVICE_PINS_H

#include "device.h"

/* sp_pins_spare narrows bytes [*addr, *end) to the largest part of them that has no byte of a
 * pinned granule; that part may be empty. Locked. */
void sp_pins_spare(const stplan_device *d, uint64_t *addr, uint64_t *end);

/* sp_pins_bytes is how many of these bytes are in pinned granules. Locked. */
uint64_t sp_pins_bytes(const stplan_device *d, uint64_t addr, uint64_t end);

/* sp_pins_drop forgets all pins, in the end. */
void sp_pins_drop(stplan_device *d);

#endif
