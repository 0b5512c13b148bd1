/* device_query.c: what callers ask about blocks and memory, and sharing them
 * with other processes and devices. */
#include "device_query.h"

stplan_range sp_device_describe(const stplan_device *d, const sp_range *r) {
  stplan_range told = {.address = r->addr, .size = r->size, .live = r->taken && !r->leaving, .first = (uint32_t)sp_arena_starts(r), .small = r->zone == SP_ZONE_SMALL};
  if (told.live) {
    told.requested = r->requested;
    told.stream = d->streams.list[r->stream]->handle;
  }
  return told;
}

stplan_status stplan_find(stplan_device *d, uint64_t address, stplan_range *block) {
  sp_device_lock(d);
  const sp_range *r = sp_device_block(d, address);
  if (r != NULL)
    *block = sp_device_describe(d, r);
  sp_device_unlock(d);
  return r == NULL ? STPLAN_BAD_POINTER : STPLAN_OK;
}

stplan_status stplan_extent(stplan_device *d, uint64_t address, uint64_t *base, uint64_t *size) {
  sp_device_lock(d);
  const sp_range *r = sp_device_block(d, address), *last = r;
  while (r != NULL && !sp_arena_starts(r))
    r = r->prev;
  while (last != NULL && !sp_arena_ends(last))
    last = last->next;
  if (r != NULL) {
    *base = r->addr;
    *size = last->addr + last->size - r->addr;
  }
  sp_device_unlock(d);
  return r == NULL ? STPLAN_BAD_POINTER : STPLAN_OK;
}

size_t stplan_ranges(stplan_device *d, stplan_range *ranges, size_t room) {
  size_t count = 0;
  sp_device_lock(d);
  const sp_range *r = d->arena.last;
  for (; r != NULL; r = r->prev)
    count += !r->absent;
  size_t at = count;
  for (r = d->arena.last; r != NULL; r = r->prev)
    if (!r->absent && --at < room)
      ranges[at] = sp_device_describe(d, r);
  sp_device_unlock(d);
  return count;
}

uint64_t stplan_largest(stplan_device *d) {
  sp_device_lock(d);
  uint64_t largest = sp_arena_largest(&d->arena);
  sp_device_unlock(d);
  return largest;
}

void stplan_measure(stplan_device *d, stplan_statistics *statistics) {
  sp_device_lock(d);
  sp_tally_set(&d->usage.extents, d->arena.extents);
  sp_tally_set(&d->usage.small_extents, d->arena.small_extents);
  sp_tally_set(&d->usage.small_reserved, d->arena.small_bytes);
  sp_usage_measure(&d->usage, statistics);
  sp_device_unlock(d);
}

void stplan_reset_peaks(stplan_device *d) {
  sp_device_lock(d);
  sp_usage_reset_peaks(&d->usage);
  sp_device_unlock(d);
}

void stplan_reset_sums(stplan_device *d) {
  sp_device_lock(d);
  sp_usage_reset_sums(&d->usage);
  sp_device_unlock(d);
}

void stplan_beside(stplan_device *d, const stplan_statistics *other) {
  sp_device_lock(d);
  sp_usage_beside(&d->usage, other);
  sp_device_unlock(d);
}

int stplan_moves(stplan_device *d) {
  sp_device_lock(d);
  int moves = sp_device_moves(d);
  sp_device_unlock(d);
  return moves;
}

stplan_status stplan_granule(const stplan_device *d, uint64_t address, uint64_t *base, uint64_t *size) {
  if (d->prim.granule_at == NULL || d->prim.granule_at(d->prim.self, address, base, size) != 0)
    return STPLAN_FAILED;
  return STPLAN_OK;
}

stplan_status stplan_export(stplan_device *d, uint64_t address, unsigned char handle[SP_HANDLE_BYTES], uint64_t *offset) {
  stplan_range block;
  stplan_status status = stplan_find(d, address, &block);
  if (status != STPLAN_OK)
    return status;
  if (d->prim.export_handle == NULL || d->prim.export_handle(d->prim.self, address, handle, offset) != 0)
    return STPLAN_FAILED;
  return STPLAN_OK;
}

/* Who shares memory takes it that a block's granules have one size: from now on they have, as far as the block
 * is not in pieces already. */
stplan_status stplan_export_granule(stplan_device *d, uint64_t address, int *file) {
  sp_device_lock(d);
  d->carry.whole = 1;
  sp_device_unlock(d);
  if (d->prim.export_granule == NULL || d->prim.export_granule(d->prim.self, address, file) != 0)
    return STPLAN_FAILED;
  return STPLAN_OK;
}

stplan_status stplan_allow_peer(stplan_device *d, int ordinal) {
  if (d->prim.allow_peer != NULL && d->prim.allow_peer(d->prim.self, ordinal) != 0)
    return STPLAN_FAILED;
  return STPLAN_OK;
}
