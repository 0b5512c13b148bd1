#include "device_trim.h"

#include "device_plan.h"

/* Whole granules can be given back, and what a granule at the end of an extent
 * lacks to a whole one. Of the plan's memory the first granule stays, so that
 * its addresses stay ours; all of it stays if it came in one piece. Otherwise
 * an extent that came in one piece can be given back only as a whole. */
int sp_device_idle(const stplan_device *d, const sp_range *r, uint64_t *addr, uint64_t *end) {
  if (r->taken || r->absent)
    return 0;
  int planned = sp_device_plan_holds(d, r->addr), last = *end == r->addr + r->size && (r->next == NULL || r->next->first);
  if (r->first && last && *addr == r->addr && !planned)
    return 1;
  if (planned && *addr == sp_device_plan_base(d))
    *addr += d->prim.granularity;
  *addr = sp_round_up(*addr, d->prim.granularity);
  if (!last)
    *end = sp_round_down(*end, d->prim.granularity);
  return d->prim.partial && *addr < *end;
}

void sp_device_chain(stplan_device *d, sp_range *gap, uint64_t addr, uint64_t end, sp_range **list) {
  sp_range *r = sp_arena_take(&d->arena, gap, addr, end - addr);
  r->leaving = 1;
  r->chain = *list;
  *list = r;
}

/* forget_ends forgets growing extents that are gone: their addresses may be
 * another's from now on. Locked. */
static void forget_ends(stplan_device *d) {
  for (int zone = 0; zone < SP_ZONES; zone++)
    if (d->end[zone] != 0 && sp_arena_holding(&d->arena, d->end[zone] - 1) == NULL)
      d->end[zone] = 0;
}

uint64_t sp_device_withdraw(stplan_device *d, sp_range *list) {
  uint64_t total = 0;
  if (list == NULL)
    return 0;
  int failed = d->held > 0;
  sp_device_unlock(d);
  failed = failed || d->prim.synchronize(d->prim.self) != 0;
  sp_device_lock(d);
  while (list != NULL) {
    sp_range *r = list;
    list = r->chain;
    sp_device_unlock(d);
    if (!failed) {
      sp_device_notify(d, 0, r->addr, r->size);
      failed = d->prim.give_back(d->prim.self, r->addr, r->size) != 0;
    }
    sp_device_lock(d);
    if (failed) {
      sp_arena_give(&d->arena, r);
      continue;
    }
    total += r->size;
    sp_device_account(d, -(int64_t)r->size);
    sp_arena_decommit(&d->arena, r);
    forget_ends(d);
  }
  return total;
}

uint64_t sp_device_trim(stplan_device *d, int plan) {
  uint64_t below = UINT64_MAX;
  sp_range *list = NULL;
  while (sp_device_nodes(d)) {
    sp_range *r = sp_arena_below(&d->arena, below);
    if (r == NULL)
      break;
    below = r->addr;
    uint64_t addr = r->addr, end = r->addr + r->size;
    if ((r->zone != SP_ZONE_PLAN || plan) && sp_device_idle(d, r, &addr, &end))
      sp_device_chain(d, r, addr, end, &list);
  }
  return sp_device_withdraw(d, list);
}

uint64_t stplan_empty_cache(stplan_device *d) {
  sp_device_lock(d);
  sp_device_lock_growth(d);
  uint64_t total = sp_device_trim(d, !sp_device_plan_served(d));
  sp_device_unlock(d);
  sp_device_unlock_growth(d);
  return total;
}

/* Who gives memory back has the growth lock, so what is under way ends first. */
void stplan_hold(stplan_device *d, int hold) {
  pthread_mutex_lock(&d->growth);
  sp_device_lock(d);
  d->held += hold ? 1 : -1;
  sp_device_unlock(d);
  pthread_mutex_unlock(&d->growth);
}
