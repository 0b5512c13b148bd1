#include "device_defer.h"

#include "device_hold.h"

void sp_device_give(stplan_device *d, sp_range *r) {
  if (sp_streams_can(&d->streams, &r->uses, (int)r->stream)) {
    sp_arena_give(&d->arena, r);
    return;
  }
  r->leaving = 1;
  r->chain = d->deferred;
  d->deferred = r;
}

int sp_device_recall(stplan_device *d) {
  int count = 0;
  sp_range *kept = NULL;
  while (d->deferred != NULL) {
    sp_range *r = d->deferred;
    d->deferred = r->chain;
    if (sp_streams_can(&d->streams, &r->uses, (int)r->stream)) {
      sp_arena_give(&d->arena, r);
      count++;
    } else {
      r->chain = kept;
      kept = r;
    }
  }
  d->deferred = kept;
  return count;
}

void sp_device_recall_all(stplan_device *d) {
  if (d->deferred == NULL)
    return;
  uint64_t tick = d->streams.now;
  sp_device_unlock(d);
  int failed = 1;
  if (sp_hold_enter()) {
    failed = d->prim.synchronize(d->prim.self);
    sp_hold_leave();
  }
  sp_device_lock(d);
  if (!failed)
    sp_streams_all_done(&d->streams, tick);
  sp_device_recall(d);
}

int sp_device_deferred(const stplan_device *d, uint64_t addr, uint64_t size) {
  for (const sp_range *r = d->deferred; r != NULL; r = r->chain)
    if (r->addr < addr + size && addr < r->addr + r->size)
      return 1;
  return 0;
}
