/* device_grow.c: memory taken from the device. */
#include <stddef.h>

#include "device.h"

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

void sp_device_lock_growth(stplan_device *d) {
  pthread_mutex_unlock(&d->lock);
  pthread_mutex_lock(&d->growth);
  pthread_mutex_lock(&d->lock);
}

int sp_device_may_take(const stplan_device *d, uint64_t bytes) {
  uint64_t reserved = d->counters->reserved_bytes;
  return d->limit == 0 || (reserved <= d->limit && bytes <= d->limit - reserved);
}

/* extend asks the device, without the lock, with `at` 0 for addresses of `room` bytes.
 * Growth lock held. Locked. */
static int extend(stplan_device *d, uint64_t at, uint64_t bytes, uint64_t room, uint64_t *addr) {
  if (!sp_device_may_take(d, bytes))
    return 0;
  pthread_mutex_unlock(&d->lock);
  int failed = d->prim.extend(d->prim.self, at, bytes, room, addr);
  if (!failed)
    sp_device_notify(d, 1, *addr, bytes);
  pthread_mutex_lock(&d->lock);
  if (failed)
    return 0;
  d->counters->growths++;
  sp_device_account(d, (int64_t)bytes);
  return 1;
}

/* A window is where memory can come for a request: its first address, how many of
 * its bytes are absent, and whether it goes on behind the zone's growing extent. */
typedef struct {
  uint64_t addr, missing;
  int open;
} window;

/* along is the window of `need` bytes from a range on, upwards or downwards. 0
 * where something is in the way. */
static int along(const stplan_device *d, const sp_range *r, int up, sp_zone zone, uint64_t need, window *w) {
  uint64_t left = need;
  *w = (window){.addr = up ? r->addr : r->addr + r->size - need};
  for (;;) {
    if (r->taken || r->zone != zone)
      return 0;
    if (r->absent)
      w->missing += least(left, r->size);
    left -= least(left, r->size);
    int edge = up ? r->next == NULL || r->next->first : r->first;
    if (left > 0 && up && edge && r->addr + r->size == d->end[zone]) {
      w->missing += left;
      w->open = 1;
      return 1;
    }
    if (left == 0 || edge)
      return left == 0;
    r = up ? r->next : r->prev;
  }
}

/* consider keeps the better of two windows: that which misses less. */
static void consider(const stplan_device *d, const sp_range *r, int up, sp_zone zone, uint64_t need, window *best) {
  window w;
  if (along(d, r, up, zone, need, &w) && w.missing < best->missing)
    *best = w;
}

/* free_beside is the free range before or behind an absent one, or itself. */
static const sp_range *free_beside(const sp_range *r, int before) {
  const sp_range *n = before ? r->prev : r->next;
  int apart = before ? r->first : n != NULL && n->first;
  return n != NULL && !apart && !n->taken && n->zone == r->zone ? n : r;
}

/* find_window is the best window for a request: beside something absent, or at the
 * end of the growing extent. 0 where that extent has no end yet. */
static int find_window(const stplan_device *d, sp_zone zone, uint64_t need, window *best) {
  *best = (window){.missing = UINT64_MAX};
  const sp_range *last = d->end[zone] == 0 ? NULL : sp_arena_holding(&d->arena, d->end[zone] - 1);
  if (last != NULL && last->taken)
    *best = (window){.addr = d->end[zone], .missing = need, .open = 1};
  else if (last != NULL)
    consider(d, last->absent ? free_beside(last, 1) : last, 1, zone, need, best);
  for (const sp_range *r = sp_arena_next(&d->arena.absent, 0, 0); r != NULL; r = sp_arena_larger(r)) {
    if (r->zone != zone)
      continue;
    consider(d, free_beside(r, 1), 1, zone, need, best);
    consider(d, free_beside(r, 0), 0, zone, need, best);
  }
  return best->missing != UINT64_MAX;
}

/* commit takes memory for what is absent of [addr, end), as far as it lies in
 * extents. Growth lock held. Locked. */
static int commit(stplan_device *d, uint64_t addr, uint64_t end) {
  uint64_t got;
  sp_range *r = sp_arena_holding(&d->arena, addr);
  while (r != NULL && r->addr < end) {
    uint64_t low = r->addr, high = r->addr + r->size;
    if (r->absent) {
      low = addr > low ? addr / d->prim.granularity * d->prim.granularity : low;
      high = least(high, round_up(end, d->prim.granularity));
      if (!sp_device_nodes(d) || !extend(d, low, high - low, 0, &got))
        return 0;
      sp_arena_commit(&d->arena, r, low, high - low);
    }
    if (high >= end)
      return 1;
    r = sp_arena_holding(&d->arena, high);
  }
  return 1;
}

/* grow_fresh takes an extent of its own. Growth lock held. Locked. */
static int grow_fresh(stplan_device *d, sp_zone zone, uint64_t need, uint64_t *addr) {
  uint64_t bytes = round_up(need, d->prim.granularity);
  if (!extend(d, 0, bytes, bytes, addr))
    return 0;
  sp_arena_add(&d->arena, *addr, bytes, zone, 0, SP_FREE);
  return 1;
}

/* grow_end makes the growing extent go on to `end`. Growth lock held. Locked. */
static int grow_end(stplan_device *d, sp_zone zone, uint64_t end) {
  uint64_t from = d->end[zone], addr;
  if (end <= from)
    return 1;
  uint64_t bytes = round_up(end - from, d->prim.granularity);
  if (!extend(d, from, bytes, 0, &addr))
    return 0;
  sp_arena_add(&d->arena, from, bytes, zone, 1, SP_FREE);
  d->end[zone] = from + bytes;
  return 1;
}

/* fill takes what a window misses. Growth lock held. Locked. */
static int fill(stplan_device *d, sp_zone zone, uint64_t need, const window *w) {
  uint64_t end = w->addr + need;
  return sp_device_nodes(d) && commit(d, w->addr, end) && (!w->open || (sp_device_nodes(d) && grow_end(d, zone, end)));
}

/* clear makes room for what a window misses, and says how many bytes that is. Growth
 * lock held. Locked. */
static uint64_t clear(stplan_device *d, uint64_t need, const window *w) {
  uint64_t bytes = round_up(w->missing, d->prim.granularity);
  sp_device_make_room(d, bytes, w->addr, w->addr + need);
  return bytes;
}

/* fill_lot gives the zone of small blocks as much at once as is worth moving, from what
 * is idle elsewhere, if there is as much. What small blocks lack is never worth a stall,
 * so that they would take new memory, a granule at a time, beside any that is idle. Where
 * a plan is served it is that which says what moves. Growth lock held. Locked. */
static int fill_lot(stplan_device *d, sp_zone zone) {
  const stplan_counters *c = d->counters;
  window w;
  if (zone != SP_ZONE_SMALL || sp_device_served(d) || c->reserved_bytes + d->prim.granularity <= c->peak_reserved_bytes ||
      !find_window(d, zone, SP_MOVE_LEAST, &w))
    return 0;
  uint64_t bytes = clear(d, SP_MOVE_LEAST, &w);
  return c->reserved_bytes + bytes <= c->peak_reserved_bytes && fill(d, zone, SP_MOVE_LEAST, &w);
}

/* grow_by takes so much that `need` bytes fit into the zone. Growth lock held.
 * Locked. */
static int grow_by(stplan_device *d, sp_zone zone, uint64_t need) {
  window w;
  uint64_t addr;
  if (d->prim.partial && fill_lot(d, zone))
    return 1;
  int found = d->prim.partial && find_window(d, zone, need, &w);
  if (found) {
    clear(d, need, &w);
    if (fill(d, zone, need, &w))
      return 1;
  }
  if (!found)
    sp_device_make_room(d, round_up(need, d->prim.granularity), 0, 0);
  if (!sp_device_nodes(d) || !grow_fresh(d, zone, need, &addr))
    return 0;
  if (d->prim.partial)
    d->end[zone] = addr + round_up(need, d->prim.granularity);
  return 1;
}

int sp_device_grow(stplan_device *d, sp_zone zone, uint64_t need, int fresh, uint64_t *addr) {
  int done = 0;
  sp_device_lock_growth(d);
  for (int trimmed = 0; !done && sp_device_nodes(d); trimmed = 1) {
    if (fresh)
      done = grow_fresh(d, zone, need, addr);
    else
      done = sp_arena_fit(&d->arena, &d->streams, zone, need, 0) != NULL || grow_by(d, zone, need);
    if (done || trimmed)
      break;
    sp_device_trim(d, 1);
  }
  pthread_mutex_unlock(&d->growth);
  return done;
}

void sp_device_begin(stplan_device *d) {
  sp_device_lock_growth(d);
  if (!d->begun && sp_device_nodes(d)) {
    uint64_t bytes = d->plan->arena_bytes, first = d->prim.partial ? least(bytes, d->prim.granularity) : bytes;
    if (bytes > 0 && bytes <= SP_LARGEST && extend(d, 0, first, bytes, &d->plan_base)) {
      sp_arena_add(&d->arena, d->plan_base, first, SP_ZONE_PLAN, 0, SP_FREE);
      if (first < bytes)
        sp_arena_add(&d->arena, d->plan_base + first, bytes - first, SP_ZONE_PLAN, 1, SP_ABSENT);
    } else if (bytes > 0) {
      d->counters->state = STPLAN_OFF; /* for good: it has no memory */
    }
    d->begun = 1;
  }
  pthread_mutex_unlock(&d->growth);
}

/* missing is how many of these bytes are absent. */
static uint64_t missing(const sp_range *r, uint64_t addr, uint64_t end) {
  uint64_t bytes = 0;
  for (; r != NULL && r->addr < end; r = r->next) {
    uint64_t low = r->addr > addr ? r->addr : addr;
    if (r->absent)
      bytes += least(r->addr + r->size, end) - low;
  }
  return bytes;
}

int sp_device_commit(stplan_device *d, uint64_t addr, uint64_t size) {
  int done = 1;
  sp_device_lock_growth(d);
  const sp_range *r = sp_arena_absent(&d->arena, addr, size);
  if (r != NULL) {
    uint64_t bytes = round_up(missing(r, addr, addr + size), d->prim.granularity);
    int served = sp_device_make_room(d, bytes, addr, addr + size);
    done = served && commit(d, addr, addr + size);
    if (served && !done)
      sp_device_give_up(d); /* the device is too small for it */
  }
  pthread_mutex_unlock(&d->growth);
  return done;
}
