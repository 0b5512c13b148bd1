/* match_loops.h: where the steps of a plan repeat any number of times, as those of a layer's experts do. */
#ifndef STPLAN_MATCH_LOOPS_H
#define STPLAN_MATCH_LOOPS_H

#include "match_sequence.h"

/* Steps of the longest round. An expert makes 12 to 30 requests. */
enum { SP_ROUND_MOST = 256 };

/* sp_loop is a stretch of steps [first, end) of one part that repeats every `period` steps. Where a round begins is not known, so the
 * last one may lack its end. */
typedef struct {
  uint64_t first, end, period;
} sp_loop;

/* sp_loop_keys is what tells the lines of the program apart, for each step: a hash of its stream and its lifetime. It is to be freed. NULL
 * without host memory. */
uint64_t *sp_loop_keys(const sp_sequence *s);

/* sp_by_number orders 64-bit numbers, for qsort and bsearch. */
int sp_by_number(const void *a, const void *b);

/* sp_loops_find finds the loops that recorded passes ran a different number of times, in bodies and in the prologue, in the order of the plan.
 * keys are those of sp_loop_keys, or ones that tell more of them apart. *loops is to be freed. 0 without host memory. */
int sp_loops_find(const sp_sequence *s, const uint64_t *keys, sp_loop **loops, uint64_t *count);

#endif
