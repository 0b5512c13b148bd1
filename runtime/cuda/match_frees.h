/* match_frees.h: what the frees of a run say about where it is. The plan knows before
 * which step each block is freed. So a block that is gone means that this step
 * comes next, and one that is not gone, that it does not. That is worth as much as
 * it has proved to be worth in this run. */
#ifndef STPLAN_MATCH_FREES_H
#define STPLAN_MATCH_FREES_H

#include <stdint.h>

#include "match_sequence.h"

typedef struct {
  uint32_t pass, blocks;
} sp_due;

typedef struct {
  sp_due *due;       /* of each step: blocks at their places that are to be freed before it */
  uint64_t ahead;    /* the last step close ahead that a free since the last request belongs to, SP_NOWHERE without one */
  uint32_t all, right; /* frees since the last request, and those that belong to the pointer's step */
  int trust;         /* how often frees come where the plan has them, lately, of SP_TRUST */
} sp_frees;

enum { SP_TRUST = 1024 };

/* sp_frees_make makes one for a plan of so many steps. 0 without memory. */
int sp_frees_make(sp_frees *f, uint64_t steps);
void sp_frees_drop(sp_frees *f);

/* sp_frees_expect says that a block was served that is freed before step `end`. */
void sp_frees_expect(sp_frees *f, uint64_t end, uint64_t pass);

/* sp_frees_note says that it is free, while the pointer is at step `at`. */
void sp_frees_note(sp_frees *f, uint64_t end, uint64_t at, uint64_t pass);

/* sp_frees_due is how many blocks are still to be freed before a step. */
uint32_t sp_frees_due(const sp_frees *f, uint64_t at, uint64_t pass);

/* sp_frees_trusted says whether they have been right. */
int sp_frees_trusted(const sp_frees *f);

/* sp_frees_request ends what was noted since the last request: it is answered
 * and, where the run is in step, compared with what the plan says. */
uint64_t sp_frees_request(sp_frees *f, uint64_t at, uint64_t pass, int in_step);

#endif
