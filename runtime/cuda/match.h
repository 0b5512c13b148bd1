/* match.h: which slot of the plan is this request?
 *
 * The plan is a sequence of steps, one for each allocation: the prologue, then
 * bodies for ever. A pointer stands at the step expected next.
 *
 *               fits by size, stream, frees and length
 *                  .----------.
 *                  v          |
 *   begin ----> IN STEP ------'------ last step of a recorded plan ----> ENDED
 *                 |  ^ \
 *    fits not     |  |  '--> HELD: it fits, but the frees or the length say no
 *                 v  |             once; the next request decides
 *               ADRIFT  ---> the pointer fits again, or a hypothesis is confirmed
 *
 * A request that does not fit is served off plan and costs itself: the pointer
 * stays. Before that, what happens most is tried: optional steps do not come, one
 * request was left out, two changed places. A place that is too short for what it
 * might be is left empty then (matched, not placed), since a block that lives on
 * in the wrong place costs every later one there. Then hypotheses are raised
 * (match_hypotheses.h), and the pointer jumps to the one that is confirmed best, and not
 * before. Jumping eagerly cascades: a wrong
 * place takes memory that the right ones need. Nothing here is about safety:
 * whether the memory of a step is free is for others to say. */
#ifndef STPLAN_MATCH_H
#define STPLAN_MATCH_H

#include "plan.h"
#include "match_hole.h"

typedef struct sp_matcher sp_matcher;

/* What a request is to the plan. */
typedef struct {
  uint64_t step;         /* of the plan, where matched */
  uint64_t offset, size; /* its place, where placed */
  uint64_t allocated;    /* what the recording had allocated behind it (match_load.h), where matched */
  int matched;           /* it is in the plan's sequence */
  int placed;            /* the plan has a place for it */
  int stray;             /* it is matched, and outlives all that the plan lays out */
  int drifted;           /* the run left the sequence here */
  int jumped;            /* it was found elsewhere in the sequence */
  int body;              /* the pointer is in the steady state */
  int ended;             /* a recorded plan has no step after this one */
} sp_match;

/* sp_matcher_new takes what it needs from the plan. NULL without memory. */
sp_matcher *sp_matcher_new(const sp_plan_device *plan);
void sp_matcher_free(sp_matcher *m);

/* sp_matcher_next takes the next request of the program, in order. It works in
 * bounded time and allocates nothing. */
sp_match sp_matcher_next(sp_matcher *m, uint64_t requested, stplan_stream stream);

/* sp_matcher_placed says that a step's request was served at its place, and
 * sp_matcher_freed that this block is free. */
void sp_matcher_placed(sp_matcher *m, uint64_t step);
void sp_matcher_freed(sp_matcher *m, uint64_t step);

/* sp_matcher_hole_while_live begins a search for bytes of the plan that no step needs while
 * this one lives, whose own place is taken. 0 where the plan does not know how long
 * that is. */
int sp_matcher_hole_while_live(const sp_matcher *m, uint64_t step, uint64_t need, int looks, sp_hole_search *v);

/* sp_matcher_hole_for_steps begins one for bytes that none of the next `steps` steps needs. */
void sp_matcher_hole_for_steps(const sp_matcher *m, uint64_t steps, uint64_t need, int looks, sp_hole_search *v);

/* sp_matcher_mark says that a step of the program begins. Where one began while
 * the run was in step is where one is expected to begin again. */
void sp_matcher_mark(sp_matcher *m);

#endif
