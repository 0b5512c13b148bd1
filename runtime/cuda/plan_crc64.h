/* plan_crc64.h: the checksum of plans and histories. */
#ifndef STPLAN_PLAN_CRC64_H
#define STPLAN_PLAN_CRC64_H

#include <stddef.h>
#include <stdint.h>

/* sp_crc64 is the CRC-64/XZ of `length` bytes, continuing `sum`; 0 begins a new one. */
uint64_t sp_crc64(uint64_t sum, const uint8_t *data, size_t length);

#endif
