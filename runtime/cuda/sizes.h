/* sizes.h: the unit that blocks come in, and rounding to whole units. */
#ifndef STPLAN_SIZES_H
#define STPLAN_SIZES_H

#include <stdint.h>

/* Bytes. Blocks start at multiples of it and occupy multiples of it, as those
 * of PyTorch's native allocator do. stplan.h promises it to callers. */
enum { SP_ALIGNMENT_BITS = 9, SP_ALIGNMENT = 1 << SP_ALIGNMENT_BITS };

/* sp_round_up and sp_round_down give the next multiple of `unit`, n itself if it is one.
 * sp_aligned is what a request of `bytes` occupies. Callers keep n + unit below 2^64. */
static inline uint64_t sp_round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
static inline uint64_t sp_round_down(uint64_t n, uint64_t unit) { return n / unit * unit; }
static inline uint64_t sp_aligned(uint64_t bytes) { return sp_round_up(bytes, SP_ALIGNMENT); }

static inline uint64_t sp_least(uint64_t a, uint64_t b) { return a < b ? a : b; }

#endif
