/* vacancy.h: places of the plan that nobody is expected at for a while: that of a
 * step that did not come, and that of a block that was freed before its time. A
 * step whose own place is taken can have one of them for as long as it lives. */
#ifndef STPLAN_VACANCY_H
#define STPLAN_VACANCY_H

#include <stdint.h>

#include "sequence.h"

enum { SP_VACANCIES = 64 };

typedef struct {
  uint64_t offset, size;
  uint64_t until; /* step of the pass that it is vacant up to, SP_NOWHERE for good */
  uint64_t pass;  /* parts that the run had left */
} sp_vacancy;

typedef struct {
  sp_vacancy list[SP_VACANCIES];
  uint64_t count; /* ever added; the newest is at (count - 1) % SP_VACANCIES */
} sp_vacancies;

/* sp_vacancies_add adds the place of a step that the run does not need from step
 * `now` on. What the plan needs again by then is none. */
void sp_vacancies_add(sp_vacancies *v, const sp_sequence *plan, uint64_t step, uint64_t part, uint64_t now, uint64_t pass);

/* sp_vacancies_find is the offset of the next one that holds `need` bytes up to
 * step `end` of this pass, newest first; 0 where there is none. *cursor is 0 at
 * the beginning, and goes on from there. */
int sp_vacancies_find(const sp_vacancies *v, uint64_t need, uint64_t end, uint64_t pass, int *cursor, uint64_t *offset);

#endif
