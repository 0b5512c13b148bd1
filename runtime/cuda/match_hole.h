/* match_hole.h: memory of the plan that nobody is expected at for a while. A step
 * whose own place is taken can have it for as long as it lives, and a request that
 * is not planned for the time being. */
#ifndef STPLAN_MATCH_HOLE_H
#define STPLAN_MATCH_HOLE_H

#include <stdint.h>

#include "match_sequence.h"

/* sp_hole_search is a search for bytes that none of `steps` steps has, the first of
 * which is `at`, of `part`. What the plan says does not change in a run, so neither
 * does the answer: whoever is there until then is in no step's way. */
typedef struct {
  const sp_sequence *plan;
  uint64_t at, part, steps;
  uint64_t need; /* bytes */
  int looks;     /* how many steps may still be looked at */
} sp_hole_search;

/* sp_hole_find is the first offset of such bytes within [*offset, end), in
 * *offset. 0 where there are none, or where finding them takes too many looks. */
int sp_hole_find(sp_hole_search *v, uint64_t *offset, uint64_t end);

#endif
