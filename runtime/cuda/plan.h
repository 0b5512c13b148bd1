/* plan.h: a plan's records, read where they lie in the file (docs/planfile.md).
 * The functions check nothing: indices have to be below the device's counts,
 * and the plan one that stplan_plan_parse accepted. */
#ifndef STPLAN_PLAN_H
#define STPLAN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "stplan.h"

/* Numbers of the format, as docs/planfile.md names them. */
enum { SP_MODE_RECORDED = 1, SP_MODE_PERIODIC = 2 };
enum { SP_ADVICE_POOL = 1 }; /* the recording was served at less cost without the plan */
enum { SP_END_REQUESTED = 1, SP_END_COMPLETED = 2 };
enum { SP_PROLOGUE = 1, SP_BODY = 2, SP_INTERLUDE = 3 };
enum {
  SP_SLOT_RESIDENT = 1,
  SP_SLOT_INITIAL = 2,
  SP_SLOT_ENTERING = 4,
  SP_SLOT_LEAVING = 8,
  SP_SLOT_STRAY = 16,
  SP_SLOT_SHARES = 32 /* has the place of an earlier slot of its phase, its holder, together with that */
};
#define SP_NO_CELL UINT32_C(0xffffffff)

/* Versions: every slot has a place of its own; some slot shares its place. */
enum { SP_VERSION = 1, SP_VERSION_SHARES = 2 };

typedef struct {
  uint64_t start, requested_end, completed_end;
  uint64_t offset, size, requested, least;
  uint32_t stream, flags, occurrences;
  uint32_t cell; /* of a sharing slot: the index of its holder, which is below its own */
} sp_slot;

typedef struct {
  uint32_t later, earlier, kind;
} sp_wait;

typedef struct {
  uint32_t kind, occurrences;
  uint64_t length, first_slot, slots, makespan, lower_bound, bound_at;
} sp_phase;

typedef struct {
  uint64_t first_event;
  uint32_t phase, zero;
} sp_pass;

/* One device of a plan: the fields of its record, and for each section how many
 * records it has and where they lie. */
typedef struct {
  uint32_t ordinal, mode, end, advice, iterations, bound_kind;
  int32_t rank;
  uint64_t events, alignment, arena_bytes;
  uint64_t peak_allocated, peak_active, recorded_peak_reserved;
  uint64_t checksum; /* of the plan's file: the same in all of its devices */
  uint64_t steady_start, lower_bound, bound_at, gap, steady_end, stray_bytes;
  uint64_t stream_count, slot_count, wait_count, phase_count, pass_count, presence_count, witness_count;
  const uint8_t *streams, *slots, *waits, *phases, *passes, *presence, *witness;
} sp_plan_device;

struct stplan_plan {
  const uint8_t *data;
  size_t length;
  uint8_t *own; /* data, if it was read from a file and is freed with the plan; NULL otherwise */
  uint32_t device_count;
  sp_plan_device *devices;
};

/* sp_plan_find is the device with this ordinal, or NULL. */
const sp_plan_device *sp_plan_find(const stplan_plan *plan, int ordinal);

/* sp_plan_peak is the most bytes that the recording had allocated, by the frees that the plan has. */
static inline uint64_t sp_plan_peak(const sp_plan_device *d) { return d->end == SP_END_REQUESTED ? d->peak_allocated : d->peak_active; }

/* Record i of a section. */
uint64_t sp_plan_stream(const sp_plan_device *d, uint64_t i);
sp_slot sp_plan_slot(const sp_plan_device *d, uint64_t i);
sp_wait sp_plan_wait(const sp_plan_device *d, uint64_t i);
sp_phase sp_plan_phase(const sp_plan_device *d, uint64_t i);
sp_pass sp_plan_pass(const sp_plan_device *d, uint64_t i);

/* sp_plan_phase_of is the phase that slot i belongs to; 0 in mode recorded. */
uint64_t sp_plan_phase_of(const sp_plan_device *d, uint64_t i);

#endif
