/* match_sequence.h: a plan as the matcher walks it. */
#ifndef STPLAN_MATCH_SEQUENCE_H
#define STPLAN_MATCH_SEQUENCE_H

#include "plan.h"

/* Requests in a row that are looked up together. */
enum { SP_GRAM = 4 };

#define SP_NOWHERE UINT64_MAX

enum { SP_SCALE_ONE = 1 << 16 };
#define SP_NO_SCALE INT64_MIN

/* sp_step is one allocation of the plan. */
typedef struct {
  uint64_t least, most;  /* bytes requested in the recording */
  uint64_t offset, size; /* its place */
  uint64_t end;          /* the step before which it is freed, or its part's end; SP_NOWHERE where it crosses that */
  uint64_t beyond;       /* the first step from it on that is not optional, or its part's end */
  uint32_t stream;       /* index in the plan */
  uint8_t stays;         /* it is never freed */
  uint8_t placed;        /* 0 of a stray */
  uint8_t optional;      /* not in every recorded pass */
  uint8_t varies;        /* its size is not always the same */
  uint8_t turns;         /* it varies, in another proportion than the step before it that varies */
} sp_step;

/* sp_gram is where a run of SP_GRAM requests of constant size ends. */
typedef struct {
  uint64_t hash, at;
} sp_gram;

typedef struct {
  uint64_t first, end; /* steps */
  uint64_t follower;   /* first step of the body that follows most often */
} sp_part;

typedef struct {
  sp_step *steps;
  uint64_t count;
  sp_part *parts; /* the prologue, then the bodies */
  uint64_t part_count;
  sp_gram *grams; /* by hash, then place */
  uint64_t gram_count;
  uint64_t stream_count;
  int periodic;
} sp_sequence;

/* sp_sequence_make takes the steps from a plan. 0 without memory. */
int sp_sequence_make(sp_sequence *s, const sp_plan_device *plan);
void sp_sequence_drop(sp_sequence *s);

/* sp_sequence_next is the step after `at`: SP_NOWHERE at the end of a recorded
 * plan. part holds the part of `at`, and is kept up. */
uint64_t sp_sequence_next(const sp_sequence *s, uint64_t at, uint64_t *part);

/* sp_step_fits says whether a request is of a recorded size, sp_step_may_fit
 * whether it is not far from one, where sizes vary. */
int sp_step_fits(const sp_step *s, uint64_t requested);
int sp_step_may_fit(const sp_step *s, uint64_t requested);

/* sp_step_scale is where a request lies between the smallest and the largest of
 * its step, or beyond, SP_SCALE_ONE being the distance of the two. Where all sizes
 * follow one length, the steps that share a length have the same. SP_NO_SCALE of a
 * step whose size did not vary. */
int64_t sp_step_scale(const sp_step *s, uint64_t requested);
int sp_scales_agree(int64_t a, int64_t b);

/* sp_sequence_part is the part that a step belongs to. */
uint64_t sp_sequence_part(const sp_sequence *s, uint64_t at);

uint64_t sp_gram_hash(const uint64_t requested[SP_GRAM]);

/* sp_sequence_grams is the index of the first gram of this hash at or after a
 * place, or that of the next hash. */
uint64_t sp_sequence_grams(const sp_sequence *s, uint64_t hash, uint64_t from);

#endif
