/* match_kin.h: which steps of a plan are the same line of the program.
 *
 * A prologue ends with a first iteration, several bodies are of one program, and a body
 * repeats its micro-batches. Steps that come in the same order there, on the same stream and
 * with the same lifetimes, are *kin*: what is known of the sizes of one is known of all. */
#ifndef STPLAN_MATCH_KIN_H
#define STPLAN_MATCH_KIN_H

#include "match_sequence.h"

typedef struct {
  const sp_sequence *plan;
  uint32_t *first; /* towards the first step of each step's kin */
  uint32_t *twin;  /* for each step of the prologue and of later bodies: the first body's that it was compared with; itself if none */
  uint32_t *rank;  /* of each step: how many of the list come before it; one more at the end */
  uint32_t *list;  /* the steps that are freed some time */
  uint64_t count;  /* of these */
  uint64_t tries;  /* to leave steps out, and comparisons, that are left: it bounds the time */
} sp_kin;

/* sp_kin_make makes kin of the first body's steps and those of the prologue and of other
 * bodies. 0 without host memory, or if there are 2^32 - 1 steps or more. */
int sp_kin_make(sp_kin *k, const sp_sequence *s);
void sp_kin_drop(sp_kin *k);

/* sp_kin_join makes kin of what two stretches of steps have in common, if that is most of the
 * shorter one. 1 if so. */
int sp_kin_join(sp_kin *k, uint64_t first, uint64_t end, uint64_t other, uint64_t other_end);

/* sp_kin_alike is how many steps in a row from one on are as those from another on, `most` at most. 0 once too many
 * have been compared. */
uint64_t sp_kin_alike(sp_kin *k, uint64_t step, uint64_t other, uint64_t most);

/* sp_kin_of is the first step of a step's kin, itself if it has none. */
uint32_t sp_kin_of(sp_kin *k, uint64_t step);

#endif
