/* match_laws.h: how sizes follow one another.
 *
 * The sizes of a stretch of a program follow one quantity that nobody tells: the length of a
 * batch, the pixels of an image. A part of the plan is cut into *segments* at steps before
 * which nothing large that varies is live, so that each may have a quantity of its own. The
 * first large step of a segment that varies is its *key*: its size stands for the quantity.
 * Every other size is a *law* of it, through up to three points: what the plan has of the
 * step and of its kin (match_kin.h), and what the run has shown where that did not hold. */
#ifndef STPLAN_MATCH_LAWS_H
#define STPLAN_MATCH_LAWS_H

#include "match_sequence.h"

/* Bytes. Smaller blocks are no keys: sizes that are rounded would misread the quantity. */
enum { SP_KEY_LEAST = 256 << 10 };

/* Bytes. Larger requests are for no device, and say nothing of a law. What laws say, and sums of
 * 4,096 requests, stay below 2^64 by it, and to the byte as a double. */
#define SP_LAW_MOST (UINT64_C(1) << 46)

/* sp_law is a size as a function of a key's: through `points` points, by key. */
typedef struct {
  double key[3], size[3];
  uint64_t most; /* bytes of the largest of its steps that was recorded */
  uint32_t kind; /* of key that it is of: the first step of its kin */
  uint8_t points;
  uint8_t missed; /* times that it did not hold with three points */
} sp_law;

/* sp_tally is how well laws hold: requests that have one, their bytes lately, and those that are as it says. */
typedef struct {
  uint64_t judged, bytes, right;
} sp_tally;

typedef struct {
  uint64_t first, end; /* steps */
  uint64_t key;        /* step, SP_NOWHERE if there is none */
  uint32_t kind;       /* of key: the first step of its kin */
  uint64_t reading;    /* bytes of the key's last request, 0 before there was one */
  uint64_t reach;      /* the largest reading */
  uint64_t before;     /* likewise, before the last one */
  uint64_t pass;       /* of the last one (sp_matcher.pass) */
  sp_tally since;      /* the reading: of what came after it in the segment */
  int supposed;        /* requests as the laws say that have to come before one changes a law */
  uint64_t tally;      /* of the segments with its kind of key: the first of these */
} sp_segment;

typedef struct {
  sp_segment *segments;
  uint64_t segment_count;
  uint64_t varying;     /* the most bytes of steps that may be keys that are live at a time */
  uint32_t *segment_of; /* each step's */
  sp_law *laws;
  uint32_t law_count;
  uint32_t *twin;   /* each step's in the first body (match_kin.h) */
  sp_tally all;
  sp_tally *tallies; /* of segments with one kind of key, by the first of these */
  uint32_t *law_of; /* each step's, SP_NO_LAW if its size does not vary */
} sp_laws;

#define SP_NO_LAW UINT32_MAX

/* sp_laws_make cuts the plan, and finds the laws. Steps whose kin varies are marked as varying.
 * 0 without host memory. No segment has a key if nothing large varies. */
int sp_laws_make(sp_laws *l, sp_sequence *s);
void sp_laws_drop(sp_laws *l);

static inline sp_segment *sp_laws_segment(const sp_laws *l, uint64_t step) { return &l->segments[l->segment_of[step]]; }

/* sp_laws_key_most is the largest key that was recorded of the kin of a segment's, in bytes. The segment has a key. */
static inline uint64_t sp_laws_key_most(const sp_laws *l, const sp_segment *g) { return l->laws[l->law_of[g->key]].most; }

/* sp_laws_size is what a step's law says in this pass, in bytes as requested. 0 if there is none,
 * or if the key's request has not come yet. */
uint64_t sp_laws_size(const sp_laws *l, uint64_t step, uint64_t pass);

/* sp_laws_new_size is likewise, but 0 if the key's size lies among the recorded ones: then those of the steps
 * do too. */
uint64_t sp_laws_new_size(const sp_laws *l, const sp_step *steps, uint64_t step, uint64_t pass);

/* sp_laws_size_by is likewise for a reading of the segment's key that the run is supposed to have made. */
uint64_t sp_laws_size_by(const sp_laws *l, uint64_t step, uint64_t reading);

/* sp_laws_reach is likewise, for the largest reading of the segment in this run. Until laws have
 * held it is no less than recorded, and once they have failed, that. */
uint64_t sp_laws_reach(const sp_laws *l, const sp_step *steps, uint64_t step);

/* sp_laws_near says whether a request has about the size that a law says. */
int sp_laws_near(uint64_t said, uint64_t requested);

/* sp_laws_likely says whether the plan itself agrees with its laws, as far as it has three points. */
int sp_laws_likely(const sp_laws *l);

/* sp_laws_hold says whether laws held lately: for nine tenths of the bytes of 128 requests or more. sp_laws_hold_in is
 * likewise of the laws of one kind of key, that of a segment: a generation has sizes that follow two
 * quantities, and what is trained behind it has not. */
int sp_laws_hold(const sp_laws *l);
int sp_laws_hold_in(const sp_laws *l, uint64_t segment);
int sp_laws_failed_in(const sp_laws *l, uint64_t segment);

/* sp_laws_contradicted says whether less than nine tenths of the bytes that came behind a segment's last reading are as the laws
 * say for it. If nothing has come yet they are not. */
int sp_laws_contradicted(const sp_laws *l, uint64_t segment);

/* sp_laws_confirmed says whether what has come behind a segment's last reading is as the laws say for it. */
int sp_laws_confirmed(const sp_laws *l, uint64_t segment);

/* sp_laws_doubt has a segment's last reading be none if it is contradicted, or if next to nothing has come behind it: the run
 * does something else. It returns 1 if the reading had been the largest. */
int sp_laws_doubt(sp_laws *l, uint64_t segment);

/* sp_laws_suppose says that the run has been found again in a segment. It may be the wrong one, so what comes changes no law
 * until eight requests were as the laws say. */
void sp_laws_suppose(sp_laws *l, uint64_t segment);

/* sp_laws_untried says that a run has shown too little of its laws to say whether they hold. */
int sp_laws_untried(const sp_laws *l);

/* sp_laws_note is told of a step's request. It returns 1 if what sp_laws_reach says of the
 * segment may be another now. */
int sp_laws_note(sp_laws *l, uint64_t step, uint64_t requested, uint64_t pass);

#endif
