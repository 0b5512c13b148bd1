#include "match_hole.h"

/* push moves *offset behind the places of these steps that are in the way. 0 where
 * that leads too far. */
static int push(sp_hole_search *v, const sp_step *s, uint64_t steps, uint64_t *offset, uint64_t end) {
  for (const sp_step *last = s + steps; s < last; s++) {
    if (--v->looks < 0)
      return 0;
    if (s->offset < *offset + v->need && *offset < s->offset + s->size) {
      *offset = s->offset + s->size;
      if (*offset + v->need > end)
        return 0;
    }
  }
  return 1;
}

/* push_all does so for all of them. */
static int push_all(sp_hole_search *v, uint64_t *offset, uint64_t end) {
  uint64_t at = v->at, part = v->part, left = v->steps;
  while (left > 0 && at != SP_NOWHERE) {
    uint64_t here = v->plan->parts[part].end - at;
    if (here > left)
      here = left;
    if (!push(v, &v->plan->steps[at], here, offset, end))
      return 0;
    left -= here;
    at = sp_sequence_next(v->plan, at + here - 1, &part);
  }
  return 1;
}

int sp_hole_find(sp_hole_search *v, uint64_t *offset, uint64_t end) {
  uint64_t before;
  do { /* what moved behind a late step may be in an early one's way */
    before = *offset;
    if (!push_all(v, offset, end))
      return 0;
  } while (*offset != before);
  return 1;
}
