/* usage.h: what is in use, as stplan_statistics reports it, counted while
 * requests are served: a few additions for each. */
#ifndef STPLAN_USAGE_H
#define STPLAN_USAGE_H

#include <stdint.h>

#include "stplan.h"

/* One quantity. What was taken away is what was added, less what is left. */
typedef struct {
  uint64_t current, added, peak;
  uint64_t beside;                 /* of another allocator */
  uint64_t old_added, old_removed; /* when sums were last reset */
} sp_tally;

typedef struct {
  sp_tally blocks, bytes, requested;
} sp_kind;

typedef struct {
  sp_kind small, large, all;
  sp_tally reserved, extents, small_reserved, small_extents;
} sp_usage;

/* sp_usage_begin and sp_usage_end note a block of `size` bytes, of which
 * `requested` were asked for, and whether it lies in memory for small blocks. */
void sp_usage_begin(sp_usage *u, int small, uint64_t size, uint64_t requested);
void sp_usage_end(sp_usage *u, int small, uint64_t size, uint64_t requested);

/* sp_tally_set notes a new current value. */
void sp_tally_set(sp_tally *t, uint64_t current);

/* What stplan_measure, stplan_reset_peaks, stplan_reset_sums and stplan_beside do. */
void sp_usage_measure(sp_usage *u, stplan_statistics *statistics);
void sp_usage_reset_peaks(sp_usage *u);
void sp_usage_reset_sums(sp_usage *u);
void sp_usage_beside(sp_usage *u, const stplan_statistics *other);

#endif
