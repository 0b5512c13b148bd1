#include "match_load.h"

#include <stdlib.h>

#include "sizes.h"

/* note has `size` bytes live from step `from` until before step `end`, or to
 * the part's end. load[i] is the change at step i, modulo 2^64. */
static void note(uint64_t *load, const sp_part *p, uint64_t from, uint64_t end, uint64_t size) {
  load[from] += size;
  if (end < p->end)
    load[end] -= size;
}

/* note_entering notes what a body finds allocated because the part before it left it. */
static void note_entering(uint64_t *load, const sp_part *p, const sp_plan_device *plan, const sp_phase *phase) {
  for (uint64_t i = 0; i < phase->slots; i++) {
    sp_slot slot = sp_plan_slot(plan, phase->first_slot + i);
    if ((slot.flags & SP_SLOT_ENTERING) == 0)
      return; /* entering slots come first */
    if (slot.occurrences == phase->occurrences && slot.least == slot.requested)
      note(load, p, p->first, p->first + slot.requested_end, sp_aligned(slot.least));
  }
}

/* add_up turns the changes of a part into loads, above the `resident` bytes of
 * the parts before it. */
static void add_up(uint64_t *load, const sp_part *p, uint64_t resident) {
  for (uint64_t i = p->first; i < p->end; i++)
    load[i] = resident += load[i];
}

/* counted says whether a step is part of the load. */
static int counted(const sp_step *step) { return !step->optional && !step->varies && step->placed; }

uint64_t *sp_load_make(const sp_sequence *s, const sp_plan_device *plan) {
  uint64_t *load = calloc(s->count + 1, sizeof *load), resident = 0;
  if (load == NULL)
    return NULL;
  for (uint64_t part = 0; part < s->part_count; part++) {
    const sp_part *p = &s->parts[part];
    uint64_t stays = 0;
    for (uint64_t i = p->first; i < p->end; i++) {
      const sp_step *step = &s->steps[i];
      if (!counted(step))
        continue;
      note(load, p, i, step->end, sp_aligned(step->least));
      if (part == 0 && step->stays)
        stays += sp_aligned(step->least);
    }
    if (part > 0 && p->first < p->end) {
      sp_phase phase = sp_plan_phase(plan, part);
      note_entering(load, p, plan, &phase);
    }
    add_up(load, p, resident);
    resident += stays;
  }
  return load;
}

int sp_load_at_peak(uint64_t *bytes, const sp_sequence *s, const uint64_t *load) {
  uint64_t *others = calloc(s->count + 1, sizeof *others), most = 0;
  if (others == NULL)
    return 0;
  *bytes = 0;
  for (uint64_t part = 0; part < s->part_count; part++) {
    const sp_part *p = &s->parts[part];
    for (uint64_t i = p->first; i < p->end; i++)
      if (s->steps[i].placed && !counted(&s->steps[i]))
        note(others, p, i, s->steps[i].end, sp_aligned(s->steps[i].most));
    add_up(others, p, 0);
    for (uint64_t i = p->first; i < p->end; i++)
      if (load[i] + others[i] > most) {
        most = load[i] + others[i];
        *bytes = load[i];
      }
  }
  free(others);
  return 1;
}
