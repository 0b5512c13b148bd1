#include "device_learn.h"

/* Per thousand of the bytes of the window's iterations. With less that fits, the plan is too narrow:
 * as much is wanted of runs that a plan was not recorded from. */
enum { NARROW = 900 };

/* The same, of all that was asked for since the last plan of this run began to fit: it knows only what came before.
 * An evaluation of now and then has a hundredth of the bytes and less, and a plan without places for it costs 1 to 2 %
 * more memory than none does (docs/results/learned.md). */
enum { BEYOND = 990 };

/* The same at the end of a run, as MORE_AT_END. */
enum { BEYOND_AT_END = 999 };

/* A plan is made again of this many times the iterations of the last one: with fewer it would
 * hardly be another one, and the run would pay for putting it in place. */
enum { MORE = 3 };

/* At the end of a run a plan that fits is made again of this share of iterations more, as a divisor. The next run pays nothing
 * for it. */
enum { MORE_AT_END = 4 };

/* Plans that are made while a run goes on. Each costs a minute of a processor at most, and moves what
 * it wants of memory once. Of 4, 12 and 36 iterations, the last sees what comes rarely. */
enum { MOST_PLANS = 3 };

static sp_learn_sums *sums_after(sp_learn *l, uint64_t iterations) { return &l->ends[iterations % (SP_LEARN_WINDOW + 1)]; }

void sp_learn_changed(sp_learn *l) {
  l->changed_at = l->iterations;
  l->fits = l->refused = 0;
}

void sp_learn_refused(sp_learn *l) {
  sp_learn_changed(l);
  l->refused = 1;
}

void sp_learn_fits(sp_learn *l, uint64_t bytes) { l->fitting += bytes; }

/* fewer says whether less than this share of the bytes has fitted since then, in thousandths. */
static int fewer(const sp_learn *l, const stplan_counters *now, const sp_learn_sums *then, uint64_t share) {
  return l->fitting - then->fitting < (now->allocation_bytes - then->all) / 1000 * share;
}

void sp_learn_iteration(sp_learn *l, const stplan_counters *now) {
  const sp_learn_sums *before = sums_after(l, l->iterations);
  if (!l->fits && l->fitting > before->fitting && !fewer(l, now, before, NARROW)) {
    l->fits = 1;
    l->began = (sp_learn_sums){now->allocation_bytes, l->fitting};
  }
  *sums_after(l, ++l->iterations) = (sp_learn_sums){now->allocation_bytes, l->fitting};
}

/* narrow says whether too little fitted the plan in the window, or since the last change if that
 * is less. */
static int narrow(sp_learn *l, const stplan_counters *now) {
  uint64_t from = l->iterations > SP_LEARN_WINDOW ? l->iterations - SP_LEARN_WINDOW : 0;
  return fewer(l, now, sums_after(l, from < l->changed_at ? l->changed_at : from), NARROW);
}

int sp_learn_due(sp_learn *l, const stplan_counters *now, unsigned first, int ending) {
  if (l->made == 0 && now->state == STPLAN_DECLINED)
    return 0;
  if (l->made == 0 && now->state == STPLAN_NO_PLAN)
    return ending || l->iterations >= first;
  int fits = l->made > 0 && l->fits;
  /* A run that does not follow its last plan in the end has one made of all of it, which may be of the run itself (compile --whole-run). With
   * twice as many iterations at least, one of 30 steps of experts whose plan was of 20 had that for ever. */
  if (ending)
    return l->iterations > l->learned_at &&
           (l->refused || narrow(l, now) || (fits && l->iterations > l->learned_at + l->learned_at / MORE_AT_END && fewer(l, now, &l->began, BEYOND_AT_END)));
  if (l->made == MOST_PLANS || l->iterations < MORE * l->learned_at || l->iterations < l->changed_at + SP_LEARN_WINDOW)
    return 0;
  return narrow(l, now) || (fits && fewer(l, now, &l->began, BEYOND));
}

int sp_learn_awaits(const sp_learn *l, int made) { return made < l->made && l->iterations - l->learned_at < l->learned_at; }

void sp_learn_made(sp_learn *l) {
  l->learned_at = l->iterations;
  sp_learn_changed(l);
  l->made++;
}
