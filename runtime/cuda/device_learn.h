/* device_learn.h: when a plan is to be made of the history of a device object. The first one is
 * made after a few iterations. If what is asked for then goes beyond the plan, whether it has
 * one from there or from an earlier run, one is made of all iterations so far, which are three
 * times as many: a bounded number of times. A plan of this run knows a few iterations only, so less is
 * beyond it than beyond one of a whole run. */
#ifndef STPLAN_DEVICE_LEARN_H
#define STPLAN_DEVICE_LEARN_H

#include <stdint.h>

#include "stplan.h"

/* Iterations that say whether the plan has become too narrow: several, so that an evaluation
 * or a checkpoint in one of them does not decide. */
enum { SP_LEARN_WINDOW = 4 };

/* Bytes up to the end of an iteration: of all requests, and of those that were on plan, or would have been by one
 * that follows the run. */
typedef struct {
  uint64_t all, fitting;
} sp_learn_sums;

/* Its fields are private to device_learn.c. All zero: nothing has happened. */
typedef struct {
  uint64_t iterations; /* that have ended */
  uint64_t learned_at; /* iterations that the last plan was made of; 0 if none was made */
  uint64_t changed_at; /* iterations before the last change: a plan was made, or came */
  int fits;            /* an iteration since then has fitted the plan */
  int refused;         /* the last plan that came is not for this run */
  sp_learn_sums began; /* after the first of these */
  int made;            /* plans */
  uint64_t fitting;    /* sums.fitting by now */
  /* Those of the last iterations, by their number modulo the places. Of no iteration they are 0. */
  sp_learn_sums ends[SP_LEARN_WINDOW + 1];
} sp_learn;

/* sp_learn_changed is told that a plan has come, or has been put in place. */
void sp_learn_changed(sp_learn *l);

/* sp_learn_refused is told that one has come that does not serve this run: it does not pay, or cannot begin in a run. */
void sp_learn_refused(sp_learn *l);

/* sp_learn_fits is told of `bytes` that were on plan, or would have been by the next plan
 * (sp_device_learns_of_next). */
void sp_learn_fits(sp_learn *l, uint64_t bytes);

/* sp_learn_iteration is told that an iteration has ended. */
void sp_learn_iteration(sp_learn *l, const stplan_counters *now);

/* sp_learn_due says whether a plan is to be made now, the first one of `first` iterations.
 * `ending` says that the run ends, so that the plan is for the next one. */
int sp_learn_due(sp_learn *l, const stplan_counters *now, unsigned first, int ending);

/* sp_learn_awaits says whether a plan is being made of more iterations than the one that came when `made` were. It
 * is awaited for as many iterations as it is made of. */
int sp_learn_awaits(const sp_learn *l, int made);

/* sp_learn_made is told that one is being made. */
void sp_learn_made(sp_learn *l);

#endif
