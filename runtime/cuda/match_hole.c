#include "match_hole.h"

/* push moves *offset past the places of the steps [s, s+steps) that overlap what is
 * looked for. 0 if that leads beyond `end`, or if too many steps have been looked at. */
static int push(sp_hole_search *search, const sp_step *s, uint64_t steps, uint64_t *offset, uint64_t end) {
  for (const sp_step *last = s + steps; s < last; s++) {
    if (--search->looks < 0)
      return 0;
    if (s->offset < *offset + search->need && *offset < s->offset + s->size) {
      *offset = s->offset + s->size;
      if (*offset + search->need > end)
        return 0;
    }
  }
  return 1;
}

/* push_all does so for all steps of the search, part by part. */
static int push_all(sp_hole_search *search, uint64_t *offset, uint64_t end) {
  uint64_t at = search->at, part = search->part, left = search->steps;
  while (left > 0 && at != SP_NOWHERE) {
    uint64_t here = search->plan->parts[part].end - at;
    if (here > left)
      here = left;
    if (!push(search, &search->plan->steps[at], here, offset, end))
      return 0;
    left -= here;
    at = sp_sequence_next(search->plan, at + here - 1, &part);
  }
  return 1;
}

int sp_hole_find(sp_hole_search *search, uint64_t *offset, uint64_t end) {
  uint64_t before;
  do { /* pushed past a late step, it may overlap an early one again */
    before = *offset;
    if (!push_all(search, offset, end))
      return 0;
  } while (*offset != before);
  return 1;
}
