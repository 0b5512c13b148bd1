#include "vacancy.h"

void sp_vacancies_add(sp_vacancies *v, const sp_sequence *plan, uint64_t step, uint64_t part, uint64_t now, uint64_t pass) {
  const sp_step *s = &plan->steps[step];
  uint64_t until = s->stays ? SP_NOWHERE : s->end != SP_NOWHERE ? s->end : plan->parts[part].end;
  if (s->placed && now < until)
    v->list[v->count++ % SP_VACANCIES] = (sp_vacancy){s->offset, s->size, until, pass};
}

int sp_vacancies_find(const sp_vacancies *v, uint64_t need, uint64_t end, uint64_t pass, int *cursor, uint64_t *offset) {
  uint64_t stored = v->count < SP_VACANCIES ? v->count : SP_VACANCIES;
  while ((uint64_t)*cursor < stored) {
    const sp_vacancy *place = &v->list[(v->count - 1 - (uint64_t)(*cursor)++) % SP_VACANCIES];
    *offset = place->offset;
    if (place->size >= need && (place->until == SP_NOWHERE || (place->pass == pass && end <= place->until)))
      return 1;
  }
  return 0;
}
