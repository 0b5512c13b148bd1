#include "device_move.h"

#include "device_carry.h"
#include "device_plan.h"
#include "device_trim.h"

/* Memory moves from a free range only if at least three quarters of it can: the rest fits
 * nothing much. Of 3/4, 7/8 and 15/16 this reserves the least over the recordings. Of
 * large granules a half will do, as more of a range is in those at its ends: of 1/4, 1/2 and
 * 3/4, 1/4 and 1/2 reserve 0.03 % less on average than 3/4. So it will in a run that is `far` beyond what
 * it allocates (far_beyond): what is idle then lies in many ranges of a few granules. */
static uint64_t worth_moving(uint64_t size, sp_zone zone, int far) { return zone == SP_ZONE_LARGE || far ? size / 2 : size / 4 * 3; }

/* Bytes. If the request itself needs a part of a free range, memory moves from
 * the rest only if that has at least this. Of 32, 64 and 128 MiB this reserves
 * the least over the recordings; others were not tried. A run that is `far` beyond what it allocates moves any rest: one
 * that trained GPT-2 took 48 MiB from the device beside 52 that were idle (docs/results/pool.md). */
#define REST_LEAST (UINT64_C(64) << 20)

/* chain_zone chains idle bytes of a zone until `bytes` are *found, from its
 * smallest ranges on, but none of [low, high). It may chain a granule more. `far` is what
 * far_beyond says. Locked; may let go of the lock. */
static void chain_zone(stplan_device *d, sp_zone zone, int far, uint64_t bytes, uint64_t low, uint64_t high, sp_range **list, uint64_t *found) {
  uint64_t size = d->prim.granularity, above = 0;
  while (*found < bytes && sp_device_nodes(d)) {
    sp_range *r = sp_arena_next(&d->arena.gaps[zone], size, above);
    if (r == NULL)
      break;
    size = r->size;
    above = r->addr + 1;
    uint64_t addr = r->addr, end = r->addr + r->size;
    sp_larger_part(&addr, &end, low, high);
    uint64_t outside = end - addr;
    if (!sp_device_idle(d, r, &addr, &end) || end - addr < worth_moving(outside, zone, far) || (outside < r->size && !far && end - addr < REST_LEAST))
      continue;
    if (d->prim.partial && end - addr > bytes - *found)
      addr = sp_round_down(end - (bytes - *found), sp_arena_unit(&d->arena, r));
    *found += end - addr;
    sp_device_chain(d, r, addr, end, list);
  }
}

/* chain_plan chains what moves from the plan's memory to make room for `bytes`, `more` of
 * which are about to be allocated: idle parts, which come back when their places are asked
 * for. If they do not suffice and the plan costs more than it is worth, it ends here, and any
 * part moves. Then the answer is 0. Locked. */
static int chain_plan(stplan_device *d, uint64_t bytes, uint64_t more, uint64_t low, uint64_t high, sp_range **list, uint64_t *found) {
  chain_zone(d, SP_ZONE_PLAN, 0, bytes, low, high, list, found);
  if (*found >= bytes || !sp_device_plan_costs(d, bytes - *found, more, SP_EXCESS_ENDS))
    return 1;
  sp_device_plan_yield(d);
  chain_zone(d, SP_ZONE_OPEN, 0, bytes, low, high, list, found);
  chain_zone(d, SP_ZONE_LARGE, 0, bytes, low, high, list, found);
  return 0;
}

/* price is what moving a list costs, as bytes in the least granules: the driver takes as long
 * for one granule as for another, whatever its size. */
static uint64_t price(const stplan_device *d, const sp_range *list) {
  uint64_t granules = 0;
  for (; list != NULL; list = list->chain)
    granules += sp_round_up(list->size, sp_arena_unit(&d->arena, list)) / sp_arena_unit(&d->arena, list);
  return granules * d->prim.granularity;
}

/* Memory moves for any need, not only for SP_MOVE_LEAST and more, in a run that no plan serves and that has
 * far more than it allocates. Few get there: small jobs, few of whose requests lack so much, and those whose
 * plan has left them, among whose blocks free ranges often lack a few granules for a request. One of
 * 3 GiB came to reserve 4.8 % more than it allocates. It has to have SP_MOVE_LEAST beyond that: less is not
 * worth a stall, and what moves leaves holes that later requests lack memory for. */
static int far_beyond(const stplan_device *d, uint64_t bytes, uint64_t more) {
  return !sp_device_plan_served(d) && sp_debt_far(&d->counters, bytes, more, SP_MOVE_LEAST);
}

/* owed_for is what a run owes for having moved `moved` bytes, `price` in the least granules, to a
 * request that lacked `bytes`. For less than SP_MOVE_LEAST the stall is most of what a move
 * costs, so it is owed as a move of that: small moves are no more frequent than others. */
static uint64_t owed_for(uint64_t bytes, uint64_t moved, uint64_t price) {
  if (moved > 0 && bytes < SP_MOVE_LEAST)
    return SP_MOVE_LEAST;
  return sp_least(price, moved);
}

/* suffices says whether `bytes` may be taken without memory moving for them, `more` of which are
 * about to be allocated. */
static int suffices(const stplan_device *d, uint64_t bytes, uint64_t more, int far) {
  const stplan_counters *c = &d->counters;
  int fits = c->reserved_bytes + bytes <= c->peak_reserved_bytes || (!far && bytes < SP_MOVE_LEAST);
  return fits && !d->refused && sp_device_may_take(d, bytes) && !sp_device_plan_costs(d, bytes, more, SP_EXCESS_LENDS);
}

/* follow moves what places have left behind that lie elsewhere now. It is owed. Locked; lets go of the
 * lock. Growth lock held. */
static void follow(stplan_device *d, uint64_t low, uint64_t high) {
  const sp_range *r = sp_arena_holding(&d->arena, low);
  if (r == NULL)
    return; /* the addresses have gone with the last of their memory */
  uint64_t unit = sp_arena_unit(&d->arena, r);
  sp_debt_add(&d->debt, sp_device_gather(d, low, high) / unit * d->prim.granularity);
}

int sp_device_make_room(stplan_device *d, uint64_t bytes, uint64_t low, uint64_t high) {
  const stplan_counters *c = &d->counters;
  if (d->still)
    return 1;
  uint64_t first, end;
  if (sp_device_plan_leaves(d, &first, &end))
    sp_device_gather(d, first, end);
  uint64_t more = high > low ? sp_least(bytes, high - low) : bytes; /* without what whole granules have beyond it */
  int far = far_beyond(d, bytes, more);
  if (suffices(d, bytes, more, far))
    return 1;
  if (sp_device_plan_strays(d, &first, &end)) {
    follow(d, first, end);
    if (suffices(d, bytes, more, far))
      return 1;
  }
  int may_take = !d->refused && sp_device_may_take(d, bytes);
  int spent = may_take && !sp_debt_allows(&d->debt, c, bytes, !sp_device_plan_served(d));
  if (spent && !sp_device_plan_costs(d, bytes, more, SP_EXCESS_ENDS))
    return 1;
  if (spent)
    sp_device_plan_yield(d); /* what moves for that moves once */
  sp_range *list = NULL;
  uint64_t found = 0;
  if (!sp_device_plan_served(d))
    chain_zone(d, SP_ZONE_PLAN, far, bytes, low, high, &list, &found); /* what a plan on trial has left */
  chain_zone(d, SP_ZONE_SMALL, far, bytes, low, high, &list, &found);
  chain_zone(d, SP_ZONE_OPEN, far, bytes, low, high, &list, &found);
  chain_zone(d, SP_ZONE_LARGE, far, bytes, low, high, &list, &found);
  int may_add = may_take && !sp_device_plan_costs(d, bytes - found, more, SP_EXCESS_LENDS);
  int served = !spent && (may_add || chain_plan(d, bytes, more, low, high, &list, &found));
  uint64_t granules = price(d, list), carried = served ? sp_carry_take(d, &list, low) : 0;
  uint64_t given = sp_device_withdraw(d, list, SP_TO_MOVE), moved = carried + given;
  SP_COUNT(d, moved_bytes, given);
  sp_debt_add(&d->debt, far ? owed_for(bytes, moved, granules) : sp_least(granules, moved));
  return served;
}
