/* device_plan_state.h: the state of a plan, as device_plan.c and device_install.c share it. */
#ifndef STPLAN_DEVICE_PLAN_STATE_H
#define STPLAN_DEVICE_PLAN_STATE_H

#include "device_detour.h"
#include "device_plan.h"

/* Bytes that moved, and bytes that were allocated, in the same time. */
typedef struct {
  uint64_t moved, allocated;
} sp_moves;

struct sp_device_plan {
  const sp_plan_device *plan;
  uint64_t number;            /* of the device's plans, from 1 */
  int made;                   /* plans that had been made in this run when it came */
  sp_matcher *matcher;
  stplan_state state;         /* as at the last request */
  int proven;                 /* an earlier run has followed it (stplan_prove), or this one had for a pass when it came */
  int large;                  /* its granules are larger than the least */
  int begun;                  /* its memory has been asked for, for the first place that was needed */
  int suspended, given_up;    /* for now; for good */
  int came;                   /* it has come while the run went on (device_install.c) */
  int doubted;                /* it has been suspended before */
  int kept;                   /* the run has followed it for a whole pass since it was last suspended */
  int returned;               /* times that it was served again at the end of a pass, and soon suspended again */
  int left;                   /* it has left its own places, and that was told (sp_device_plan_leaves) */
  uint64_t left_at;           /* `watched` when it left */
  uint64_t base;              /* address of its memory, 0 if it has none */
  uint64_t room;              /* bytes of addresses of that */
  sp_detours detours;

  /* How well it fits lately: requests, their bytes, and the bytes of those that
   * were served at their places, or could have been. The bytes are halved now
   * and then (WATCH). They begin anew when the plan is suspended or resumed,
   * after `since` requests. */
  uint64_t watched, since, wanted_bytes, placed_bytes;

  /* The same of this pass alone, while it is served. */
  uint64_t pass_wanted, pass_placed;

  /* What moved while the plan was served, and while it was suspended, and the device's counters when that was last reckoned. */
  sp_moves moves[2], moves_until;

  /* As the next plan (device_install.c): whether it has been followed for a pass, whether it fitted
   * the last one, the least and the most bytes allocated in that and in this one, and how many
   * bytes the run had moved when it came. */
  int followed, fitted;
  uint64_t least, most, least_now, most_now, moved_before;

  /* The most that the recording had allocated at the steps that the run has had
   * (match_load.h). */
  uint64_t recorded_bytes;
};

typedef struct sp_device_plan sp_device_plan;

#endif
