/* plan.h: the plan file of docs/planfile.md, read in place. What sp_plan_check
 * has passed is safe to index. */
#ifndef STPLAN_PLAN_H
#define STPLAN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "stplan.h"

/* Numbers of the format. */
enum { SP_MODE_RECORDED = 1, SP_MODE_PERIODIC = 2 };
enum { SP_ADVICE_POOL = 1 }; /* it costs less without the plan */
enum { SP_END_REQUESTED = 1, SP_END_COMPLETED = 2 };
enum { SP_PROLOGUE = 1, SP_BODY = 2, SP_INTERLUDE = 3 };
enum {
  SP_SLOT_RESIDENT = 1,
  SP_SLOT_INITIAL = 2,
  SP_SLOT_ENTERING = 4,
  SP_SLOT_LEAVING = 8,
  SP_SLOT_STRAY = 16
};
#define SP_NO_CELL UINT32_C(0xffffffff)

typedef struct {
  uint64_t start, requested_end, completed_end;
  uint64_t offset, size, requested, least;
  uint32_t stream, flags, occurrences, cell;
} sp_slot;

typedef struct {
  uint32_t kind, occurrences;
  uint64_t length, first_slot, slots, makespan, lower_bound, bound_at;
} sp_phase;

/* One device of a plan: counts, and where its records lie in the file. */
typedef struct {
  uint32_t ordinal, mode, end, advice, iterations, bound_kind;
  int32_t rank;
  uint64_t events, alignment, arena_bytes;
  uint64_t peak_allocated, peak_active, recorded_peak_reserved;
  uint64_t steady_start, lower_bound, bound_at, gap, steady_end, stray_bytes;
  uint64_t stream_count, slot_count, wait_count, phase_count, pass_count, presence_count, witness_count;
  const uint8_t *streams, *slots, *waits, *phases, *passes, *presence, *witness;
} sp_plan_device;

struct stplan_plan {
  const uint8_t *data;
  size_t length;
  uint8_t *own; /* data, where it was read from a file; NULL otherwise */
  uint32_t device_count;
  sp_plan_device *devices;
};

/* sp_plan_find is the device with this ordinal, or NULL. */
const sp_plan_device *sp_plan_find(const stplan_plan *plan, int ordinal);

uint64_t sp_plan_stream(const sp_plan_device *d, uint64_t i);
sp_slot sp_plan_slot(const sp_plan_device *d, uint64_t i);
sp_phase sp_plan_phase(const sp_plan_device *d, uint64_t i);

#endif
