/* match_frees.h: what the frees of a run say about where the run is in the plan.
 *
 * The plan knows before which step each block is freed. So if a block is gone,
 * the step before which it is freed comes next; if a block is still there that
 * should be gone, that step does not come yet. This is believed only as far as
 * it has been right in this run. */
#ifndef STPLAN_MATCH_FREES_H
#define STPLAN_MATCH_FREES_H

#include <stdint.h>

#include "match_sequence.h"

/* Blocks that are to be freed before a step, counted in one pass; in any other
 * pass there are none. */
typedef struct {
  uint32_t pass, blocks;
} sp_due;

typedef struct {
  sp_due *due;         /* of each step: blocks that were served at their places */
  uint64_t ahead;      /* the last step close ahead that a free since the last request belongs to, SP_NOWHERE if none */
  uint32_t all, right; /* frees since the last request, and those of them that belong to the pointer's step */
  int trust;           /* how often frees come where the plan has them, lately, of SP_TRUST */
} sp_frees;

/* The unit of trust: frees that have always been right. A run begins with it. */
enum { SP_TRUST = 1024 };

/* sp_frees_make makes one for a plan of `steps` steps. 0 without host memory. */
int sp_frees_make(sp_frees *f, uint64_t steps);
void sp_frees_drop(sp_frees *f);

/* sp_frees_expect is told of a block that the plan frees before step `end`. */
void sp_frees_expect(sp_frees *f, uint64_t end, uint64_t pass);

/* sp_frees_note is told that such a block has been freed, with the pointer at step `at`. */
void sp_frees_note(sp_frees *f, uint64_t end, uint64_t at, uint64_t pass);

/* sp_frees_due is how many blocks are still to be freed before a step. */
uint32_t sp_frees_due(const sp_frees *f, uint64_t at, uint64_t pass);

/* sp_frees_trusted says whether frees have mostly been right in this run. */
int sp_frees_trusted(const sp_frees *f);

/* sp_frees_request begins a request, with the pointer at step `at`: it returns
 * `ahead` and forgets the frees since the last request. If the run is in step,
 * trust follows how many of them the plan has there. */
uint64_t sp_frees_request(sp_frees *f, uint64_t at, uint64_t pass, int in_step);

#endif
