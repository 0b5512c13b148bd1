/* match_hypotheses.h: places where the run might be instead of at the pointer. Each
 * moves with every request and dies with the first that does not fit it. */
#ifndef STPLAN_MATCH_HYPOTHESES_H
#define STPLAN_MATCH_HYPOTHESES_H

#include <stdint.h>

#include "match_sequence.h"

enum { SP_HYPOTHESES = 32 };

typedef struct {
  uint64_t at; /* the step that fitted last */
  uint64_t part;
  int64_t scale; /* of the last step that has one */
  int fitted;    /* requests that it explains and the pointer did not, in a row */
  int fork;      /* the pointer could have gone there, and took the other way */
  int body;      /* and it is another body that may have begun */
} sp_hypothesis;

typedef struct {
  const sp_sequence *plan;
  int count;
  sp_hypothesis list[SP_HYPOTHESES];
} sp_hypotheses;

/* The last requests, the newest last, and how many there have been. */
typedef struct {
  uint64_t list[SP_GRAM];
  uint64_t seen;
} sp_recent;

/* sp_hypotheses_advance moves all of them by a request. Where one length decides
 * the sizes of this run, they have to agree about it. */
void sp_hypotheses_advance(sp_hypotheses *h, uint64_t requested, uint64_t pointer, int one_length);

/* sp_hypotheses_raise takes up the places around the pointer, the beginnings of
 * bodies and the places of the last few requests, where the last one fits. The
 * prologue is one of them only where that is asked for. */
void sp_hypotheses_raise(sp_hypotheses *h, uint64_t pointer, uint64_t part, const sp_recent *recent, int prologue);

/* sp_hypotheses_fork takes up the way that the pointer did not go; body says that
 * it is the beginning of another body. */
void sp_hypotheses_fork(sp_hypotheses *h, uint64_t at, uint64_t part, int body, uint64_t requested);

/* sp_hypotheses_discount takes away what the pointer explained as well, the last
 * so many requests. */
void sp_hypotheses_discount(sp_hypotheses *h, int requests);

/* sp_hypotheses_best is the confirmed one that explains most, of equals the
 * nearest to the pointer, which is in a part; NULL where none is confirmed. */
const sp_hypothesis *sp_hypotheses_best(const sp_hypotheses *h, uint64_t pointer, uint64_t part);

#endif
