/* match_state.h: what the files of the matcher share: where a run is, and what a
 * request may be. */
#ifndef STPLAN_MATCH_STATE_H
#define STPLAN_MATCH_STATE_H

#include "match_load.h"
#include "match_frees.h"
#include "match_hypotheses.h"
#include "match.h"
#include "match_sequence.h"

/* One, of shares; and of those, how often scales have to agree to decide anything. */
enum { SP_ONE = 1024, SP_LENGTH = SP_ONE / 10 * 9 };

/* Why the request before was left off plan although it fitted the pointer. */
typedef enum { SP_NO_DOUBT, SP_TOO_EARLY, SP_OTHER_SCALE } sp_doubt;

/* A step for a request. Unsure: if it is not this one, it may live longer than the
 * plan keeps the place. at is SP_NOWHERE where there is none. */
typedef struct {
  uint64_t at, part;
  int unsure, jumped;
  int late; /* the pointer is behind it already, and stays */
} sp_choice;

struct sp_matcher {
  sp_sequence plan;
  uint64_t *load;
  uint64_t at; /* the pointer: the step expected next, SP_NOWHERE at the end */
  uint64_t part;
  uint64_t pass; /* parts that the pointer has left */
  int fitted;    /* times in a row that the pointer fitted */
  int adrift;
  int missed; /* requests without a place since the run was settled */
  uint32_t lost; /* and since the last one that had one */
  sp_doubt doubted;
  int64_t doubted_scale;
  uint64_t behind, behind_since; /* a step that was skipped, SP_NOWHERE without one, and the request */
  int64_t scale;                 /* of the last request that has one */
  int one_length;                /* how often consecutive scales agree, of SP_ONE */
  sp_frees frees;
  sp_recent recent;
  stplan_stream *bound; /* the run's stream for each of the plan's */
  uint8_t *is_bound;
  uint64_t *anchors; /* of each part: the step where a mark is expected, SP_NOWHERE before one is known */
  sp_hypotheses others; /* after what every request looks at: that is few lines of the cache */
};

static inline const sp_step *sp_step_at(const sp_matcher *m, uint64_t at) { return &m->plan.steps[at]; }

/* sp_matcher_choose is where a request belongs, by all that is known but hypotheses. Where
 * there is a reason not to believe the pointer, that is in m->doubted: twice in a
 * row there is none. `ahead` is what the frees say. */
sp_choice sp_matcher_choose(sp_matcher *m, uint64_t ahead, uint64_t requested, stplan_stream stream);

#endif
