/* device_query.h: blocks by their addresses. */
#ifndef STPLAN_DEVICE_QUERY_H
#define STPLAN_DEVICE_QUERY_H

#include "device.h"

/* sp_device_block is the live block at address, or NULL. Locked. */
static inline sp_range *sp_device_block(const stplan_device *d, uint64_t address) {
  sp_range *r = sp_arena_find(&d->arena, address);
  return r != NULL && !r->leaving ? r : NULL;
}

/* sp_device_describe is a range as callers are told of it. Locked. */
stplan_range sp_device_describe(const stplan_device *d, const sp_range *r);

#endif
