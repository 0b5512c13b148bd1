/* device_open.c: opens and closes device objects. */
#include <stdlib.h>
#include <sys/mman.h>

#include "device_carry.h"
#include "device_pins.h"
#include "device_plan.h"

/* drop frees the object and all host memory that it has. */
static void drop(stplan_device *d) {
  while (d->chunks != NULL) {
    sp_chunk *c = d->chunks;
    d->chunks = c->next;
    free(c->nodes);
    free(c);
  }
  sp_pins_drop(d);
  if (d->shared != &d->counters)
    munmap(d->shared, sizeof *d->shared);
  sp_device_plan_close(d);
  stplan_history_end(d);
  pthread_mutex_destroy(&d->lock);
  pthread_mutex_destroy(&d->growth);
  free(d);
}

stplan_status stplan_open(const sp_prim *prim, const stplan_plan *plan, int ordinal, stplan_device **device) {
  *device = NULL;
  const sp_plan_device *of = plan == NULL ? NULL : sp_plan_find(plan, ordinal);
  if (plan != NULL && of == NULL)
    return STPLAN_BAD_DEVICE;
  stplan_device *d = calloc(1, sizeof *d);
  if (d == NULL)
    return STPLAN_FAILED;
  pthread_mutex_init(&d->lock, NULL);
  pthread_mutex_init(&d->growth, NULL);
  d->shared = &d->counters;
  SP_SET(d, fields, sizeof d->counters / sizeof(uint64_t));
  d->prim = *prim; /* the caller's still, if this fails */
  d->arena.granularity = prim->granularity;
  if (!sp_device_plan_open(d, of)) {
    drop(d);
    return STPLAN_FAILED;
  }
  sp_streams_open(&d->streams, prim);
  *device = d;
  return STPLAN_OK;
}

/* give_all gives back the memory of each extent, piece by piece: ranges that
 * lie side by side and have memory. */
static void give_all(stplan_device *d) {
  uint64_t end = 0;
  for (const sp_range *r = d->arena.last; r != NULL; r = r->prev) {
    if (r->absent)
      continue;
    if (end == 0)
      end = r->addr + r->size;
    if (!r->first && !r->prev->absent)
      continue;
    d->prim.give_back(d->prim.self, r->addr, end - r->addr);
    end = 0;
  }
}

void stplan_close(stplan_device *d) {
  if (d == NULL)
    return;
  if (d->arena.last != NULL && d->prim.synchronize(d->prim.self) == 0) {
    sp_carry_give(d, 0, UINT64_MAX);
    give_all(d);
  }
  sp_carry_drop(d);
  sp_streams_close(&d->streams, &d->prim);
  d->prim.close(d->prim.self);
  drop(d);
}
