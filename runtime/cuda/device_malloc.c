/* device_malloc.c: requests. docs/runtime.md ("A request") has the order in
 * which memory is looked for. */
#include <string.h>

#include "device_defer.h"
#include "device_grow.h"
#include "device_history.h"
#include "device_install.h"
#include "device_move.h"
#include "device_plan.h"
#include "device_wait.h"

/* Bytes. Blocks up to this have a zone of their own. In runs of 40 iterations
 * more, mixtures of experts reserve more than expandable segments would with 64
 * KiB, 128 KiB and 1 MiB (docs/results/replay.md). */
enum { SMALL = 256 << 10 };

/* request is one on its way through this file. */
typedef struct {
  uint64_t need; /* aligned bytes */
  uint64_t room; /* bytes that it takes where the plan has no place for it (halves.h) */
  sp_place place;
  int commits; /* memory has been asked for what is absent of its place: once is enough */
  int home;    /* it has its place */
  int hole;    /* its place was taken, and it has other memory of the plan */
  int detour;  /* its place was taken, and lies elsewhere now: once is enough */
  int grown;   /* memory was taken from the device for it */
  sp_zone zone;
  int stream;
  stplan_source source;
} request;

/* plan_gap is a free range of the plan's memory for a request that has no place
 * there, from *addr on, or NULL: bytes that no step needs soon. Not for a
 * stray, which would still be there later. Any free range will do if the device
 * would otherwise have to give more than the plan is worth; best is what is needed the latest. */
static sp_range *plan_gap(const stplan_device *d, const request *q, uint64_t *addr) {
  if (!sp_device_plan_served(d) || (q->zone == SP_ZONE_SMALL && sp_device_plan_small_apart(d)))
    return NULL;
  int any = sp_device_plan_costs(d, q->room, q->room, SP_EXCESS_LENDS);
  sp_range *gap = q->place.stray ? NULL : sp_device_plan_gap(d, q->room, any, addr);
  if (gap == NULL && any) {
    gap = sp_arena_fit(&d->arena, &d->streams, SP_ZONE_PLAN, q->room, q->stream);
    *addr = gap == NULL ? 0 : gap->addr;
  }
  return gap;
}

/* lacks_memory says whether the request's place is free but has no memory for
 * some of it, and that has not been asked for. */
static int lacks_memory(const stplan_device *d, const request *q) {
  return q->place.planned && !q->commits && sp_arena_absent(&d->arena, q->place.address, q->need) != NULL;
}

/* choose_planned takes the request's place, or, if that is taken, a hole in the
 * plan. NULL if there is neither. Locked. */
static sp_range *choose_planned(stplan_device *d, request *q) {
  uint64_t addr = q->place.address;
  sp_range *gap = sp_arena_at(&d->arena, addr, q->need);
  q->home = gap != NULL;
  if (gap == NULL) {
    SP_COUNT(d, clashes, 1);
    gap = sp_device_plan_hole(d, &q->place, q->need, &addr);
    q->hole = gap != NULL;
  }
  if (gap == NULL)
    return NULL;
  q->source = STPLAN_FROM_PLAN;
  return sp_arena_take(&d->arena, gap, addr, q->need);
}

/* lowest and best look for a large block's memory where granules are small first: there it
 * can be moved to the byte, nearly, and what is left of it is of use to smaller ones. */
static sp_range *lowest(const stplan_device *d, uint64_t need) {
  sp_range *r = sp_arena_lowest(&d->arena, SP_ZONE_OPEN, need);
  return r != NULL ? r : sp_arena_lowest(&d->arena, SP_ZONE_LARGE, need);
}

static sp_range *best(const stplan_device *d, const request *q) {
  sp_range *r = sp_arena_fit(&d->arena, &d->streams, SP_ZONE_OPEN, q->room, q->stream);
  return r != NULL ? r : sp_arena_fit(&d->arena, &d->streams, SP_ZONE_LARGE, q->room, q->stream);
}

/* fit is a free range for the request outside of the plan's memory, or NULL. If memory moves,
 * large blocks go to low addresses, so that what is free at the other end stays in one piece
 * and less has to move. If it does not, free memory in pieces of its own is best left to what fits it, and
 * the lowest address would reserve 0.4 % more on average. Small blocks go to where they fit
 * best and need no wait (docs/results/pool.md). */
static sp_range *fit(const stplan_device *d, const request *q) {
  if (q->zone != SP_ZONE_OPEN)
    return sp_arena_fit(&d->arena, &d->streams, q->zone, q->room, q->stream);
  return sp_device_moves(d) ? lowest(d, q->room) : best(d, q);
}

/* detours has the request's place, which is taken, lie elsewhere. That moves the memory
 * of the place, so it is for needs that memory moves for. */
static int detours(stplan_device *d, request *q) {
  if (q->detour || q->need < SP_MOVE_LEAST || !sp_device_plan_detour(d, &q->place))
    return 0;
  q->detour = q->place.planned = 1;
  q->commits = 0;
  return 1;
}

/* Granules. In a run that has reserved fewer than SMALL_POOL, a block of WHOLE_LEAST to WHOLE_MOST lies on whole ones if it
 * can (start). Larger blocks have most of their memory in whole granules wherever they lie, and so has a larger run: with
 * 12 GiB or no bound in place of 8 one of experts reserves more than expandable segments would in 40 more iterations, with 4
 * one reserves more than 2 % beyond what it allocates. With up to 4, 8, 16, 32 and 64 granules and no other bound 63 recordings
 * reserve 0.07, 0.07, 0.09, 0.08 and 0.08 % less on average. With blocks of one granule too, an image classifier
 * reserves as much as expandable segments would (docs/results/pool.md). */
enum { SMALL_POOL = 4096, WHOLE_LEAST = 2, WHOLE_MOST = 16 };

/* on_whole says whether a request is to lie on whole granules of `unit` in a free range. */
static int on_whole(const stplan_device *d, const request *q, const sp_range *gap, uint64_t unit) {
  int small = d->counters.peak_reserved_bytes < SMALL_POOL * d->prim.granularity;
  int some = q->room % unit == 0 && q->room >= WHOLE_LEAST * unit && q->room <= WHOLE_MOST * unit;
  return some && small && sp_device_moves(d) && gap->zone == SP_ZONE_OPEN;
}

/* start is the address of a request in a free range. A block that is to lie on whole granules (on_whole) begins at one, if
 * the range has room: all of its memory can move when it is free. Otherwise it shares a granule with
 * a neighbour at either end, and a small job keeps one to three per cent in such ends. */
static uint64_t start(const stplan_device *d, const request *q, const sp_range *gap) {
  uint64_t unit = sp_arena_unit(&d->arena, gap), whole = sp_round_up(gap->addr, unit);
  return on_whole(d, q, gap, unit) && whole + q->room <= gap->addr + gap->size ? whole : gap->addr;
}

/* choose takes a free range for the request, or NULL if none fits, or if it still has a
 * place, which lies elsewhere now. Locked. */
static sp_range *choose(stplan_device *d, request *q) {
  int planned = q->place.planned;
  q->home = q->hole = 0;
  if (planned) {
    q->place.planned = 0; /* one try: a place that is taken now is not waited for */
    sp_range *r = choose_planned(d, q);
    if (r != NULL)
      return r;
  }
  uint64_t addr;
  sp_range *gap = fit(d, q);
  if (gap == NULL && planned && detours(d, q))
    return NULL;
  if (gap != NULL)
    addr = start(d, q, gap);
  else
    gap = plan_gap(d, q, &addr);
  if (gap == NULL)
    return NULL;
  q->source = q->grown ? STPLAN_FROM_GROW : STPLAN_FROM_GAP;
  return sp_arena_take(&d->arena, gap, addr, q->room);
}

/* order makes the request's stream wait for what used the range; if it has to
 * wait, it lets go of the lock. 0 if it cannot be made to, and then the range
 * is free again. Locked. */
static int order(stplan_device *d, const request *q, sp_range *r) {
  sp_need needs[SP_SOURCES];
  if (!sp_streams_waits(&d->streams, &r->uses, q->stream))
    return 1;
  sp_device_look(d);
  int count = sp_streams_needs(&d->streams, &r->uses, q->stream, needs);
  uint64_t told = d->streams.told;
  int done = count == 0; /* the device has done with it by now */
  if (count > 0) {
    sp_device_unlock(d);
    done = sp_streams_perform(&d->streams, &d->prim, q->stream, needs, count, told) == 0;
    sp_device_lock(d);
    sp_streams_settle(&d->streams, q->stream, needs, count, done);
  }
  if (!done) {
    sp_arena_give(&d->arena, r);
    return 0;
  }
  SP_COUNT(d, waits, (uint64_t)count);
  for (int i = 0; i < count; i++)
    SP_COUNT(d, events_recorded, (uint64_t)needs[i].record);
  return 1;
}

/* elsewhere finds another zone that has room, for a request that neither its
 * own zone nor the device has memory for. Locked. */
static int elsewhere(stplan_device *d, request *q) {
  for (int zone = 0; zone < SP_ZONES; zone++) {
    if (sp_arena_fit(&d->arena, &d->streams, (sp_zone)zone, q->room, q->stream) == NULL)
      continue;
    q->zone = (sp_zone)zone;
    q->grown = 0;
    return 1;
  }
  return 0;
}

/* unwaited finds memory that needs no wait, as what was chosen cannot be waited for now: a
 * free range, whatever its size, or new memory. NULL if there is none. Locked; lets go of
 * the lock. */
static sp_range *unwaited(stplan_device *d, request *q) {
  uint64_t addr;
  q->home = q->hole = 0;
  if (!sp_device_nodes(d))
    return NULL;
  sp_range *ready = sp_arena_ready(&d->arena, &d->streams, q->zone, q->room, q->stream);
  if (ready == NULL && q->zone == SP_ZONE_OPEN)
    ready = sp_arena_ready(&d->arena, &d->streams, SP_ZONE_LARGE, q->room, q->stream);
  if (ready != NULL) {
    q->source = STPLAN_FROM_GAP;
    return sp_arena_take(&d->arena, ready, ready->addr, q->room);
  }
  if (!sp_device_grow(d, q->zone, q->room, q->stream, 1, &addr))
    return NULL;
  q->source = STPLAN_FROM_GROW;
  return sp_arena_take(&d->arena, sp_arena_at(&d->arena, addr, q->room), addr, q->room);
}

/* find repeats until the request has a range that its stream may touch. NULL if
 * there is no memory. Locked; lets go of the lock. */
static sp_range *find(stplan_device *d, request *q) {
  uint64_t addr;
  for (;;) {
    if (!sp_device_nodes(d))
      return NULL;
    if (!sp_device_plan_said(d, &q->place))
      q->place.planned = 0;
    if (q->place.planned && sp_device_deferred(d, q->place.address, q->need) && sp_device_look(d) > 0)
      continue;
    if (lacks_memory(d, q)) {
      q->commits = 1;
      q->place.planned = sp_device_commit(d, q->place.address, q->need, q->stream);
      continue;
    }
    sp_range *r = choose(d, q);
    if (r == NULL && q->place.planned)
      continue;
    if (r != NULL && order(d, q, r))
      return r;
    if (r == NULL && d->deferred != NULL && sp_device_look(d) > 0)
      continue;
    q->grown = 1;
    if (r == NULL) {
      if (!sp_device_grow(d, q->zone, q->room, q->stream, 0, &addr) && !elsewhere(d, q))
        return NULL;
      continue;
    }
    return unwaited(d, q);
  }
}

/* begin makes the range a block. Locked. */
static void begin(stplan_device *d, const request *q, sp_range *r, uint64_t requested) {
  r->requested = requested;
  sp_usage_begin(&d->usage, r->zone == SP_ZONE_SMALL, q->need, requested);
  memset(&r->uses, 0, sizeof r->uses);
  r->stream = (uint32_t)q->stream;
  r->number = d->history == NULL ? 0 : sp_history_alloc(d->history, requested, r->stream);
  int home = q->home && sp_device_plan_said(d, &q->place);
  if (home)
    r->step = q->place.step;
  if (d->plan != NULL)
    sp_device_plan_done(d, &q->place, q->need, home);
  SP_COUNT(d, allocations, 1);
  SP_COUNT(d, allocation_bytes, q->need);
  SP_COUNT(d, allocated_bytes, q->need);
  if (d->counters.allocated_bytes > d->counters.peak_allocated_bytes)
    SP_SET(d, peak_allocated_bytes, d->counters.allocated_bytes);
  if (d->plan != NULL && !sp_device_follows_next(d))
    sp_device_plan_followed(d, q->need, q->source == STPLAN_FROM_PLAN);
  if (q->source == STPLAN_FROM_PLAN) {
    if (!sp_device_learns_of_next(d))
      sp_learn_fits(&d->learn, q->need);
    SP_COUNT(d, planned_allocations, 1);
    SP_COUNT(d, planned_bytes, q->need);
    SP_COUNT(d, displaced_allocations, (uint64_t)q->hole);
  }
}

/* ask fills in what the plan says of the request. A plan that has been put in place for it
 * has followed it before. Locked; may let go of the lock. */
static void ask(stplan_device *d, request *q, size_t size, stplan_stream stream) {
  if (d->next != NULL)
    sp_device_follow(d, q->need, size, stream, &q->place);
  if (!sp_device_plan_said(d, &q->place)) {
    q->place = (sp_place){0};
    if (d->plan != NULL)
      sp_device_plan_next(d, q->need, size, stream, &q->place);
  }
  if (q->place.planned && sp_device_plan_needs_memory(d))
    sp_device_begin(d, &q->place);
}

/* note_failed notes in the history a request that got no memory, with what the process could have: what it has
 * kept, although all that is idle has been given back, and what the device and the limit have left. Locked; lets go
 * of the lock. */
static void note_failed(stplan_device *d, const request *q, uint64_t size) {
  if (d->history == NULL)
    return;
  uint64_t left = sp_device_left(d), reserved = d->counters.reserved_bytes;
  if (left == UINT64_MAX)
    left = 0;
  if (d->limit != 0)
    left = sp_least(left, d->limit > reserved ? d->limit - reserved : 0);
  if (d->history != NULL)
    sp_history_failed(d->history, size, (uint32_t)q->stream, reserved + left);
}

uint64_t stplan_malloc(stplan_device *d, size_t size, stplan_stream stream, stplan_source *source, stplan_status *status) {
  stplan_status ignored;
  if (status == NULL)
    status = &ignored;
  *status = STPLAN_OK;
  if (size == 0)
    return 0;
  sp_device_lock(d);
  sp_device_history_room(d);
  request q = {.stream = sp_device_stream(d, stream)};
  sp_range *r = NULL;
  if (q.stream < 0) {
    *status = STPLAN_BAD_STREAM;
  } else if (size > SP_LARGEST) {
    *status = STPLAN_NO_MEMORY;
  } else {
    q.need = sp_aligned(size);
    q.zone = q.need <= SMALL ? SP_ZONE_SMALL : SP_ZONE_OPEN;
    q.room = q.zone == SP_ZONE_SMALL ? q.need : sp_halves_room(&d->halves, size);
    ask(d, &q, size, stream);
    r = find(d, &q);
    if (r == NULL) {
      *status = STPLAN_NO_MEMORY;
      note_failed(d, &q, size);
    }
  }
  uint64_t addr = 0;
  if (r == NULL) {
    SP_COUNT(d, failed_allocations, 1);
  } else {
    begin(d, &q, r, size);
    addr = r->addr;
    if (source != NULL)
      *source = q.source;
  }
  sp_device_unlock(d);
  return addr;
}

void stplan_mark(stplan_device *d) {
  sp_device_lock(d);
  sp_device_history_room(d);
  if (d->history != NULL)
    sp_history_mark(d->history, 0);
  if (d->plan != NULL)
    sp_device_plan_mark(d);
  sp_device_unlock(d);
}
