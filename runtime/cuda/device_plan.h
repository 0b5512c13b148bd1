/* device_plan.h: how the plan of a device object is doing. One place decides
 * whether the plan is served, suspended, resumed, given up or over, and keeps
 * what that is decided by; no other file sees it.
 *
 *   STPLAN_PROLOGUE, STPLAN_BODY   it is served: requests get its places
 *   STPLAN_OFF                     suspended, since too few bytes fit, or since it costs more memory
 *                                  than it is worth though the run had followed it; served again
 *                                  once most bytes fit, or at the end of a pass. Or given up, for
 *                                  good: it costs too much otherwise, or the device has none for it
 *   STPLAN_ENDED                   a recorded plan has been served to its last step
 *   STPLAN_DECLINED                it says of itself that it does not pay; treated as no plan
 *
 * While it is not served, its memory is part of the pool; if it was suspended on
 * trial, it only moves to where the pool needs it. Every function is called with
 * the lock held and keeps it. */
#ifndef STPLAN_DEVICE_PLAN_H
#define STPLAN_DEVICE_PLAN_H

#include "device.h"
#include "match.h"
#include "plan.h"

/* sp_device_plan_open prepares to serve a plan's device; NULL for none. d->plan
 * stays NULL unless there is one that is not declined. 0 without host memory. */
int sp_device_plan_open(stplan_device *d, const sp_plan_device *plan);
void sp_device_plan_close(stplan_device *d);

/* These may be asked without a plan too.
 *
 * served says whether the plan is served: it has memory, and is neither suspended nor
 * over. Until it has memory everything goes as without a plan. holds says whether
 * an address lies in the plan's memory, and base where that begins; 0 if it has none. */
int sp_device_plan_served(const stplan_device *d);
int sp_device_plan_holds(const stplan_device *d, uint64_t addr);
uint64_t sp_device_plan_base(const stplan_device *d);

/* How much more may be reserved than has been allocated while a plan is served,
 * as 1/N of that. docs/runtime.md ("A plan's memory") has the table. */
typedef enum {
  /* Above this the plan's idle memory moves to other requests, rather than more
   * being taken. A smaller share would move memory for little, a larger one
   * would reserve more. */
  SP_EXCESS_LENDS = 300,
  /* Above this the plan yields: it may cost 1 % of what is allocated, and no more. */
  SP_EXCESS_ENDS = 100
} sp_excess;

/* sp_device_plan_costs says whether the plan is served and more would be
 * reserved than it is worth: with `taken` bytes more reserved and `more` about
 * to be allocated, more than the excess above the most that has been allocated,
 * and the granules that zones begin. */
int sp_device_plan_costs(const stplan_device *d, uint64_t taken, uint64_t more, sp_excess excess);

/* sp_device_plan_strays says which addresses [*low, *high) places have left for a detour, or for
 * their own again (device_detour.h), if they have since it last said so: idle memory there is needed
 * where they lie now. */
int sp_device_plan_strays(stplan_device *d, uint64_t *low, uint64_t *high);

/* sp_device_plan_leaves says that the plan has left its own places for others, for the sizes of
 * this run (match_layout.h), and that less than a pass ago: the idle memory of these, of addresses
 * [*low, *high), is needed no more. Later there is none but of what crosses the seam. */
int sp_device_plan_leaves(stplan_device *d, uint64_t *low, uint64_t *high);

/* All that follows needs a plan.
 *
 * needs_memory says whether the plan's memory has not been asked for, and bytes
 * how many bytes of addresses that takes; afterwards, how many its places have taken at most,
 * from `bottom` on. `unit` is the bytes of its granules: large ones if the plan is proven,
 * by this run or an earlier one, and its places stay where they are, else the least. `spare` is how many
 * bytes of addresses behind these are for detours. begin is told where the memory lies,
 * or 0 if the device has none for it, and how many bytes of addresses it got, without and for detours. It is asked for
 * when the first place is needed: a plan without one for any request of the run takes nothing. */
int sp_device_plan_needs_memory(const stplan_device *d);
uint64_t sp_device_plan_bottom(const stplan_device *d);
uint64_t sp_device_plan_bytes(const stplan_device *d);
uint64_t sp_device_plan_unit(const stplan_device *d);
uint64_t sp_device_plan_spare(const stplan_device *d);
void sp_device_plan_begin(stplan_device *d, uint64_t base, uint64_t room, uint64_t spare);

/* What the plan says of a request. All zero: nothing. */
typedef struct {
  uint64_t plan;     /* number of the plan that says it, from 1 */
  uint64_t address;  /* of its place, if planned; from the beginning of the plan while it needs memory */
  uint64_t offset, size; /* of its place in the plan, if planned */
  uint64_t step;     /* of the plan, if planned */
  uint64_t recorded; /* bytes that the recording had allocated here; 0 if unknown */
  int planned;       /* the plan has a place for it */
  int stray;         /* it lives longer than the plan can tell */
} sp_place;

/* sp_device_plan_next asks the plan about the next request, which occupies
 * `need` bytes, and fills in *place, which is zero before. It suspends or
 * resumes the plan if that is due, and ends it at its last step. */
void sp_device_plan_next(stplan_device *d, uint64_t need, uint64_t requested, stplan_stream stream, sp_place *place);

/* sp_device_plan_said says whether it is the plan of today that said this: while a request
 * lets go of the lock, another plan may be put in place, and its steps are others. It may be
 * asked without a plan. */
int sp_device_plan_said(const stplan_device *d, const sp_place *place);

/* sp_device_plan_done is told that this request has been served, and whether at its place. */
void sp_device_plan_done(stplan_device *d, const sp_place *place, uint64_t need, int at_place);

/* sp_device_plan_freed is told that the block of a step, served at its place, is free. */
void sp_device_plan_freed(stplan_device *d, uint64_t step);

/* sp_device_plan_mark is told that a step of the program begins. */
void sp_device_plan_mark(stplan_device *d);

/* sp_device_plan_follows begins to count what is asked for while the run follows a plan, which is
 * that of the device or its next one. sp_device_plan_followed counts a request for `need` bytes,
 * and whether it is on plan. */
void sp_device_plan_follows(stplan_device *d, const struct sp_device_plan *p);
void sp_device_plan_followed(stplan_device *d, uint64_t need, int planned);

/* sp_device_plan_hole finds the smallest free range of the plan's memory that has `need`
 * bytes, from *addr on, which no step uses while the step of `place` lives. NULL if there is none.
 * sp_device_plan_gap is the same for a block that the plan does not know: no step uses the bytes
 * during the next 2,048 steps, or 8,192 if there are such. If there are none and `any` is set, it finds those that are
 * used the latest, about. sp_device_plan_small_apart says that small blocks have too little memory of their own to
 * be given any of the plan's. */
sp_range *sp_device_plan_hole(const stplan_device *d, const sp_place *place, uint64_t need, uint64_t *addr);
int sp_device_plan_small_apart(const stplan_device *d);
sp_range *sp_device_plan_gap(const stplan_device *d, uint64_t need, int any, uint64_t *addr);

/* sp_device_plan_detour has the place of a request, which is taken, lie elsewhere, with all
 * that lies within it in the plan, until nothing is in the way any more. *place is changed. 0 if that
 * cannot be. */
int sp_device_plan_detour(stplan_device *d, sp_place *place);

/* sp_device_plan_give_up suspends the plan for good. sp_device_plan_yield suspends one that costs more
 * memory than it is worth: for good, unless the run has followed it for a pass since it was last suspended. Then
 * it is of this run, which does something else now, such as an evaluation, and is served again at the end of a pass. */
void sp_device_plan_give_up(stplan_device *d);
void sp_device_plan_yield(stplan_device *d);

/* sp_device_plan_make makes the state of a plan that has served nothing, for memory that moves or
 * does not; NULL without host memory. sp_device_plan_drop frees it, NULL too. They do not need the lock. */
struct sp_device_plan *sp_device_plan_make(const sp_plan_device *plan, int moves);
void sp_device_plan_drop(struct sp_device_plan *p);

/* sp_device_plan_place is what a match of a plan's says of a request for `need` bytes. */
sp_place sp_device_plan_place(const struct sp_device_plan *p, const sp_match *m, uint64_t need);

/* sp_device_plan_replace puts a plan in place of the one that there was, if any, which it
 * returns. That one's memory and its blocks are the pool's from now on. The growth lock is
 * held, so that nobody takes memory for a plan meanwhile. */
struct sp_device_plan *sp_device_plan_replace(stplan_device *d, struct sp_device_plan *p);

#endif
