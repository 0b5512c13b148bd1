/* match_state.h: where the run is in the plan, as match.c and match_choose.c share it. */
#ifndef STPLAN_MATCH_STATE_H
#define STPLAN_MATCH_STATE_H

#include "match_align.h"
#include "match_frees.h"
#include "match_hypotheses.h"
#include "match_layout.h"
#include "match_sequence.h"
#include "stplan.h"

/* The unit of shares. */
enum { SP_ONE = 1024 };

/* How often consecutive scales have to agree before scales decide anything, of
 * SP_ONE: nine times out of ten. Sizes that follow one length agree always, up
 * to disturbances. */
enum { SP_LENGTH = SP_ONE / 10 * 9 };

/* Requests. So many in a row of one scale are of one length, as of a batch that has begun, whatever the scales were before. */
enum { SP_SAME_LENGTH = 8 };

/* Why the request before was held off plan although it fitted the pointer. */
typedef enum { SP_NO_DOUBT, SP_TOO_EARLY, SP_OTHER_SCALE } sp_doubt;

typedef struct sp_matcher sp_matcher;

/* A step that the run has left out, in a pass, and the step before which its block would have been
 * freed; SP_NOWHERE if never. */
typedef struct {
  uint64_t at, end, pass, bytes;
} sp_omission;

struct sp_matcher {
  sp_sequence plan;
  sp_layout *layout; /* of the places, NULL if they stay as the plan has them */
  sp_align *align;   /* of the run with the plan, if data decide what is allocated; NULL otherwise */
  int astray;        /* it is lost, and the run is looked for as that of any other plan */
  uint64_t *load; /* of each step (match_load.h) */
  uint64_t certain; /* the most of these */
  uint64_t at_peak; /* the one at the step where the most is allocated if every step is there */
  uint64_t at;    /* the pointer: the step expected next, SP_NOWHERE at the end */
  uint64_t part;  /* that the pointer is in */
  uint64_t pass;  /* how many parts the pointer has left */
  uint64_t reached; /* the last step of the prologue that was served */
  int inside;     /* the run came from the prologue into the midst of a body */
  uint32_t *origin; /* of each step: the prologue's that is the same line of the program; itself if there is none */
  int begun;      /* one of them was the prologue, or the plan was put in place in the run */
  int fitted;     /* times in a row that the pointer fitted */
  int adrift;
  int missed;    /* requests without a step since the run was settled */
  uint32_t lost; /* requests without a step since the last one that had one */
  sp_doubt doubted;
  int64_t doubted_scale;
  uint64_t doubted_since; /* the request that was held for its scale last, 0 if none was */
  uint64_t behind, behind_since; /* a step that was skipped, SP_NOWHERE if none, and the request that skipped it */
  sp_omission omitted;           /* the largest one that was left out alone; no bytes: there is none */
  int64_t scale;                 /* of the last request that has one */
  uint64_t ratio;                /* of sizes that never varied in the recording to those there, 0 if they are the same */
  uint64_t ratio_before;         /* the one before that: two batches may be prepared at a time */
  int one_length;                /* how often consecutive scales agree, of SP_ONE */
  uint64_t in_a_row;             /* requests whose scales agree, up to the last one that has a scale */
  sp_frees frees;
  sp_recent recent;
  stplan_stream *bound; /* the run's stream for each of the plan's, as far as is_bound */
  uint8_t *is_bound;
  uint8_t *may_be; /* scratch of by_alignment: the plan's streams that a request may be on */
  uint64_t *anchors; /* of each part: the step where a mark is expected, SP_NOWHERE before one is known */

  /* Last, so that what every request looks at lies in few cache lines. */
  sp_hypotheses others;
};

static inline const sp_step *sp_step_at(const sp_matcher *m, uint64_t at) { return &m->plan.steps[at]; }

#endif
