#include "device_learn.h"

/* Per cent of the bytes of the window's iterations. With less that fits, the plan is too narrow:
 * as much is wanted of runs that a plan was not recorded from. */
enum { NARROW = 90 };

/* A plan is made again of this many times the iterations of the last one: with fewer it would
 * hardly be another one, and the run would pay for putting it in place. */
enum { MORE = 3 };

/* The same at the end of a run. The next run pays nothing for it. */
enum { MORE_AT_END = 2 };

/* Plans that are made in one run. Each costs a minute of a processor at most, and moves what
 * it wants of memory once. Of 4, 12 and 36 iterations, the last sees what comes rarely. */
enum { MOST_PLANS = 3 };

void sp_learn_changed(sp_learn *l) { l->changed_at = l->iterations; }

void sp_learn_fits(sp_learn *l, uint64_t bytes) { l->fitting += bytes; }

void sp_learn_iteration(sp_learn *l, const stplan_counters *now) {
  uint64_t at = ++l->iterations % (SP_LEARN_WINDOW + 1);
  l->ends[at].all = now->allocation_bytes;
  l->ends[at].fitting = l->fitting;
}

/* narrow says whether too little fitted the plan in the window, or since the last change if that
 * is less. */
static int narrow(const sp_learn *l, const stplan_counters *now) {
  uint64_t from = l->iterations > SP_LEARN_WINDOW ? l->iterations - SP_LEARN_WINDOW : 0;
  if (from < l->changed_at)
    from = l->changed_at;
  uint64_t at = from % (SP_LEARN_WINDOW + 1);
  uint64_t all = now->allocation_bytes - l->ends[at].all, fitting = l->fitting - l->ends[at].fitting;
  return fitting < all / 100 * NARROW;
}

int sp_learn_due(const sp_learn *l, const stplan_counters *now, unsigned first, int ending) {
  if (l->made == MOST_PLANS || (l->made == 0 && now->state == STPLAN_DECLINED))
    return 0;
  if (l->made == 0 && now->state == STPLAN_NO_PLAN)
    return ending || l->iterations >= first;
  if (ending)
    return l->iterations >= MORE_AT_END * l->learned_at && narrow(l, now);
  return l->iterations >= l->changed_at + SP_LEARN_WINDOW && l->iterations >= MORE * l->learned_at && narrow(l, now);
}

int sp_learn_awaits(const sp_learn *l, int made) { return made < l->made && l->iterations - l->learned_at < l->learned_at; }

int sp_learn_made(sp_learn *l) {
  l->learned_at = l->iterations;
  sp_learn_changed(l);
  return ++l->made < MOST_PLANS;
}
