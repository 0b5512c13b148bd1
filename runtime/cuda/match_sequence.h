/* match_sequence.h: a plan as the matcher walks it: a sequence of steps, one
 * for each allocation. */
#ifndef STPLAN_MATCH_SEQUENCE_H
#define STPLAN_MATCH_SEQUENCE_H

#include "plan.h"

/* Requests in a row that are looked up together when the run is adrift. Fewer occur in
 * too many places of a plan; more make it longer until an undisturbed row has come. */
enum { SP_GRAM = 4 };

/* No step. */
#define SP_NOWHERE UINT64_MAX

/* The unit of scales (sp_step_scale), and what is no scale. */
enum { SP_SCALE_ONE = 1 << 16 };
#define SP_NO_SCALE INT64_MIN

/* sp_step is one allocation of the plan. It fills one line of the cache. */
typedef struct {
  uint64_t least, most;  /* bytes requested in the recording */
  uint64_t offset, size; /* its place */
  uint64_t end;          /* the step before which it is freed, or its part's end; SP_NOWHERE if it lives beyond that */
  uint64_t beyond;       /* the first step from it on that is not optional, or its part's end */
  uint32_t stream;       /* index in the plan */
  uint8_t stays;         /* it is never freed */
  uint8_t placed;        /* it has a place; strays have none */
  uint8_t optional;      /* not in every recorded pass */
  uint8_t varies;        /* its size is not always the same */
  uint8_t roomy;         /* its place was made for larger requests than were recorded */
  uint8_t turns;         /* it varies, in another proportion than the step before it that varies */
  uint8_t shared;        /* its place is that of several steps, which lie in it as they come */
  uint8_t below, above;  /* powers of two by which its kin go below its least and above its most bytes (match_kin.h) */
} sp_step;

/* sp_gram is a run of SP_GRAM requests of constant size: a hash of the sizes,
 * and the step that it ends at. */
typedef struct {
  uint64_t hash, at;
} sp_gram;

/* sp_part is the prologue or a body. */
typedef struct {
  uint64_t first, end; /* steps */
  uint64_t follower;   /* first step of the body that followed most often */
  uint64_t stop;       /* of a body that begins with all of a shorter one: the step that comes after that; SP_NOWHERE of others */
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
  int shares; /* some steps share places: data decide what is allocated */
} sp_sequence;

/* sp_sequence_make takes the steps from a plan. 0 without host memory. */
int sp_sequence_make(sp_sequence *s, const sp_plan_device *plan);
/* sp_sequence_loosen says which sizes vary, by the plan alone: those that did, and those of a
 * prologue, except of what stays, if at least half of those of the bodies do. A prologue is
 * recorded once, so it does not show by itself what varies. */
void sp_sequence_loosen(sp_sequence *s);
void sp_sequence_drop(sp_sequence *s);

/* sp_sequence_next is the step after `at`: SP_NOWHERE at the end of a recorded
 * plan. *part is the part of `at`, and becomes that of the answer. */
uint64_t sp_sequence_next(const sp_sequence *s, uint64_t at, uint64_t *part);

/* sp_step_fits says whether a request is of a recorded size, or of one that the place was made for. sp_step_may_fit
 * says whether it is not far from one; only a size that varies may. */
int sp_step_fits(const sp_step *s, uint64_t requested);
int sp_step_may_fit(const sp_step *s, uint64_t requested);

/* sp_step_ratio is how much larger a request is than the step's, of SP_SCALE_ONE; 0 if that is not
 * possible, as it is never freed, or by more than VARIES. sp_step_in_ratio says whether a request
 * is about that much larger than the step's, or the square of it, as attention may be. */
uint64_t sp_step_ratio(const sp_step *s, uint64_t requested);
int sp_step_in_ratio(const sp_step *s, uint64_t ratio, uint64_t requested);

/* sp_step_scale is where a request lies between the smallest (0) and the
 * largest (SP_SCALE_ONE) of its step, or beyond. If all sizes follow one
 * length, such as that of a batch, the steps of one batch have the same scale.
 * SP_NO_SCALE for a step whose size did not vary. sp_scales_agree says whether
 * two scales may be of one length; SP_NO_SCALE agrees with any. */
int64_t sp_step_scale(const sp_step *s, uint64_t requested);
int sp_scales_agree(int64_t a, int64_t b);

/* sp_sequence_part is the part that a step belongs to. */
uint64_t sp_sequence_part(const sp_sequence *s, uint64_t at);

uint64_t sp_gram_hash(const uint64_t requested[SP_GRAM]);

/* sp_sequence_grams is the index of the first gram with this hash that ends at
 * step `from` or after it; if there is none, the index of the next larger hash. */
uint64_t sp_sequence_grams(const sp_sequence *s, uint64_t hash, uint64_t from);

/* sp_occupied says where blocks lie elsewhere than at their steps' places: the end of the highest of them below
 * `top`, as an offset in the plan, 0 if there is none. */
typedef uint64_t sp_occupied(void *self, uint64_t top);

#endif
