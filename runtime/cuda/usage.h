/* usage.h: what is in use, as stplan_statistics tells it, kept while requests are
 * served: a few additions for each. */
#ifndef STPLAN_USAGE_H
#define STPLAN_USAGE_H

#include <stdint.h>

#include "stplan.h"

/* One quantity. What was taken away follows from what was added and what is
 * left. */
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
  sp_tally reserved, extents;
} sp_usage;

/* sp_usage_begin and sp_usage_end note a block of so many bytes, of which so many
 * were asked for. */
void sp_usage_begin(sp_usage *u, uint64_t size, uint64_t requested);
void sp_usage_end(sp_usage *u, uint64_t size, uint64_t requested);

/* sp_tally_set notes a new current value. */
void sp_tally_set(sp_tally *t, uint64_t current);

#endif
