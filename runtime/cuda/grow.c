/* grow.c: memory taken from the device and given back. */
#include <stddef.h>

#include "device.h"

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }
static uint64_t round_down(uint64_t n, uint64_t to) { return n / to * to; }

/* lock_growth takes the growth lock, which comes before the device's. */
static void lock_growth(stplan_device *d) {
  pthread_mutex_unlock(&d->lock);
  pthread_mutex_lock(&d->growth);
  pthread_mutex_lock(&d->lock);
}

static int within_limit(const stplan_device *d, uint64_t bytes) {
  uint64_t reserved = d->counters->reserved_bytes;
  return d->limit == 0 || (reserved <= d->limit && bytes <= d->limit - reserved);
}

/* extend asks the device, without the lock. Growth lock held. Locked. */
static int extend(stplan_device *d, uint64_t at, uint64_t bytes, uint64_t *addr) {
  if (!within_limit(d, bytes))
    return 0;
  pthread_mutex_unlock(&d->lock);
  int failed = d->prim.extend(d->prim.self, at, bytes, addr);
  pthread_mutex_lock(&d->lock);
  if (failed)
    return 0;
  d->counters->growths++;
  sp_device_account(d, (int64_t)bytes);
  return 1;
}

/* idle says which bytes [*addr, *end) of a range the device would take back. */
static int idle(const stplan_device *d, const sp_range *r, uint64_t *addr, uint64_t *end) {
  if (r->taken || r->zone == SP_ZONE_PLAN)
    return 0;
  *addr = r->addr;
  *end = r->addr + r->size;
  if (r->first && (r->next == NULL || r->next->first))
    return 1;
  *addr = round_up(*addr, d->prim.granularity);
  *end = round_down(*end, d->prim.granularity);
  return d->prim.partial && *addr < *end;
}

/* last_idle finds the idle range with the highest address below `below`. */
static sp_range *last_idle(const stplan_device *d, uint64_t below, uint64_t *addr, uint64_t *end) {
  sp_range *r = d->arena.last;
  while (r != NULL && (r->addr >= below || !idle(d, r, addr, end)))
    r = r->prev;
  return r;
}

/* move_ends moves the ends of growing extents that are about to lose [addr, end). */
static void move_ends(stplan_device *d, uint64_t addr, uint64_t end) {
  for (int zone = 0; zone < SP_ZONES; zone++)
    if (d->end[zone] == end)
      d->end[zone] = addr;
}

/* trim gives idle memory back and returns the bytes. What the device takes back
 * is out of the arena before the lock is let go of. Growth lock held. Locked. */
static uint64_t trim(stplan_device *d) {
  uint64_t total = 0, addr, end, below = UINT64_MAX;
  pthread_mutex_unlock(&d->lock);
  int failed = d->prim.synchronize(d->prim.self) != 0;
  pthread_mutex_lock(&d->lock);
  while (!failed && sp_device_nodes(d)) {
    sp_range *r = last_idle(d, below, &addr, &end);
    if (r == NULL)
      break;
    below = r->addr;
    move_ends(d, addr, end);
    sp_arena_cut(&d->arena, r, addr, end);
    pthread_mutex_unlock(&d->lock);
    failed = d->prim.give_back(d->prim.self, addr, end - addr) != 0;
    pthread_mutex_lock(&d->lock);
    if (!failed) {
      sp_device_account(d, -(int64_t)(end - addr));
      total += end - addr;
    }
  }
  return total;
}

/* tail is the free range at the end of the zone's growing extent, or NULL. */
static const sp_range *tail(const stplan_device *d, sp_zone zone) {
  const sp_range *r = d->end[zone] == 0 ? NULL : sp_arena_at(&d->arena, d->end[zone] - 1, 1);
  return r != NULL && r->zone == zone ? r : NULL;
}

/* grow_by takes so much that `need` bytes fit at the end of the zone's growing
 * extent. Growth lock held. Locked. */
static int grow_by(stplan_device *d, sp_zone zone, uint64_t need) {
  const sp_range *last = d->prim.partial ? tail(d, zone) : NULL;
  uint64_t have = last == NULL ? 0 : last->size, addr;
  if (have >= need)
    return 1;
  uint64_t bytes = round_up(need - have, d->prim.granularity);
  if (!extend(d, d->end[zone], bytes, &addr))
    return 0;
  sp_arena_add(&d->arena, addr, bytes, zone, d->prim.partial);
  d->end[zone] = addr + bytes;
  return 1;
}

/* grow_fresh takes an extent of its own. Growth lock held. Locked. */
static int grow_fresh(stplan_device *d, sp_zone zone, uint64_t need, uint64_t *addr) {
  uint64_t bytes = round_up(need, d->prim.granularity);
  if (!extend(d, 0, bytes, addr))
    return 0;
  sp_arena_add(&d->arena, *addr, bytes, zone, 0);
  return 1;
}

int sp_device_grow(stplan_device *d, sp_zone zone, uint64_t need, int fresh, uint64_t *addr) {
  int done = 0;
  lock_growth(d);
  for (int trimmed = 0; !done && sp_device_nodes(d); trimmed = 1) {
    if (fresh)
      done = grow_fresh(d, zone, need, addr);
    else
      done = sp_arena_fit(&d->arena, &d->streams, zone, need, 0) != NULL || grow_by(d, zone, need);
    if (done || trimmed)
      break;
    trim(d);
  }
  pthread_mutex_unlock(&d->growth);
  return done;
}

void sp_device_begin(stplan_device *d) {
  lock_growth(d);
  if (!d->begun && sp_device_nodes(d)) {
    uint64_t bytes = d->plan->arena_bytes;
    if (bytes > 0 && extend(d, 0, bytes, &d->plan_base))
      sp_arena_add(&d->arena, d->plan_base, bytes, SP_ZONE_PLAN, 0);
    else if (bytes > 0)
      d->counters->state = STPLAN_OFF; /* for good: it has no memory */
    d->begun = 1;
  }
  pthread_mutex_unlock(&d->growth);
}

uint64_t stplan_empty_cache(stplan_device *d) {
  pthread_mutex_lock(&d->lock);
  lock_growth(d);
  uint64_t total = trim(d);
  pthread_mutex_unlock(&d->lock);
  pthread_mutex_unlock(&d->growth);
  return total;
}
