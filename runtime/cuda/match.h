/* match.h: which step of the plan is this request?
 *
 * The plan is a sequence of steps, one for each allocation: the prologue, then
 * bodies for ever. A pointer stands at the step that is expected next.
 *
 *               fits by size, stream, frees and length
 *                  .----------.
 *                  v          |
 *   begin ----> IN STEP ------'------ last step of a recorded plan ----> ENDED
 *                 |  ^ \
 *    does not     |  |  '--> HELD: it fits, but the frees or the length say no.
 *    fit          v  |             For one request; the next one decides
 *               ADRIFT  ---> the pointer fits again, or a hypothesis is confirmed
 *
 * Before a request that does not fit counts as off plan, what happens most often
 * is tried: optional steps do not come, one request was left out, two changed
 * places (match_choose.h). A step may then be matched without its place being
 * used: a block that lives on in a wrong place costs every later request there.
 * If nothing applies, the request is off plan and the pointer stays. Hypotheses
 * about other places are raised (match_hypotheses.h), and the pointer jumps to
 * the best one, but only once it is confirmed: a jump to a wrong place takes
 * memory that the right requests need, which makes those fail in turn.
 *
 * Nothing here is about safety. Whether the memory of a step is free is decided
 * by the caller. */
#ifndef STPLAN_MATCH_H
#define STPLAN_MATCH_H

#include "match_hole.h"
#include "plan.h"

typedef struct sp_matcher sp_matcher;

/* What a request is to the plan. */
typedef struct {
  uint64_t step;         /* of the plan, if matched */
  uint64_t offset, size; /* its place in bytes of the arena, if placed */
  uint64_t allocated;    /* bytes that the recording had allocated after it (match_load.h), if matched, without the
                          * largest block that the run has left out */
  int matched;           /* it is in the plan's sequence */
  int placed;            /* the plan has a place for it */
  int shared;            /* it shares the place, and lies anywhere in it */
  int stray;             /* it is matched, and outlives everything that the plan lays out */
  int drifted;           /* the run left the sequence here */
  int jumped;            /* it was found elsewhere in the sequence */
  int passed;            /* it ends a pass that the run has followed for a while, and another begins */
  int body;              /* the pointer is in the steady state */
  int ended;             /* a recorded plan has no step after this one */
} sp_match;

/* sp_matcher_new copies what it needs from the plan. If it stretches, places follow the sizes of
 * the run where large ones vary (match_layout.h): only for memory that is taken where it is
 * needed. NULL without host memory. */
sp_matcher *sp_matcher_new(const sp_plan_device *plan, int stretches);
void sp_matcher_free(sp_matcher *m);

/* sp_matcher_enter is for a plan that begins in a run which is in its steady state already:
 * the pointer is in the first body, and adrift until the run is found. Call it before the
 * first request. The plan has to be periodic. */
void sp_matcher_enter(sp_matcher *m);

/* sp_matcher_shares says whether steps of the plan share places: data decide what a pass allocates. */
int sp_matcher_shares(const sp_matcher *m);

/* sp_matcher_pass is how many requests the first body has. The plan has to be periodic. */
uint64_t sp_matcher_pass(const sp_matcher *m);

/* sp_matcher_stiffen gives the steps the plan's own places from now on. Nothing may have been
 * served. */
void sp_matcher_stiffen(sp_matcher *m, const sp_plan_device *plan);

/* sp_matcher_room is the bytes that places may lie in, as they may move with the sizes of a
 * run (match_layout.h). 0 if they lie where the plan has them.
 * sp_matcher_bottom and sp_matcher_top are where those that do not stay begin, and the end of the
 * highest one that there has been. */
uint64_t sp_matcher_bottom(const sp_matcher *m);
uint64_t sp_matcher_room(const sp_matcher *m);
uint64_t sp_matcher_top(const sp_matcher *m);

/* sp_matcher_hear tells whom to ask where other blocks lie (match_layout.h). */
void sp_matcher_hear(sp_matcher *m, sp_occupied *occupied, void *self);

/* sp_matcher_settled says whether the run has been in step for as long as it takes to be sure of
 * that since it last was not. */
int sp_matcher_settled(const sp_matcher *m);

/* sp_matcher_forecast is the most bytes that this part of the pass takes by the laws of its
 * sizes, known from its first request that varies on, if that is larger than any before. 0 otherwise, and if laws did not
 * hold lately. sp_matcher_under_way says whether a run that has so many bytes allocated has had enough of that part, as its laws
 * say, for memory to be added for what is forecast. Before, it may be an evaluation, which needs less. */
uint64_t sp_matcher_forecast(const sp_matcher *m);
int sp_matcher_under_way(const sp_matcher *m, uint64_t allocated);

/* sp_matcher_expected is how many bytes the run is going to allocate at a time, if it does as the recording did, whose peak is given, with
 * batches as large as its largest until now: a run that has begun with smaller sizes than the recording may be one that never
 * needs as much. Weights, gradients and an optimizer's state it needs whatever its lengths are. */
uint64_t sp_matcher_expected(const sp_matcher *m, uint64_t peak);

/* sp_matcher_next matches the next request of the program; requests come in
 * order. It works in bounded time and allocates nothing. A request that has the places of a
 * segment found anew takes some milliseconds (docs/runtime.md, "Sizes that vary"). */
sp_match sp_matcher_next(sp_matcher *m, uint64_t requested, stplan_stream stream);

/* sp_matcher_placed is told that a step's request was served at its place,
 * sp_matcher_freed that this block is free. */
void sp_matcher_placed(sp_matcher *m, uint64_t step);
void sp_matcher_freed(sp_matcher *m, uint64_t step);

/* sp_matcher_hole_while_live begins a search for `need` bytes of the plan that
 * no step uses while the given one lives: for a step whose own place is taken.
 * 0 if the plan does not know how long the step lives. */
int sp_matcher_hole_while_live(const sp_matcher *m, uint64_t step, uint64_t need, int looks, sp_hole_search *search);

/* sp_matcher_hole_for_steps begins one for bytes that none of the next `steps` steps uses. */
void sp_matcher_hole_for_steps(const sp_matcher *m, uint64_t steps, uint64_t need, int looks, sp_hole_search *search);

/* sp_matcher_mark is told that a step of the program begins. If the run was in
 * step at an earlier mark, the next one is expected at the same place. */
void sp_matcher_mark(sp_matcher *m);

#endif
