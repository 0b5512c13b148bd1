#include "device_install.h"

#include "device_plan_state.h"
#include "device_trim.h"

/* Per cent of the bytes asked for in a pass that could have been served at their places: from
 * BEGINS on a plan is put in place. With 50, GRPO got a plan that moved more than the pool, and
 * a wider one right after it. It has to be so in the pass that is under way as well: a job that trains more layers from some
 * step on got a plan without these when 72 % fitted. */
enum { BEGINS = 80 };

/* fits says whether the next plan could have served that much of late. */
static int fits(const sp_device_plan *next) { return next->placed_bytes >= next->wanted_bytes / 100 * BEGINS; }

/* 1/N of the distance between the least and the most bytes allocated in a pass: within it of the
 * least, memory is idle that the plan can have. That is so between two steps of a program. A
 * body may be several steps, so its beginning would come late, or never if the program takes
 * them in another order. */
enum { NEAR_LEAST = 32 };

/* pays says whether it pays to put the next plan in place now. That moves all idle memory, once.
 * So it pays if the run has moved as much since the plan came: it then moves at most twice what
 * it would have to, whatever comes. It also pays if the run reserves far more than it allocates. Beside blocks
 * that stay where they are a plan comes to as much as 1 % itself, and one of few iterations ends at the first
 * evaluation, so for less the pool goes on: from 1 % on a diffusion job came to reserve 2.9 % in place of 1.2. It does not pay while
 * a plan of more iterations is being made, which is done if the run goes beyond this one: on a GPU a finetuning got its plan of four steps
 * two steps after an evaluation that this does not know, and lost it in the next one. */
static int pays(const stplan_device *d, const sp_device_plan *next) {
  const stplan_counters *c = &d->counters;
  if (sp_learn_awaits(&d->learn, next->made))
    return 0;
  return c->moved_bytes - next->moved_before >= c->reserved_bytes - c->allocated_bytes ||
         sp_debt_far(c, 0, 0, 0);
}

/* low says whether as little is allocated as between two steps. */
static int low(const stplan_device *d, const sp_device_plan *next) {
  return d->counters.allocated_bytes <= next->least + (next->most - next->least) / NEAR_LEAST;
}

/* begin_pass judges how a pass went, and the ones before it, each half as much as the one after
 * it. Then it begins to watch the next one. The first pass is partly that of a matcher which has
 * to find the run, so what counts of a plan that was followed begins with the second. */
static void begin_pass(stplan_device *d, sp_device_plan *next) {
  if (!next->followed)
    sp_device_plan_follows(d, next);
  next->followed = 1;
  next->fitted = fits(next);
  next->least = next->least_now;
  next->most = next->most_now;
  next->least_now = UINT64_MAX;
  next->watched = next->most_now = 0;
  next->wanted_bytes /= 2;
  next->placed_bytes /= 2;
}

/* watch notes a request that follows the next plan. */
static void watch(const stplan_device *d, sp_device_plan *next, uint64_t need, int planned) {
  uint64_t allocated = d->counters.allocated_bytes;
  next->watched++;
  next->wanted_bytes += need;
  next->placed_bytes += planned ? need : 0;
  if (allocated < next->least_now)
    next->least_now = allocated;
  if (allocated > next->most_now)
    next->most_now = allocated;
}

/* replace makes the next plan the plan, on trial (device_plan.c), and returns the one that was. The run owes
 * nothing from then on. Locked. Growth lock held. */
static sp_device_plan *replace(stplan_device *d) {
  sp_device_plan *p = d->next;
  p->watched = 0;
  p->proven = 1;
  d->next = NULL;
  SP_COUNT(d, installs, 1);
  sp_learn_changed(&d->learn);
  sp_debt_come(&d->debt);
  return sp_device_plan_replace(d, p);
}

/* put_in_place makes the next plan the plan, unless another thread was first. If idle memory
 * cannot be given back at present, that is tried again a pass later, as it may have taken
 * seconds to find out. Locked; lets go of the lock. */
static void put_in_place(stplan_device *d, uint64_t number) {
  sp_device_lock_growth(d);
  sp_device_plan *left = NULL, *p = d->next;
  if (p != NULL && p->number == number && sp_device_moves(d)) {
    p->fitted = 0;
    int gathered = sp_device_gather(d, 0, UINT64_MAX) > 0;
    if (gathered && d->next == p)
      left = replace(d);
  }
  sp_device_unlock(d);
  sp_device_unlock_growth(d);
  sp_device_plan_drop(left);
  sp_device_lock(d);
}

int sp_device_follows_next(const stplan_device *d) { return d->next != NULL && d->next->followed; }

int sp_device_learns_of_next(const stplan_device *d) {
  return sp_device_follows_next(d) && sp_matcher_room(d->next->matcher) == 0;
}

void sp_device_follow(stplan_device *d, uint64_t need, uint64_t requested, stplan_stream stream, sp_place *place) {
  sp_device_plan *p = d->next;
  sp_match m = sp_matcher_next(p->matcher, requested, stream);
  *place = sp_device_plan_place(p, &m, need);
  if (p->watched >= sp_matcher_pass(p->matcher))
    begin_pass(d, p);
  watch(d, p, need, place->planned);
  uint64_t number = p->number;
  if (p->fitted && fits(p) && place->planned && low(d, p) && pays(d, p))
    put_in_place(d, number);
  if (!sp_device_follows_next(d) || d->next->number != number)
    return;
  sp_device_plan_followed(d, need, place->planned);
  if (place->planned && sp_device_learns_of_next(d))
    sp_learn_fits(&d->learn, need);
}

/* refused says why a plan cannot begin in a run; STPLAN_OK if it can. */
static stplan_status refused(stplan_device *d, const sp_plan_device *plan) {
  if (plan == NULL)
    return STPLAN_BAD_DEVICE;
  if (plan->mode != SP_MODE_PERIODIC || plan->advice == SP_ADVICE_POOL)
    return STPLAN_BAD_PLAN;
  return stplan_moves(d) ? STPLAN_OK : STPLAN_FAILED;
}

stplan_status stplan_install(stplan_device *d, const stplan_plan *plan, int ordinal) {
  const sp_plan_device *of = sp_plan_find(plan, ordinal);
  stplan_status status = refused(d, of);
  sp_device_plan *p = status == STPLAN_OK ? sp_device_plan_make(of, 1) : NULL;
  if (status == STPLAN_OK && p == NULL)
    status = STPLAN_FAILED;
  sp_device_lock(d);
  if (p == NULL) {
    sp_learn_refused(&d->learn);
    if (d->next != NULL)
      d->next->made = d->learn.made; /* there is no other to wait for */
    sp_device_unlock(d);
    return status;
  }
  sp_learn_changed(&d->learn);
  sp_matcher_enter(p->matcher);
  sp_device_plan *before = d->next;
  p->number = ++d->plans;
  p->made = d->learn.made;
  p->least_now = UINT64_MAX;
  p->moved_before = d->counters.moved_bytes;
  d->next = p;
  sp_device_unlock(d);
  sp_device_plan_drop(before);
  return STPLAN_OK;
}
