/* match_load.h: how many bytes the recording had allocated at each step of its plan. */
#ifndef STPLAN_MATCH_LOAD_H
#define STPLAN_MATCH_LOAD_H

#include "match_sequence.h"

/* sp_load_make is an array with the load after each step: the bytes, in units
 * of SP_ALIGNMENT, that every recorded pass had allocated at least once that
 * step had been served. Steps that some passes lack do not count, nor steps
 * whose size varies: a run may begin with shorter batches than were recorded.
 * The caller frees it. NULL without host memory. */
uint64_t *sp_load_make(const sp_sequence *s, const sp_plan_device *plan);

/* sp_load_at_peak finds the load at the step where the most would be allocated if every step were there, with its largest size. 0 without
 * host memory. */
int sp_load_at_peak(uint64_t *bytes, const sp_sequence *s, const uint64_t *load);

#endif
