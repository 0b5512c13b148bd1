/* match_hypotheses.h: steps at which the run might be instead of at the
 * pointer. Each moves on by one step with every request, and is dropped at the
 * first request that does not fit. */
#ifndef STPLAN_MATCH_HYPOTHESES_H
#define STPLAN_MATCH_HYPOTHESES_H

#include <stdint.h>

#include "match_laws.h"
#include "match_sequence.h"

/* Hypotheses at a time. Each costs a step of time with every request, also in a run that
 * is in step; more of them would find a place sooner in plans with few distinct sizes. */
enum { SP_HYPOTHESES = 32 };

/* Bytes. Blocks up to this have places of one size, and their sizes say little: they count samples, or are constants. */
enum { SP_TINY = 512 };

typedef struct {
  uint64_t at; /* the step that fitted last */
  uint64_t part;
  int64_t scale; /* of the last step that has one */
  uint64_t ratio; /* of sizes to the recorded ones, 0 if they are those (sp_step_ratio) */
  uint64_t key, reading; /* the last step since it was raised that is a key (match_laws.h), and its bytes; 0 bytes if there was none */
  int fitted;    /* requests that speak for it and the pointer did not fit, in a row */
  int told;      /* the last request spoke for it */
  int fork;      /* the request fitted there as well as where the pointer went */
  int begins;    /* it was raised at the beginning of a body */
  int body;      /* a fork: there another body would have begun */
} sp_hypothesis;

typedef struct {
  const sp_sequence *plan;
  const sp_laws *laws; /* of the sizes, NULL if there are none */
  uint64_t pass;       /* that the run is in (sp_matcher.pass): laws say sizes of it */
  uint64_t before;     /* the last request */
  int count;
  sp_hypothesis list[SP_HYPOTHESES];
} sp_hypotheses;

/* The sizes of the last requests, the newest last, and how many requests there have been. */
typedef struct {
  uint64_t list[SP_GRAM];
  uint64_t seen;
} sp_recent;

/* sp_hypotheses_advance moves all of them on by a request, and drops those that
 * it does not fit, or that are at the pointer. If one length decides the sizes
 * of this run, the request has to be of the same scale as the one before, or as a law says. */
void sp_hypotheses_advance(sp_hypotheses *h, uint64_t requested, uint64_t pointer, int one_length);

/* sp_hypotheses_go_on says whether the last request spoke for one of them that is close behind the pointer, or by having the size that a
 * law says for the key that the run has read: then the run goes on with what it was doing. */
int sp_hypotheses_go_on(const sp_hypotheses *h, uint64_t pointer);

/* sp_hypotheses_raise adds steps that the last request fits: the pointer's own, if sizes that
 * never varied follow another length now, and without it around the pointer, by a recorded size or a law's, at the
 * beginnings of bodies, and where the last SP_GRAM requests occur in a row, before the pointer and behind it. Of those, `prologue` says
 * whether steps of the prologue count. */
void sp_hypotheses_raise(sp_hypotheses *h, uint64_t pointer, uint64_t part, const sp_recent *recent, int prologue);

/* sp_hypotheses_raise_starts adds the beginnings of bodies only. That costs next to nothing, so a run that is lost never misses one:
 * behind an evaluation of thousands of requests hardly any of them raises others. */
void sp_hypotheses_raise_starts(sp_hypotheses *h, uint64_t requested);

/* sp_hypotheses_fork adds a step that the request fitted, when the pointer went
 * to another one. `body` says that another body begins there. */
void sp_hypotheses_fork(sp_hypotheses *h, uint64_t at, uint64_t part, int body, uint64_t requested);

/* sp_hypotheses_at is the hypothesis whose step fitted last at `at`, NULL if there is none. */
sp_hypothesis *sp_hypotheses_at(sp_hypotheses *h, uint64_t at);

/* sp_hypotheses_discount takes the last `requests` requests off what each
 * explains: the pointer fitted them as well. At least one remains. */
void sp_hypotheses_discount(sp_hypotheses *h, int requests);

/* sp_hypotheses_best is the confirmed one that explains most, of equals the one
 * nearest to the pointer, which is in `part`. NULL if none is confirmed. */
const sp_hypothesis *sp_hypotheses_best(const sp_hypotheses *h, uint64_t pointer, uint64_t part);

#endif
