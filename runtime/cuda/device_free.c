/* device_free.c: frees, and uses of blocks by other streams. */
#include "device_defer.h"
#include "device_history.h"
#include "device_plan.h"
#include "device_query.h"

/* Bytes. A freed block of at least this gets an event at once if several streams share
 * the device, so that whoever reuses it waits for no more than it has to. For a smaller
 * one an event is recorded when, and if, one is needed: most of them never need one. */
enum { EVENT_AT_FREE = 1 << 20 };

/* leave ends a block: from now on its address is nobody's. Locked. */
static void leave(stplan_device *d, sp_range *r) {
  uint64_t bytes = sp_aligned(r->requested);
  r->leaving = 1;
  if (d->history != NULL)
    sp_history_free(d->history, r->number);
  SP_COUNT(d, frees, 1);
  SP_COUNT(d, allocated_bytes, -bytes);
  if (r->step != SP_NO_STEP)
    sp_device_plan_freed(d, r->step);
  sp_usage_end(&d->usage, r->zone == SP_ZONE_SMALL, bytes, r->requested);
  uint64_t tick = ++d->streams.now;
  sp_clock_own(&r->uses, (int)r->stream, tick);
  for (int i = 0; i < d->streams.count; i++)
    if (r->recorded >> i & 1)
      sp_clock_use(&r->uses, i, tick);
}

/* events reserves the events behind the block's last uses that are worth it now: for
 * its own stream, those of the streams that record_stream named; for any other stream,
 * one of everything. Locked. */
static int events(stplan_device *d, const sp_range *r, sp_need needs[SP_SOURCES]) {
  int count = 0, large = r->size >= EVENT_AT_FREE;
  if (d->streams.count < 2)
    return 0;
  if (large)
    count = sp_streams_reserve_all(&d->streams, needs);
  for (int i = 0; i < d->streams.count && (!large || d->streams.has_whole); i++)
    if (r->recorded >> i & 1)
      count += sp_streams_reserve(&d->streams, i, &needs[count]);
  return count;
}

/* record_leave records events behind the block's last uses, if that is worth it
 * now; then it lets go of the lock. Locked. */
static void record_leave(stplan_device *d, const sp_range *r) {
  sp_need needs[SP_SOURCES];
  int done[SP_SOURCES], count = events(d, r, needs);
  if (count == 0)
    return;
  sp_device_unlock(d);
  for (int i = 0; i < count; i++)
    done[i] = sp_streams_record(&d->streams, &d->prim, &needs[i]);
  sp_device_lock(d);
  for (int i = 0; i < count; i++) {
    sp_streams_settle(&d->streams, -1, &needs[i], 1, done[i]);
    SP_COUNT(d, events_recorded, (uint64_t)done[i]);
  }
}

/* use notes that a stream uses a block. Locked; may let go of the lock. */
static stplan_status use(stplan_device *d, uint64_t address, stplan_stream stream, sp_range **block) {
  sp_device_history_room(d);
  *block = sp_device_block(d, address);
  if (*block == NULL)
    return STPLAN_BAD_POINTER;
  if (d->streams.list[(*block)->stream]->handle == stream)
    return STPLAN_OK;
  int index = sp_device_stream(d, stream);
  *block = sp_device_block(d, address); /* the lock may have been let go of */
  if (index < 0)
    return STPLAN_BAD_STREAM;
  if (*block == NULL)
    return STPLAN_BAD_POINTER;
  if (index != (int)(*block)->stream && !((*block)->recorded >> index & 1)) {
    (*block)->recorded |= UINT64_C(1) << index;
    if (d->history != NULL)
      sp_history_use(d->history, (*block)->number, (uint32_t)index);
  }
  return STPLAN_OK;
}

stplan_status stplan_record_stream(stplan_device *d, uint64_t address, stplan_stream stream) {
  sp_range *r;
  sp_device_lock(d);
  stplan_status status = use(d, address, stream, &r);
  sp_device_unlock(d);
  return status;
}

/* end gives a live block back. Locked; may let go of the lock. */
static void end(stplan_device *d, sp_range *r) {
  leave(d, r);
  record_leave(d, r);
  sp_device_give(d, r);
  sp_libraries_freed(d);
}

stplan_status stplan_free(stplan_device *d, uint64_t address, stplan_stream stream) {
  sp_range *r;
  sp_device_lock(d);
  stplan_status status = use(d, address, stream, &r);
  if (r == NULL)
    SP_COUNT(d, refused_frees, 1);
  else if (status == STPLAN_OK)
    end(d, r);
  sp_device_unlock(d);
  return status;
}

stplan_status stplan_release(stplan_device *d, uint64_t address, stplan_range *block) {
  sp_device_lock(d);
  sp_device_history_room(d);
  sp_range *r = sp_device_block(d, address);
  if (r != NULL && block != NULL)
    *block = sp_device_describe(d, r);
  if (r != NULL)
    end(d, r);
  sp_device_unlock(d);
  return r == NULL ? STPLAN_BAD_POINTER : STPLAN_OK;
}
