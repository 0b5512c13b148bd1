#include "match_frees.h"

#include <stdlib.h>

/* Steps. A free points to a step only if that is at most this far ahead of the
 * pointer: a free that belongs further ahead is that of a block in a wrong place. */
enum { CLOSE = 2 };

/* Frees are trusted if three out of four come where the plan has them. A lower
 * share would believe frees that come in any order; a higher one would give
 * them up in runs whose passes differ a little. */
enum { TRUSTED = SP_TRUST / 4 * 3 };

/* Each request counts 1/MEMORY in the trust: fewer would follow noise, more
 * would believe frees for long after the run has changed. */
enum { MEMORY = 32 };

int sp_frees_make(sp_frees *f, uint64_t steps) {
  *f = (sp_frees){.ahead = SP_NOWHERE, .trust = SP_TRUST};
  f->due = calloc(steps + 1, sizeof *f->due);
  return f->due != NULL;
}

void sp_frees_drop(sp_frees *f) { free(f->due); }

uint32_t sp_frees_due(const sp_frees *f, uint64_t at, uint64_t pass) {
  return f->due[at].pass == (uint32_t)pass ? f->due[at].blocks : 0;
}

void sp_frees_expect(sp_frees *f, uint64_t end, uint64_t pass) {
  f->due[end] = (sp_due){(uint32_t)pass, sp_frees_due(f, end, pass) + 1};
}

void sp_frees_note(sp_frees *f, uint64_t end, uint64_t at, uint64_t pass) {
  f->all++;
  f->right += end == at;
  if (end > at && end - at <= CLOSE && (f->ahead == SP_NOWHERE || end > f->ahead))
    f->ahead = end;
  if (sp_frees_due(f, end, pass) > 0)
    f->due[end].blocks--;
}

int sp_frees_trusted(const sp_frees *f) { return f->trust >= TRUSTED; }

uint64_t sp_frees_request(sp_frees *f, uint64_t at, uint64_t pass, int in_step) {
  uint64_t ahead = f->ahead;
  uint32_t all = f->all + (in_step ? sp_frees_due(f, at, pass) : 0);
  if (in_step && all > 0)
    f->trust += ((int)(f->right * SP_TRUST / all) - f->trust) / MEMORY;
  f->ahead = SP_NOWHERE;
  f->all = f->right = 0;
  return ahead;
}
