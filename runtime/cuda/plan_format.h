/* plan_format.h: numbers of docs/planfile.md that only the plan reader needs:
 * the sections of a file, the lengths of their records, and integers as the
 * file stores them. */
#ifndef STPLAN_PLAN_FORMAT_H
#define STPLAN_PLAN_FORMAT_H

#include <stdint.h>

/* The sections of a device, in the order of docs/planfile.md, which is that of the file. */
typedef enum {
  SP_SECTION_DEVICE,
  SP_SECTION_STREAMS,
  SP_SECTION_SLOTS,
  SP_SECTION_WAITS,
  SP_SECTION_PHASES,
  SP_SECTION_PASSES,
  SP_SECTION_PRESENCE,
  SP_SECTION_WITNESS
} sp_section;

enum { SP_DEVICE_SECTIONS = SP_SECTION_WITNESS + 1 };

/* Bytes of one record of each section. */
enum {
  SP_DEVICE_BYTES = 152,
  SP_STREAM_BYTES = 8,
  SP_SLOT_BYTES = 72,
  SP_WAIT_BYTES = 12,
  SP_PHASE_BYTES = 56,
  SP_PASS_BYTES = 16,
  SP_WORD_BYTES = 8, /* of presence */
  SP_INDEX_BYTES = 4 /* of a witness */
};

/* Little-endian, at any address. */
static inline uint32_t sp_le32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t sp_le64(const uint8_t *p) { return (uint64_t)sp_le32(p) | (uint64_t)sp_le32(p + 4) << 32; }

#endif
