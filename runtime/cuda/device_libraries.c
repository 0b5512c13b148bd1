#include "device_libraries.h"

#include "device_carry.h"
#include "device_plan.h"
#include "device_trim.h"
#include "device_wait.h"

/* Bytes that are left for libraries. On an H200 a kernel of cuBLAS that was used for the first time failed with
 * 4 MB left on the device; a job of transformers has taken 0.7 GiB outside of torch by its end, nearly all before its
 * first step ends. 16 granules: giving them back and taking them again takes the driver 1.5 ms. */
#define LEAST (UINT64_C(32) << 20)

/* Bytes. If this much of what was given back is gone when memory is taken again, it is not libraries that take it but
 * another process, which would take the rest as well. */
#define MOST_GONE (UINT64_C(256) << 20)

/* Frees between two attempts to give back, at least and at most. Each looks at events and at free ranges, some 50 us; those that
 * find nothing come ever more rarely, until memory is taken again. */
enum { EVERY = 64, SELDOM = 4096 };

/* ask asks the device what it has left. What others have taken since something was given back counts as taken of
 * that. Locked; lets go of the lock. */
static void ask(stplan_device *d) {
  sp_libraries *l = &d->libraries;
  uint64_t bytes = sp_device_left(d); /* if the device does not say, libraries lack nothing */
  l->gone += l->left > bytes ? sp_least(l->left - bytes, l->given) : 0;
  l->given = 0;
  l->known = 1;
  l->asked = l->left = bytes;
}

/* kept says whether libraries are left anything. */
static int kept(const stplan_device *d) { return sp_device_moves(d) && !d->kept && d->before == 0 && d->libraries.gone < MOST_GONE; }

/* lacks is how many bytes are to be given back as soon as they are idle. */
static uint64_t lacks(const stplan_device *d) {
  const sp_libraries *l = &d->libraries;
  return l->known ? LEAST - sp_least(LEAST, l->left) : 0;
}

/* The device is asked again whenever half of what it had has been taken: others take memory too. */
void sp_libraries_look(stplan_device *d) {
  sp_libraries *l = &d->libraries;
  l->every = EVERY;
  if (!l->known || l->left < l->asked / 2 || l->left < 2 * LEAST)
    ask(d);
}

/* A plan says itself what moves for its places, and what it costs. */
int sp_libraries_spare(stplan_device *d, uint64_t bytes) {
  sp_libraries *l = &d->libraries;
  if (!l->known || sp_device_plan_served(d) || !kept(d) || l->left - sp_least(l->left, bytes) >= 2 * LEAST)
    return 0;
  ask(d);
  if (l->left - sp_least(l->left, bytes) >= LEAST)
    return 0;
  l->most = d->counters.reserved_bytes + l->left - sp_least(l->left, LEAST);
  return l->most != 0;
}

void sp_libraries_done(stplan_device *d) { d->libraries.most = 0; }

/* record records an event of the whole device, by which it will be known what the device has done. Locked; may let
 * go of the lock. */
static void record(stplan_device *d) {
  sp_need need;
  if (!sp_streams_reserve(&d->streams, SP_WHOLE, &need))
    return;
  sp_device_unlock(d);
  int done = sp_streams_record(&d->streams, &d->prim, &need);
  sp_device_lock(d);
  sp_streams_settle(&d->streams, -1, &need, 1, done);
  SP_COUNT(d, events_recorded, (uint64_t)done);
}

/* chain chains idle granules of a zone that the device has done with until `bytes` are *found, from the smallest ranges on.
 * Locked; may let go of the lock. Growth lock held. */
static void chain(stplan_device *d, sp_zone zone, uint64_t bytes, sp_range **list, uint64_t *found) {
  uint64_t size = d->prim.granularity, above = 0;
  while (*found < bytes && sp_device_nodes(d)) {
    sp_range *r = sp_arena_next(&d->arena.gaps[zone], size, above);
    if (r == NULL)
      return;
    size = r->size;
    above = r->addr + 1;
    uint64_t addr = r->addr, end = r->addr + r->size;
    if (r->uses.owned > d->streams.done || !sp_device_idle(d, r, &addr, &end))
      continue;
    if (end - addr > bytes - *found)
      addr = sp_round_down(end - (bytes - *found), sp_arena_unit(&d->arena, r));
    *found += end - addr;
    sp_device_chain(d, r, addr, end, list);
  }
}

/* give gives back what libraries lack, as far as the device has done with so much. Locked; lets go of the lock.
 * Growth lock held. */
static void give(stplan_device *d) {
  sp_range *list = NULL;
  sp_clock left = {.owned = 0};
  uint64_t bytes = lacks(d), found = 0;
  sp_carry_uses(d, &left);
  if (left.owned > d->streams.done)
    return; /* these addresses would be waited for */
  chain(d, SP_ZONE_OPEN, bytes, &list, &found);
  chain(d, SP_ZONE_LARGE, bytes, &list, &found);
  chain(d, SP_ZONE_PLAN, bytes, &list, &found);
  uint64_t given = sp_device_withdraw(d, list, SP_TO_MOVE);
  d->libraries.given += given;
  if (given > 0)
    d->libraries.every = EVERY;
}

void sp_libraries_freed(stplan_device *d) {
  sp_libraries *l = &d->libraries;
  const stplan_counters *c = &d->counters;
  if (lacks(d) == 0 || ++l->frees < l->every || !kept(d) || !d->streams.has_whole || c->reserved_bytes - c->allocated_bytes < lacks(d))
    return;
  l->frees = 0;
  l->every = l->every < SELDOM ? 2 * l->every : SELDOM;
  int pending = sp_device_poll(d);
  if (pthread_mutex_trylock(&d->growth) == 0) {
    give(d);
    sp_device_unlock_growth(d);
  }
  if (lacks(d) != 0 && !pending)
    record(d);
}
