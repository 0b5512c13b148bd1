/* match_hole.h: bytes of the plan's memory that no step uses for a while. A
 * step whose own place is taken can have them for as long as it lives, and a
 * request that the plan has no place for can have them for the time being. */
#ifndef STPLAN_MATCH_HOLE_H
#define STPLAN_MATCH_HOLE_H

#include <stdint.h>

#include "match_sequence.h"

/* sp_hole_search looks for bytes that none of `steps` steps uses, the first of
 * which is `at`, in `part`. The plan does not change during a run, so neither does
 * the answer, and a block there is in no step's way until those steps are over. */
typedef struct {
  const sp_sequence *plan;
  uint64_t at, part, steps;
  uint64_t need; /* bytes */
  int looks;     /* how many steps may still be looked at */
} sp_hole_search;

/* sp_hole_find makes *offset the first offset of such bytes within [*offset,
 * end). 0 if there are none, or if `looks` steps do not suffice to find them. */
int sp_hole_find(sp_hole_search *search, uint64_t *offset, uint64_t end);

#endif
