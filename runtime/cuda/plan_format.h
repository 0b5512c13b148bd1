/* plan_format.h: between the files of the plan reader. */
#ifndef STPLAN_PLAN_FORMAT_H
#define STPLAN_PLAN_FORMAT_H

#include "plan.h"

enum {
  SP_DEVICE_BYTES = 152,
  SP_STREAM_BYTES = 8,
  SP_SLOT_BYTES = 72,
  SP_WAIT_BYTES = 12,
  SP_PHASE_BYTES = 56,
  SP_PASS_BYTES = 16,
  SP_WORD_BYTES = 8,
  SP_INDEX_BYTES = 4
};

/* A broken rule: the record that breaks it, by its name and index, and the rule.
 * rule NULL is none. */
typedef struct {
  const char *record;
  uint64_t index;
  const char *rule;
} sp_fault;

typedef struct {
  uint32_t later, earlier, kind;
} sp_wait;

typedef struct {
  uint64_t first_event;
  uint32_t phase, zero;
} sp_pass;

static inline uint32_t sp_le32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t sp_le64(const uint8_t *p) { return (uint64_t)sp_le32(p) | (uint64_t)sp_le32(p + 4) << 32; }

sp_wait sp_plan_wait(const sp_plan_device *d, uint64_t i);
sp_pass sp_plan_pass(const sp_plan_device *d, uint64_t i);

/* sp_plan_check_records checks every rule about the records of a plan whose
 * sections lie where they should. Without memory of the host it says so as a
 * fault. */
sp_fault sp_plan_check_records(const stplan_plan *plan, const uint8_t *producer, uint64_t length);

/* The parts of it. */
sp_fault sp_check_slots(const sp_plan_device *d);
sp_fault sp_check_cells(const sp_plan_device *d);
sp_fault sp_check_passes(const sp_plan_device *d);
sp_fault sp_check_waits(const sp_plan_device *d);

/* sp_phase_of is the phase that slot i belongs to, 0 in mode recorded. */
uint64_t sp_phase_of(const sp_plan_device *d, uint64_t i);

/* sp_crc64 is the CRC-64/XZ of some bytes, continuing a sum; 0 begins one. */
uint64_t sp_crc64(uint64_t sum, const uint8_t *data, size_t length);

#endif
