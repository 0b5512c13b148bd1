/* device_move.c: memory that nobody uses is given back, or moved to where it is used. */
#include <stddef.h>

#include "device.h"

/* Memory moves from free ranges of which at least three quarters can: what is left
 * beside fits nothing much; and from the rest of one that the need itself takes a part
 * of only where that rest has at least REST_LEAST. Of shares of 3/4, 7/8 and 15/16 and
 * rests from 32, 64 and 128 MiB these reserve the least over the recordings; others
 * were not tried. */
#define REST_LEAST (UINT64_C(64) << 20)

/* Bytes that move are owed, up to a CREDITth of the most that has been reserved and, for
 * each byte that would lie idle at the peak, IDLE more: the more a run has beyond what
 * it allocates, the longer memory moves before it has more. A byte is repaid for every
 * REPAID that are allocated. Beyond that memory is added: without a bound a run that
 * repeats moves as much in every iteration, for ever, where a little more memory would
 * do. docs/runtime.md says why these. */
enum { CREDIT = 2, IDLE = 32, REPAID = 1000 };

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }
static uint64_t round_down(uint64_t n, uint64_t to) { return n / to * to; }

/* in_plan says whether a range belongs to the plan's memory. */
static int in_plan(const stplan_device *d, const sp_range *r) {
  return d->plan_base != 0 && r->addr >= d->plan_base && r->addr - d->plan_base < d->plan->arena_bytes;
}

/* idle narrows bytes [*addr, *end) of a range to those that the device would take
 * back. Of the plan's memory the first granule stays, so that its addresses stay
 * ours; all of it does where it came in one piece. */
static int idle(const stplan_device *d, const sp_range *r, uint64_t *addr, uint64_t *end) {
  if (r->taken || r->absent)
    return 0;
  int planned = in_plan(d, r), last = *end == r->addr + r->size && (r->next == NULL || r->next->first);
  if (r->first && last && *addr == r->addr && !planned)
    return 1;
  if (planned && *addr == d->plan_base)
    *addr += d->prim.granularity;
  *addr = round_up(*addr, d->prim.granularity);
  if (!last)
    *end = round_down(*end, d->prim.granularity);
  return d->prim.partial && *addr < *end;
}

/* chain takes idle bytes of a range out of use. Needs nodes. Locked. */
static void chain(stplan_device *d, sp_range *gap, uint64_t addr, uint64_t end, sp_range **list) {
  sp_range *r = sp_arena_take(&d->arena, gap, addr, end - addr);
  r->leaving = 1;
  r->chain = *list;
  *list = r;
}

/* forget_ends forgets the ends of growing extents that are gone: their addresses may
 * be another's from now on. Locked. */
static void forget_ends(stplan_device *d) {
  for (int zone = 0; zone < SP_ZONES; zone++)
    if (d->end[zone] != 0 && sp_arena_holding(&d->arena, d->end[zone] - 1) == NULL)
      d->end[zone] = 0;
}

/* withdraw gives the device back what is chained and returns the bytes. Streams
 * may still use it, so the device is waited for first. Growth lock held. Locked;
 * lets go of the lock. */
static uint64_t withdraw(stplan_device *d, sp_range *list) {
  uint64_t total = 0;
  if (list == NULL)
    return 0;
  int failed = d->held > 0;
  pthread_mutex_unlock(&d->lock);
  failed = failed || d->prim.synchronize(d->prim.self) != 0;
  pthread_mutex_lock(&d->lock);
  while (list != NULL) {
    sp_range *r = list;
    list = r->chain;
    pthread_mutex_unlock(&d->lock);
    if (!failed) {
      sp_device_notify(d, 0, r->addr, r->size);
      failed = d->prim.give_back(d->prim.self, r->addr, r->size) != 0;
    }
    pthread_mutex_lock(&d->lock);
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
    if ((r->zone != SP_ZONE_PLAN || plan) && idle(d, r, &addr, &end))
      chain(d, r, addr, end, &list);
  }
  return withdraw(d, list);
}

/* beside is the larger part of free memory [*addr, *end) outside [low, high). */
static void beside(uint64_t *addr, uint64_t *end, uint64_t low, uint64_t high) {
  if (*addr >= high || *end <= low)
    return;
  uint64_t before = low > *addr ? low - *addr : 0, behind = *end > high ? *end - high : 0;
  if (before >= behind)
    *end = *addr + before;
  else
    *addr = *end - behind;
}

/* chain_zone chains idle bytes of a zone until `bytes` are *found, from its smallest
 * ranges on, but none of [low, high). They may be a granule more. */
static void chain_zone(stplan_device *d, sp_zone zone, uint64_t bytes, uint64_t low, uint64_t high, sp_range **list, uint64_t *found) {
  uint64_t size = d->prim.granularity, above = 0;
  while (*found < bytes && sp_device_nodes(d)) {
    sp_range *r = sp_arena_next(&d->arena.gaps[zone], size, above);
    if (r == NULL)
      break;
    size = r->size;
    above = r->addr + 1;
    uint64_t addr = r->addr, end = r->addr + r->size;
    beside(&addr, &end, low, high);
    uint64_t outside = end - addr;
    if (!idle(d, r, &addr, &end) || end - addr < outside / 4 * 3 || (outside < r->size && end - addr < REST_LEAST))
      continue;
    if (d->prim.partial && end - addr > bytes - *found)
      addr = round_down(end - (bytes - *found), d->prim.granularity);
    *found += end - addr;
    chain(d, r, addr, end, list);
  }
}

int sp_device_served(const stplan_device *d) {
  return d->plan != NULL && !d->suspended && d->counters->state != STPLAN_ENDED;
}

/* dear says whether the plan is served and takes more than it is worth, with `taken`
 * bytes more reserved, or less. Locked. */
static int dear(const stplan_device *d, uint64_t taken, uint64_t more, sp_slack slack) {
  return sp_device_served(d) && sp_device_over(d, taken, more, slack);
}

/* chain_plan chains what moves from the plan's memory to make room for `bytes`:
 * idle parts, that come back when their place is asked for; or, where that is not
 * enough and more would be reserved than the plan is worth, any part, as the plan ends
 * here. 0 where it does. Locked. */
static int chain_plan(stplan_device *d, uint64_t bytes, uint64_t low, uint64_t high, sp_range **list, uint64_t *found) {
  chain_zone(d, SP_ZONE_PLAN, bytes, low, high, list, found);
  if (*found >= bytes || !dear(d, bytes - *found, bytes, SP_SLACK_ENDS))
    return 1;
  sp_device_give_up(d);
  chain_zone(d, SP_ZONE_OPEN, bytes, low, high, list, found);
  return 0;
}

/* affordable says whether the run may move more rather than reserve `bytes` more, with
 * what it owes for bytes that moved before, less what it has repaid since. Locked. */
static int affordable(stplan_device *d, uint64_t bytes) {
  const stplan_counters *c = d->counters;
  uint64_t repaid = (c->allocation_bytes - d->repaid_at) / REPAID, total = c->reserved_bytes + bytes;
  uint64_t idle = total > c->peak_allocated_bytes ? total - c->peak_allocated_bytes : 0;
  d->moved_debt -= repaid < d->moved_debt ? repaid : d->moved_debt;
  d->repaid_at = c->allocation_bytes;
  return d->moved_debt <= c->peak_reserved_bytes / CREDIT + idle * IDLE;
}

int sp_device_make_room(stplan_device *d, uint64_t bytes, uint64_t low, uint64_t high) {
  stplan_counters *c = d->counters;
  int fits = c->reserved_bytes + bytes <= c->peak_reserved_bytes || bytes < SP_MOVE_LEAST;
  int may_take = sp_device_may_take(d, bytes);
  if (fits && may_take && !dear(d, bytes, bytes, SP_SLACK_LENDS))
    return 1;
  int spent = may_take && !affordable(d, bytes);
  if (spent && !dear(d, bytes, bytes, SP_SLACK_ENDS))
    return 1;
  if (spent)
    sp_device_give_up(d); /* what moves for that moves once */
  sp_range *list = NULL;
  uint64_t found = 0;
  chain_zone(d, SP_ZONE_SMALL, bytes, low, high, &list, &found);
  chain_zone(d, SP_ZONE_OPEN, bytes, low, high, &list, &found);
  int served = !spent && (!dear(d, bytes - found, bytes, SP_SLACK_LENDS) || chain_plan(d, bytes, low, high, &list, &found));
  uint64_t moved = withdraw(d, list);
  d->counters->moved_bytes += moved; /* which may be shared by now */
  d->moved_debt += moved;
  return served;
}

uint64_t stplan_empty_cache(stplan_device *d) {
  pthread_mutex_lock(&d->lock);
  sp_device_lock_growth(d);
  uint64_t total = sp_device_trim(d, 0);
  pthread_mutex_unlock(&d->lock);
  pthread_mutex_unlock(&d->growth);
  return total;
}
