#include "device_plan.h"

#include <stdlib.h>

#include "device_plan_state.h"

/* Requests after which it is judged again how well the plan fits. The counts
 * are halved each time, so about the last 4,096 requests decide. Fewer would
 * suspend a plan for one odd stretch of a run; with more, a plan that does not
 * fit would cost memory for longer. Before the first WATCH requests are over a
 * plan is on trial: it is judged after 1, 2, 4, 8, ... requests. The pool serves
 * worse among the blocks of a plan that has left, and best if there are none. */
enum { WATCH = 2048 };

/* Per cent of the bytes asked for that were served at their places. A plan on
 * trial is suspended below it. Runs of the plan's job have more than 99. */
enum { ON_TRIAL = 50 };

/* Requests. A suspended plan is not resumed for fewer: two or three in a row fit
 * plans of other jobs too. */
enum { SURE = 16 };

/* Per cent of the bytes lately asked for that could be served at their places.
 * Below SUSPENDED a plan is suspended: the blocks that it displaces then cost
 * more than it saves. */
enum { SUSPENDED = 10 };

/* Per cent, likewise: from RESUMED on a suspended plan is served again. It is
 * far above SUSPENDED, so that the plan does not go back and forth. */
enum { RESUMED = 90 };

/* Times. A suspended plan is served again as soon as the run comes to the end of a pass, whatever is in the
 * way of its places within a pass: there little is live besides what has its place. After an evaluation
 * that the plan does not know, the pool's blocks of one pass were in the way of the next one's places for two more,
 * or for seven. A run of another job may end as the plan does, with the same optimizer, so what was
 * suspended again within LASTING requests RETURNS times does not come back in this way. */
enum { RETURNS = 2, LASTING = 4 * WATCH };

/* Per cent, likewise: from FITTING on the plan is taken to be of this run. */
enum { FITTING = 75 };

/* 1/N of what has been allocated: a plan that fits, and never was suspended, is
 * given up above this instead of SP_EXCESS_ENDS. By that, one burst of odd
 * requests ended plans for good, although the pool costs more in the long run. */
enum { EXCESS_FITS = 33 };

/* 1/N, likewise, for a plan that has come in the run, or come back: that was suspended, and has been followed for a pass since.
 * An evaluation that it does not know leaves a little more reserved. By that a fine-tuning lost the plan in the midst of the next
 * larger batch, and moved half of its memory. A plan that has come is put in place if the pool has 1/55 beyond what is allocated, or moves
 * much (device_install.c), so it has to cost about as little: with 33 the first run of a style transfer came from 1.018 of what it
 * allocates to 1.032. */
enum { EXCESS_CAME = 50 };

/* 1/N of the most that has been reserved. A plan that fits may cost more than the pool as long as it spares what the pool moves. If a run
 * owes more than this for what has moved it does not, unless more moved while it was suspended, and it ends above SP_EXCESS_ENDS. By such plans language
 * models came to reserve 3 % more than they allocate, and moved eight times that. With 4 it is the same, but runs with a first batch that is
 * shorter than the recorded one move more, and one of them lost its plan. */
enum { OWED_SHARE = 2 };

/* 1/N of what has been allocated, for a plan of another job. The pool may reserve hardly more than has
 * been allocated, and in leaving, the plan costs something besides. */
enum { EXCESS_OTHER = 150 };

/* Granules that may be reserved beyond any share: one begun in each zone that takes the least
 * granules. */
enum { GRANULES_MORE = 3 };

/* 1/N of what the run has allocated: a run that lacks no more than this has
 * allocated as much as the recording, unless the plan's granules are large (follows). */
enum { FOLLOWS = 100 };

/* 1/N, likewise: a run that lacks more than this is of another job. With 20, runs of
 * the plan's job lost it in which one large block was left out. */
enum { RESEMBLES = 10 };

/* 1/N of what the run has allocated: what the laws of its sizes forecast counts up to so much
 * more than the recording had. */
enum { BEYOND = 2 };

/* Steps. A request off plan gets bytes that this many next steps of the plan do
 * not need; if there are none, that half as many do not, and so on down to SOON: most blocks are freed before the
 * run has gone through them. What experts keep for their backward pass may stay for 2,200 steps or 20,000. From SOON
 * on only, two of four runs of experts moved 1.5 and 1.8 of what they reserve in 40 more iterations, from 4096 on one of
 * them, and from LATE and 16384 on 0.1 and 0.2. If more would be reserved than the plan is worth, it
 * goes on down to SOONEST: a block of 2 GiB between two places of 2 GiB takes both, and was put there beside one that
 * nobody needed for a hundred steps. */
enum { LATE = 8192, SOON = 2048, SOONEST = 4 };

/* 1/N of the plan's memory. Small blocks off plan get memory of their own up to that, even if it moves there, and of the plan only
 * beyond: some stay for a pass. One of 7 KiB in the way of a place of a gigabyte cost a mixture of experts two
 * gigabytes of moving in some passes. With 512 and 1024 it moves as little. */
enum { SMALL_SHARE = 2048 };

/* Steps that one search for a hole may look at, in all free ranges together: it bounds the time of a request.
 * Most searches need a handful, as most blocks live for a few steps. With 8192 one of four runs of experts misses
 * holes that nobody needs for LATE steps; it moves as much with 16384 and 65536 as with this. */
enum { LOOKS = 32768 };

/* Times the plan's bytes of addresses that detours may lead to, which cost nothing: one goes on at
 * others if something is in its way there, and its place may be nearly the whole plan. */
enum { SPARE = 2 };

/* The memory of a plan that this run has followed for a pass, or an earlier one, comes in granules of at most
 * 1/UNIT_SHARE of it, and at most UNIT_MOST bytes. The driver takes about as long for a granule
 * of 2 MiB as for one of 64 MiB: on an H100 45 us to map it, 40 to give it back. In a run that
 * does not go on as the plan does, large granules are left with little in them: with 1/1024 for
 * all plans, 72 of 5,502 runs by plans of other jobs reserved more than 1 % beyond what they do
 * without one; with 1/4096 a run of the plan's job lost it in which one request in a hundred was
 * another. With 1/1024 for plans that are put in place, blocks that are live then cost 0.3 %. */
enum { UNIT_SHARE = 2048 };
#define UNIT_MOST (UINT64_C(64) << 20)

/* set_state changes the state, and tells it. */
static void set_state(stplan_device *d, stplan_state state) {
  if (d->plan->state == state)
    return;
  d->plan->state = state;
  SP_SET(d, state, (uint64_t)state);
}

sp_device_plan *sp_device_plan_make(const sp_plan_device *plan, int moves) {
  sp_device_plan *p = calloc(1, sizeof *p);
  if (p == NULL)
    return NULL;
  p->plan = plan;
  p->matcher = sp_matcher_new(plan, moves);
  if (p->matcher == NULL) {
    free(p);
    return NULL;
  }
  p->room = sp_matcher_room(p->matcher);
  if (p->room < plan->arena_bytes)
    p->room = plan->arena_bytes;
  return p;
}

/* occupied is sp_occupied of the plan that is served. */
static uint64_t occupied(void *self, uint64_t top) {
  const stplan_device *d = self;
  const sp_device_plan *p = d->plan;
  const sp_range *r = p->base == 0 ? NULL : sp_arena_holding(&d->arena, p->base + top - 1);
  while (r != NULL && r->addr >= p->base && !(r->taken && r->step == SP_NO_STEP))
    r = r->prev;
  return r == NULL || r->addr < p->base ? 0 : r->addr + r->size - p->base;
}

void sp_device_plan_drop(sp_device_plan *p) {
  if (p != NULL)
    sp_matcher_free(p->matcher);
  free(p);
}

int sp_device_plan_open(stplan_device *d, const sp_plan_device *plan) {
  if (plan != NULL && plan->advice == SP_ADVICE_POOL)
    SP_SET(d, state, STPLAN_DECLINED);
  if (plan == NULL || plan->advice == SP_ADVICE_POOL)
    return 1;
  d->plan = sp_device_plan_make(plan, sp_device_moves(d));
  if (d->plan == NULL)
    return 0;
  sp_matcher_hear(d->plan->matcher, occupied, d);
  d->plan->number = ++d->plans;
  set_state(d, STPLAN_PROLOGUE);
  sp_device_plan_follows(d, d->plan);
  return 1;
}

void stplan_prove(stplan_device *d, uint64_t checksum) {
  sp_device_lock(d);
  if (d->plan != NULL && checksum != 0 && d->plan->plan->checksum == checksum)
    d->plan->proven = 1;
  sp_device_unlock(d);
}

void sp_device_plan_follows(stplan_device *d, const sp_device_plan *p) {
  SP_SET(d, followed_plan, p->plan->checksum);
  SP_SET(d, followed_bytes, 0);
  SP_SET(d, fitting_bytes, 0);
}

void sp_device_plan_followed(stplan_device *d, uint64_t need, int planned) {
  SP_COUNT(d, followed_bytes, need);
  SP_COUNT(d, fitting_bytes, planned ? need : 0);
}

void sp_device_plan_close(stplan_device *d) {
  sp_device_plan_drop(d->plan);
  sp_device_plan_drop(d->next);
}

int sp_device_plan_needs_memory(const stplan_device *d) { return !d->plan->begun; }

int sp_device_plan_leaves(stplan_device *d, uint64_t *low, uint64_t *high) {
  sp_device_plan *p = d->plan;
  if (p == NULL || p->base == 0 || sp_matcher_bottom(p->matcher) == 0)
    return 0;
  if (!p->left)
    p->left_at = p->watched;
  p->left = 1;
  if (p->watched - p->left_at > sp_matcher_pass(p->matcher))
    return 0;
  *low = p->base;
  *high = p->base + sp_matcher_bottom(p->matcher);
  return 1;
}

uint64_t sp_device_plan_bottom(const stplan_device *d) { return sp_matcher_bottom(d->plan->matcher); }

uint64_t sp_device_plan_bytes(const stplan_device *d) {
  const sp_device_plan *p = d->plan;
  uint64_t top = p->begun ? sp_round_up(sp_matcher_top(p->matcher), d->prim.granularity) : 0;
  return top > 0 ? sp_least(top, p->room) : p->room;
}

uint64_t sp_device_plan_unit(const stplan_device *d) {
  const sp_device_plan *p = d->plan;
  uint64_t least = d->prim.granularity, most = sp_round_down(sp_least(p->room / UNIT_SHARE, UNIT_MOST), least);
  if (!p->proven || !sp_device_moves(d) || sp_matcher_room(p->matcher) > 0 || most < least)
    return least;
  return sp_handle_size(p->room, sp_least(most, SP_UNIT_MOST * least), least);
}

uint64_t sp_device_plan_spare(const stplan_device *d) {
  uint64_t bytes = d->plan->plan->arena_bytes;
  return sp_device_moves(d) && bytes <= SP_LARGEST ? sp_round_up(SPARE * bytes, sp_device_plan_unit(d)) : 0;
}

void sp_device_plan_begin(stplan_device *d, uint64_t base, uint64_t room, uint64_t spare) {
  sp_device_plan *p = d->plan;
  p->begun = 1;
  uint64_t unit = base == 0 ? 0 : sp_device_plan_unit(d);
  p->large = unit > d->prim.granularity;
  if (base != 0 && d->prim.partial && d->still)
    unit = sp_handle_size(room, SP_HANDLE_MOST, unit); /* as the primitives map it */
  SP_SET(d, plan_granule_bytes, unit);
  p->room = room;
  p->base = base;
  if (base != 0 && spare > 0)
    sp_detours_open(&p->detours, base, unit, room, room + spare, sp_matcher_shares(p->matcher));
  if (base == 0 && p->room > 0)
    set_state(d, STPLAN_OFF); /* for good: without memory it is not asked again */
}

/* known is how many bytes of addresses from the base on the arena knows: those for detours only
 * since the first one. */
static uint64_t known(const sp_device_plan *p) { return p->detours.edge > p->room ? p->detours.edge : p->room; }

int sp_device_plan_holds(const stplan_device *d, uint64_t addr) {
  const sp_device_plan *p = d->plan;
  return p != NULL && p->base != 0 && addr >= p->base && addr - p->base < known(p);
}

uint64_t sp_device_plan_base(const stplan_device *d) { return d->plan == NULL ? 0 : d->plan->base; }

int sp_device_plan_said(const stplan_device *d, const sp_place *place) {
  return d->plan != NULL && place->plan == d->plan->number;
}

/* set_zone makes the plan's memory its own, or part of the pool. */
static void set_zone(stplan_device *d, sp_zone zone) {
  const sp_device_plan *p = d->plan;
  if (p->base != 0)
    sp_arena_rezone(&d->arena, p->base, p->base + known(p), zone);
}

/* moves_so_far are those of the whole run. */
static sp_moves moves_so_far(const stplan_device *d) { return (sp_moves){d->counters.moved_bytes, d->counters.allocation_bytes}; }

/* moves are those while the plan was served, or suspended, until now. */
static sp_moves moves(const stplan_device *d, int suspended) {
  const sp_device_plan *p = d->plan;
  sp_moves m = p->moves[suspended];
  if (suspended == p->suspended) {
    sp_moves now = moves_so_far(d);
    m.moved += now.moved - p->moves_until.moved;
    m.allocated += now.allocated - p->moves_until.allocated;
  }
  return m;
}

/* note_moves has what moves from now on count anew. */
static void note_moves(stplan_device *d) {
  sp_device_plan *p = d->plan;
  p->moves[p->suspended] = moves(d, p->suspended);
  p->moves_until = moves_so_far(d);
}

/* suspend suspends the plan, or resumes it. The pool begins with what the plan
 * leaves behind, and owes nothing the first time. If the plan leaves nothing, the pool goes on
 * as if there were none. What a plan on trial leaves is little, and not the
 * pool's, which would spread over its addresses: it moves first (device_move.c). */
static void suspend(stplan_device *d, int suspended) {
  sp_device_plan *p = d->plan;
  if (suspended && (p->kept || p->watched - p->since > LASTING))
    p->returned = 0;
  note_moves(d);
  p->kept = 0;
  p->pass_wanted = p->pass_placed = 0;
  p->suspended = suspended;
  p->doubted = 1;
  p->since = p->watched;
  p->wanted_bytes = p->placed_bytes = 0;
  if (suspended && p->base != 0)
    sp_debt_leave(&d->debt);
  if (!suspended || p->watched >= WATCH || p->given_up || !sp_device_moves(d))
    set_zone(d, suspended ? SP_ZONE_OPEN : SP_ZONE_PLAN);
}

void sp_device_plan_give_up(stplan_device *d) {
  d->plan->given_up = 1;
  suspend(d, 1);
}

void sp_device_plan_yield(stplan_device *d) {
  if (d->plan->kept)
    suspend(d, 1);
  else
    sp_device_plan_give_up(d);
}

int sp_device_plan_served(const stplan_device *d) {
  const sp_device_plan *p = d->plan;
  return p != NULL && p->base != 0 && !p->suspended && p->state != STPLAN_ENDED;
}

sp_place sp_device_plan_place(const sp_device_plan *p, const sp_match *m, uint64_t need) {
  uint64_t offset = p->detours.count == 0 ? m->offset : sp_detours_place(&p->detours, m->offset, m->size);
  return (sp_place){.plan = p->number, .address = p->base + offset, .offset = m->offset, .size = m->size, .step = m->step,
                    .recorded = m->allocated, .planned = m->placed && need <= m->size, .stray = m->stray};
}

/* find_in_shared finds where in a place that several steps share a request lies: the lowest addresses that no live block has. Each pass
 * takes about as much there, in blocks of other sizes, so the end of the place stays free, and has no memory. The place of a
 * request that finds no room is none. Detours do not have it elsewhere: there is room beside what is in the way. */
static void find_in_shared(const stplan_device *d, sp_place *place, uint64_t need) {
  const sp_device_plan *p = d->plan;
  uint64_t at = p->base + place->offset, end = at + place->size;
  for (const sp_range *r = sp_arena_holding(&d->arena, at); r != NULL && r->addr < at + need && at + need <= end; r = r->next)
    if (r->taken)
      at = r->addr + r->size;
  place->planned &= at + need <= end;
  place->address = at;
  place->offset = at - p->base;
  place->size = need;
}

/* could_serve says whether a place is free, be it without memory at present. */
static int could_serve(const stplan_device *d, const sp_place *place, uint64_t need) {
  if (!place->planned || d->plan->base == 0)
    return place->planned; /* of a plan without memory every place is free */
  return sp_arena_at(&d->arena, place->address, need) != NULL || sp_arena_absent(&d->arena, place->address, need) != NULL;
}

/* least is the share of the bytes, in per cent, below which the plan is not served. */
static int least(const sp_device_plan *p) {
  if (p->suspended)
    return RESUMED;
  return p->watched < WATCH ? ON_TRIAL : SUSPENDED;
}

/* judge suspends or resumes the plan, by how well it fitted lately. It is rare,
 * and inlined it would cost every request the saving of registers. */
__attribute__((noinline)) static void judge(stplan_device *d) {
  sp_device_plan *p = d->plan;
  int suspended = p->placed_bytes < p->wanted_bytes / 100 * (uint64_t)least(p);
  if (suspended != p->suspended && (suspended || p->watched - p->since >= SURE))
    suspend(d, suspended);
  if (p->watched % WATCH != 0)
    return;
  p->wanted_bytes /= 2;
  p->placed_bytes /= 2;
}

/* watch counts a request that has been served. */
static void watch(stplan_device *d, uint64_t need) {
  sp_device_plan *p = d->plan;
  uint64_t n = ++p->watched;
  p->wanted_bytes += need;
  p->pass_wanted += need;
  if (!p->given_up && (n % WATCH == 0 || (n & (n - 1)) == 0))
    judge(d);
}

/* pass is told that the run has come to the end of a pass. A plan that is suspended is served again from
 * the next request on. */
static void pass(stplan_device *d) {
  sp_device_plan *p = d->plan;
  if (p->suspended && p->returned < RETURNS) {
    suspend(d, 0);
    p->returned++;
  } else if (!p->suspended) {
    p->kept |= p->pass_placed >= p->pass_wanted / 100 * FITTING;
    p->pass_wanted = p->pass_placed = 0;
  }
}

void sp_device_plan_next(stplan_device *d, uint64_t need, uint64_t requested, stplan_stream stream, sp_place *place) {
  sp_device_plan *p = d->plan;
  if ((p->begun && p->base == 0) || p->state == STPLAN_ENDED)
    return;
  if (p->given_up) {
    set_state(d, STPLAN_OFF);
    return;
  }
  if (!p->begun && !sp_device_moves(d) && p->room > p->plan->arena_bytes) {
    sp_matcher_stiffen(p->matcher, p->plan); /* its memory comes in one piece */
    p->room = p->plan->arena_bytes;
  }
  sp_match m = sp_matcher_next(p->matcher, requested, stream);
  if (p->detours.count > 0 && m.placed && !p->suspended)
    sp_detours_return(d, &p->detours, m.offset, m.size);
  if (m.drifted)
    SP_COUNT(d, drift_events, 1);
  if (m.jumped)
    SP_COUNT(d, resyncs, 1);
  *place = sp_device_plan_place(p, &m, need);
  if (m.shared && place->planned && p->base != 0)
    find_in_shared(d, place, need);
  if (p->suspended && could_serve(d, place, need))
    p->placed_bytes += need;
  if (p->suspended)
    place->planned = 0;
  if (m.ended)
    set_zone(d, SP_ZONE_OPEN);
  set_state(d, m.ended ? STPLAN_ENDED : p->suspended ? STPLAN_OFF : m.body ? STPLAN_BODY : STPLAN_PROLOGUE);
  if (m.passed)
    pass(d);
}

void sp_device_plan_done(stplan_device *d, const sp_place *place, uint64_t need, int at_place) {
  sp_device_plan *p = d->plan;
  if (at_place) {
    sp_matcher_placed(p->matcher, place->step);
    p->placed_bytes += need;
    p->pass_placed += need;
  }
  if (place->recorded > p->recorded_bytes)
    p->recorded_bytes = place->recorded;
  watch(d, need);
}

void sp_device_plan_freed(stplan_device *d, uint64_t step) { sp_matcher_freed(d->plan->matcher, step); }

void sp_device_plan_mark(stplan_device *d) { sp_matcher_mark(d->plan->matcher); }

/* hole is the smallest free range with bytes that a search looks for, from *addr on. What lies on a
 * detour is searched as the bytes of the plan that it stands for. */
static sp_range *hole(const stplan_device *d, sp_hole_search *search, uint64_t *addr) {
  const sp_device_plan *p = d->plan;
  sp_range *gap = sp_arena_next(&d->arena.gaps[SP_ZONE_PLAN], search->need, 0);
  for (; gap != NULL && search->looks > 0; gap = sp_arena_larger(gap)) {
    uint64_t home = sp_detours_home(&p->detours, gap->addr - p->base), offset = home;
    if (sp_hole_find(search, &offset, home + gap->size)) {
      *addr = gap->addr + (offset - home);
      return gap;
    }
  }
  return NULL;
}

sp_range *sp_device_plan_hole(const stplan_device *d, const sp_place *place, uint64_t need, uint64_t *addr) {
  sp_hole_search search;
  return sp_matcher_hole_while_live(d->plan->matcher, place->step, need, LOOKS, &search) ? hole(d, &search, addr) : NULL;
}

int sp_device_plan_small_apart(const stplan_device *d) { return d->arena.small_bytes < d->plan->room / SMALL_SHARE; }

sp_range *sp_device_plan_gap(const stplan_device *d, uint64_t need, int any, uint64_t *addr) {
  sp_range *gap = NULL;
  for (uint64_t steps = LATE; gap == NULL && steps >= (any ? SOONEST : SOON); steps /= 2) {
    sp_hole_search search;
    sp_matcher_hole_for_steps(d->plan->matcher, steps, need, LOOKS, &search);
    gap = hole(d, &search, addr);
  }
  return gap;
}

/* What is in the way of a run that is not in step, as in an evaluation that the plan does not know, is its
 * own, and soon gone. */
int sp_device_plan_detour(stplan_device *d, sp_place *place) {
  sp_device_plan *p = d->plan;
  if (!sp_device_moves(d) || !sp_matcher_settled(p->matcher) || !sp_detours_make(d, &p->detours, place->offset, place->size))
    return 0;
  place->address = p->base + sp_detours_place(&p->detours, place->offset, place->size);
  return 1;
}

int sp_device_plan_strays(stplan_device *d, uint64_t *low, uint64_t *high) {
  return d->plan != NULL && sp_detours_left(&d->plan->detours, low, high);
}

/* fits says whether the plan is of this run, as far as is known. */
static int fits(const sp_device_plan *p) { return p->placed_bytes >= p->wanted_bytes / 100 * FITTING; }

/* rate is how many bytes moved for each that was allocated. */
static double rate(sp_moves m) { return m.allocated > 0 ? (double)m.moved / (double)m.allocated : 0; }

/* spares says whether less moves while the plan is served than moved while it was suspended. */
static int spares(const stplan_device *d) { return rate(moves(d, 1)) > rate(moves(d, 0)); }

/* rests says whether little memory has moved lately. */
static int rests(const stplan_device *d) {
  return sp_debt_owed(&d->debt, &d->counters) <= d->counters.peak_reserved_bytes / OWED_SHARE;
}

/* lacks says whether the run has allocated less than the recording had at the
 * same step, by more than 1/share. Then the plan is of a job that needs more memory. */
static int lacks(const stplan_device *d, uint64_t share) {
  uint64_t peak = d->counters.peak_allocated_bytes;
  return d->plan->recorded_bytes > peak + peak / share;
}

/* follows says whether the run has allocated as much as the recording had, so that it may come to
 * need as much. A plan in large granules takes whole ones for its first blocks, among places of
 * later ones. So it ends only if the run is of another job: with FOLLOWS a run lost it at a fifth
 * of its memory, as a block of 50 MiB in 4 GiB was left out. */
static int follows(const stplan_device *d, sp_excess excess) {
  return !lacks(d, excess == SP_EXCESS_ENDS && d->plan->large ? RESEMBLES : FOLLOWS);
}

/* The recording's peak tells what the run is going to need, if the run does as the recording did. A run that begins with shorter texts
 * may never need as much: with half the length one reserved 1.57 of what it allocated. There
 * idle memory moves before more is added, by what laws forecast, and only the plan's end is
 * decided by what was recorded. */
int sp_device_plan_costs(const stplan_device *d, uint64_t taken, uint64_t more, sp_excess excess) {
  if (!sp_device_plan_served(d))
    return 0;
  const sp_device_plan *p = d->plan;
  const stplan_counters *c = &d->counters;
  uint64_t most = 0, share = excess;
  if (!sp_device_moves(d))
    most = p->plan->arena_bytes; /* which came in one piece */
  else if (follows(d, excess) && excess == SP_EXCESS_ENDS && p->state == STPLAN_PROLOGUE)
    most = sp_plan_peak(p->plan);
  else if (follows(d, excess) && (excess == SP_EXCESS_ENDS || fits(p)))
    most = sp_matcher_expected(p->matcher, sp_plan_peak(p->plan));
  uint64_t forecast = sp_device_moves(d) && fits(p) ? sp_matcher_forecast(p->matcher) : 0;
  if (excess == SP_EXCESS_LENDS && !sp_matcher_under_way(p->matcher, c->allocated_bytes))
    forecast = 0;
  if (most < c->peak_allocated_bytes)
    most = c->peak_allocated_bytes;
  if (most < c->allocated_bytes + more)
    most = c->allocated_bytes + more;
  if (most < forecast)
    most = sp_least(forecast, most + c->peak_allocated_bytes / BEYOND);
  if (excess == SP_EXCESS_ENDS && lacks(d, RESEMBLES))
    share = EXCESS_OTHER;
  else if (excess == SP_EXCESS_ENDS && ((rests(d) && (!p->doubted || p->kept)) || spares(d)) && fits(p))
    share = p->came || p->doubted ? EXCESS_CAME : EXCESS_FITS;
  return c->reserved_bytes + taken > most + most / share + GRANULES_MORE * d->prim.granularity;
}

/* forget_steps has no live block be at a step's place: the steps are another plan's now. */
static void forget_steps(stplan_device *d) {
  for (sp_range *r = d->arena.last; r != NULL; r = r->prev)
    r->step = SP_NO_STEP;
}

sp_device_plan *sp_device_plan_replace(stplan_device *d, sp_device_plan *p) {
  sp_device_plan *before = d->plan;
  if (before != NULL) {
    set_zone(d, SP_ZONE_OPEN);
    forget_steps(d);
  }
  d->plan = p;
  p->moves_until = moves_so_far(d);
  p->came = 1;
  sp_matcher_hear(p->matcher, occupied, d);
  set_state(d, STPLAN_BODY);
  return before;
}
