/* device_malloc.c: requests. */
#include <string.h>

#include "device.h"

/* Requests off plan get memory of the plan that so many of its next steps do not
 * need. Whoever looks for memory there may look at so many steps altogether. */
enum { SOON = 2048, LOOKS = 8192 };

/* A plan is suspended where it could serve less than so many per cent of the bytes
 * asked for, and resumed at so many. */
enum { SUSPENDED = 10, RESUMED = 90 };

/* request is one on its way. */
typedef struct {
  uint64_t need; /* aligned bytes */
  uint64_t planned; /* the plan's address, where has_plan */
  uint64_t step;    /* the plan's, where has_plan */
  uint64_t recorded; /* what the recording had allocated here, 0 where unknown */
  int has_plan;
  int stray; /* it lives longer than the plan can tell */
  int home;  /* it has the step's own place */
  int moved; /* it has other memory of the plan, which is vacant */
  int committed; /* memory was taken for what is absent there, or there was none */
  sp_zone zone;
  int stream;
  int grown; /* memory was taken from the device for it */
  stplan_source source;
} request;

/* vacant is the smallest free range of the plan's memory that has bytes which the
 * plan does not need meanwhile, from *addr on, or NULL. */
static sp_range *vacant(const stplan_device *d, sp_hole_search *v, uint64_t *addr) {
  sp_range *gap = sp_arena_next(&d->arena.gaps[SP_ZONE_PLAN], v->need, 0);
  for (; gap != NULL && v->looks > 0; gap = sp_arena_larger(gap)) {
    uint64_t offset = gap->addr - d->plan_base;
    if (sp_hole_find(v, &offset, offset + gap->size)) {
      *addr = d->plan_base + offset;
      return gap;
    }
  }
  return NULL;
}

/* settle is a free range of the plan's memory for a request that is not planned
 * there, from *addr on, or NULL. One that no step needs soon will do, but not for a
 * stray, which would be there later too; any, where the device would otherwise have to
 * give more than the plan is worth. */
static sp_range *settle(const stplan_device *d, const request *q, uint64_t *addr) {
  if (d->counters->state != STPLAN_PROLOGUE && d->counters->state != STPLAN_BODY)
    return NULL;
  sp_hole_search v;
  sp_range *gap = NULL;
  sp_matcher_hole_for_steps(d->matcher, SOON, q->need, LOOKS, &v);
  if (!q->stray)
    gap = vacant(d, &v, addr);
  if (gap == NULL && sp_device_over(d, q->need, q->need, SP_SLACK_LENDS)) {
    gap = sp_arena_fit(&d->arena, &d->streams, SP_ZONE_PLAN, q->need, q->stream);
    *addr = gap == NULL ? 0 : gap->addr;
  }
  return gap;
}

/* absent says whether the request's place is free but lacks memory, and nobody
 * has asked for that. */
static int absent(const stplan_device *d, const request *q) {
  return q->has_plan && !q->committed && sp_arena_absent(&d->arena, q->planned, q->need) != NULL;
}

/* choose takes a free range for the request, or NULL where none fits. Locked. */
static sp_range *choose(stplan_device *d, request *q) {
  q->home = q->moved = 0;
  if (q->has_plan) {
    q->has_plan = 0; /* one try: a place that is taken now is not waited for */
    sp_range *gap = sp_arena_at(&d->arena, q->planned, q->need);
    q->home = gap != NULL;
    if (gap == NULL) {
      sp_hole_search v;
      d->counters->clashes++;
      if (sp_matcher_hole_while_live(d->matcher, q->step, q->need, LOOKS, &v))
        gap = vacant(d, &v, &q->planned);
      q->moved = gap != NULL;
    }
    if (gap != NULL) {
      q->source = STPLAN_FROM_PLAN;
      return sp_arena_take(&d->arena, gap, q->planned, q->need);
    }
  }
  uint64_t addr;
  sp_range *gap = sp_arena_fit(&d->arena, &d->streams, q->zone, q->need, q->stream);
  if (gap != NULL)
    addr = gap->addr;
  else
    gap = settle(d, q, &addr);
  if (gap == NULL)
    return NULL;
  q->source = q->grown ? STPLAN_FROM_GROW : STPLAN_FROM_GAP;
  return sp_arena_take(&d->arena, gap, addr, q->need);
}

/* order makes the request's stream wait for what used the range. Lets go of the
 * lock where it has to. 0 where it cannot, then the range is free again.
 * Locked. */
static int order(stplan_device *d, const request *q, sp_range *r) {
  sp_need needs[SP_STREAMS];
  if (!sp_streams_waits(&d->streams, &r->uses, q->stream))
    return 1;
  int count = sp_streams_needs(&d->streams, &r->uses, q->stream, needs);
  int done = 0;
  if (count > 0) {
    pthread_mutex_unlock(&d->lock);
    done = sp_streams_perform(&d->streams, &d->prim, q->stream, needs, count) == 0;
    pthread_mutex_lock(&d->lock);
    sp_streams_settle(&d->streams, q->stream, needs, count, done);
  }
  if (!done) {
    sp_arena_give(&d->arena, r);
    return 0;
  }
  d->counters->waits += (uint64_t)count;
  for (int i = 0; i < count; i++)
    d->counters->events_recorded += (uint64_t)needs[i].record;
  return 1;
}

/* elsewhere finds another zone that has room, for a request that its own and
 * the device have none for. Locked. */
static int elsewhere(stplan_device *d, request *q) {
  for (int zone = 0; zone < SP_ZONES; zone++) {
    if (sp_arena_fit(&d->arena, &d->streams, (sp_zone)zone, q->need, q->stream) == NULL)
      continue;
    q->zone = (sp_zone)zone;
    q->grown = 0;
    return 1;
  }
  return 0;
}

/* find_place loops until the request has a range that its stream may touch.
 * NULL where there is no memory. Locked; lets go of the lock. */
static sp_range *find_place(stplan_device *d, request *q) {
  uint64_t addr;
  for (;;) {
    if (!sp_device_nodes(d))
      return NULL;
    if (absent(d, q)) {
      q->committed = 1;
      q->has_plan = sp_device_commit(d, q->planned, q->need);
      continue;
    }
    sp_range *r = choose(d, q);
    if (r != NULL && order(d, q, r))
      return r;
    q->grown = 1;
    if (r == NULL) {
      if (!sp_device_grow(d, q->zone, q->need, 0, &addr) && !elsewhere(d, q))
        return NULL;
      continue;
    }
    /* What is free cannot be waited for now: new memory needs no wait. */
    if (!sp_device_grow(d, q->zone, q->need, 1, &addr))
      return NULL;
    q->source = STPLAN_FROM_GROW;
    return sp_arena_take(&d->arena, sp_arena_at(&d->arena, addr, q->need), addr, q->need);
  }
}

/* begin makes the range a block. Locked. */
static void begin(stplan_device *d, const request *q, sp_range *r, uint64_t requested) {
  stplan_counters *c = d->counters;
  r->requested = requested;
  sp_usage_begin(&d->usage, r->size, requested);
  memset(&r->uses, 0, sizeof r->uses);
  r->stream = (uint32_t)q->stream;
  if (q->home) {
    r->step = q->step;
    sp_matcher_placed(d->matcher, q->step);
    d->placed_bytes += q->need;
  }
  c->allocations++;
  c->allocation_bytes += r->size;
  c->allocated_bytes += r->size;
  if (c->allocated_bytes > c->peak_allocated_bytes)
    c->peak_allocated_bytes = c->allocated_bytes;
  if (q->recorded > d->recorded_bytes)
    d->recorded_bytes = q->recorded;
  if (q->source == STPLAN_FROM_PLAN) {
    c->planned_allocations++;
    c->planned_bytes += r->size;
    c->displaced_allocations += (uint64_t)q->moved;
  }
}

/* watch suspends the plan where lately too few bytes were served in their places:
 * what it displaces then costs more than it saves. Meanwhile its memory is like
 * any other, and it is watched how many of its places would have been free. The
 * past counts half with every SP_WATCH requests. Locked. */
static void watch(stplan_device *d, const request *q) {
  d->wanted_bytes += q->need;
  if (d->suspended && q->has_plan && (sp_arena_at(&d->arena, q->planned, q->need) != NULL || absent(d, q)))
    d->placed_bytes += q->need;
  if (++d->watched % SP_WATCH != 0)
    return;
  int suspended = d->placed_bytes < d->wanted_bytes / 100 * (d->suspended ? RESUMED : SUSPENDED);
  if (suspended != d->suspended)
    sp_device_suspend(d, suspended);
  d->wanted_bytes /= 2;
  d->placed_bytes /= 2;
}

/* consult asks the matcher where the plan wants the request. Locked. */
static void consult(stplan_device *d, request *q, uint64_t requested, stplan_stream handle) {
  if (d->matcher == NULL || d->plan_base == 0 || d->counters->state == STPLAN_ENDED)
    return;
  if (d->given_up) {
    d->counters->state = STPLAN_OFF;
    return;
  }
  sp_match m = sp_matcher_next(d->matcher, requested, handle);
  d->counters->drift_events += (uint64_t)m.drifted;
  d->counters->resyncs += (uint64_t)m.jumped;
  q->has_plan = m.placed && q->need <= m.size;
  q->planned = d->plan_base + m.offset;
  q->step = m.step;
  q->stray = m.stray;
  q->recorded = m.allocated;
  watch(d, q);
  if (d->suspended)
    q->has_plan = 0;
  if (m.ended)
    sp_device_plan_zone(d, SP_ZONE_OPEN);
  d->counters->state = m.ended ? STPLAN_ENDED : d->suspended ? STPLAN_OFF : m.body ? STPLAN_BODY : STPLAN_PROLOGUE;
}

uint64_t stplan_malloc(stplan_device *d, size_t size, stplan_stream stream, stplan_source *source, stplan_status *status) {
  stplan_status ignored;
  if (status == NULL)
    status = &ignored;
  *status = STPLAN_OK;
  if (size == 0)
    return 0;
  pthread_mutex_lock(&d->lock);
  request q = {.stream = sp_device_stream(d, stream)};
  sp_range *r = NULL;
  if (q.stream < 0) {
    *status = STPLAN_BAD_STREAM;
  } else if (size > SP_LARGEST) {
    *status = STPLAN_NO_MEMORY;
  } else {
    q.need = (size + SP_ALIGNMENT - 1) / SP_ALIGNMENT * SP_ALIGNMENT;
    q.zone = q.need <= SP_SMALL ? SP_ZONE_SMALL : SP_ZONE_OPEN;
    if (d->plan != NULL && !d->begun)
      sp_device_begin(d);
    consult(d, &q, size, stream);
    r = find_place(d, &q);
    if (r == NULL)
      *status = STPLAN_NO_MEMORY;
  }
  uint64_t addr = 0;
  if (r == NULL) {
    d->counters->failed_allocations++;
  } else {
    begin(d, &q, r, size);
    addr = r->addr;
    if (source != NULL)
      *source = q.source;
  }
  pthread_mutex_unlock(&d->lock);
  return addr;
}

void stplan_mark(stplan_device *d) {
  pthread_mutex_lock(&d->lock);
  if (d->matcher != NULL)
    sp_matcher_mark(d->matcher);
  pthread_mutex_unlock(&d->lock);
}
