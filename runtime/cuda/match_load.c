#include "match_load.h"

#include <stdlib.h>

static uint64_t whole_units(uint64_t bytes) { return (bytes + 511) / 512 * 512; }

/* note has `size` bytes live from a step on to before another one, or beyond the part.
 * Bytes are what changes at each step, modulo 2^64. */
static void note(uint64_t *bytes, const sp_part *p, uint64_t from, uint64_t end, uint64_t size) {
  bytes[from] += size;
  if (end < p->end)
    bytes[end] -= size;
}

/* note_entering notes what a body finds allocated that the part before it left. */
static void note_entering(uint64_t *bytes, const sp_part *p, const sp_plan_device *plan, const sp_phase *phase) {
  for (uint64_t i = 0; i < phase->slots; i++) {
    sp_slot slot = sp_plan_slot(plan, phase->first_slot + i);
    if ((slot.flags & SP_SLOT_ENTERING) == 0)
      return; /* they come first */
    if (slot.occurrences == phase->occurrences && slot.least == slot.requested)
      note(bytes, p, p->first, p->first + slot.requested_end, whole_units(slot.least));
  }
}

/* add_up turns the changes of a part into what is allocated behind each of its steps,
 * above the `resident` bytes of the parts before. */
static void add_up(uint64_t *bytes, const sp_part *p, uint64_t resident) {
  for (uint64_t i = p->first; i < p->end; i++)
    bytes[i] = resident += bytes[i];
}

uint64_t *sp_load_make(const sp_sequence *s, const sp_plan_device *plan) {
  uint64_t *bytes = calloc(s->count + 1, sizeof *bytes), resident = 0;
  if (bytes == NULL)
    return NULL;
  for (uint64_t part = 0; part < s->part_count; part++) {
    const sp_part *p = &s->parts[part];
    uint64_t stays = 0;
    for (uint64_t i = p->first; i < p->end; i++) {
      const sp_step *step = &s->steps[i];
      if (step->optional || step->varies || !step->placed)
        continue;
      note(bytes, p, i, step->end, whole_units(step->least));
      if (part == 0 && step->stays)
        stays += whole_units(step->least);
    }
    if (part > 0 && p->first < p->end) {
      sp_phase phase = sp_plan_phase(plan, part);
      note_entering(bytes, p, plan, &phase);
    }
    add_up(bytes, p, resident);
    resident += stays;
  }
  return bytes;
}
