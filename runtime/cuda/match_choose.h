/* match_choose.h: which step a request is taken for, while the run is in step
 * or nearly so. docs/runtime.md has the rules in their order. */
#ifndef STPLAN_MATCH_CHOOSE_H
#define STPLAN_MATCH_CHOOSE_H

#include "match_state.h"

/* A step for a request, and the part it is in. at is SP_NOWHERE if there is none. */
typedef struct {
  uint64_t at, part;
  int unsure; /* it may be another step, whose block lives longer than the plan keeps this place */
  int jumped; /* the pointer was elsewhere */
  int late;   /* the pointer is past it already, and stays */
  int begun;  /* another body has begun than the pointer's, or than where that went */
} sp_choice;

/* sp_matcher_choose is the step that a request is, by everything that is known except
 * hypotheses. `ahead` is the step that the frees point to, SP_NOWHERE if none. If
 * there is a reason not to believe the pointer although the request fits, the answer
 * is none and m->doubted has the reason; that never happens twice in a row. */
sp_choice sp_matcher_choose(sp_matcher *m, uint64_t ahead, uint64_t requested, stplan_stream stream);

#endif
