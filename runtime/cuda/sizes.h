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

/* sp_larger_part narrows [*addr, *end) to the larger of its two parts outside [low, high). */
static inline void sp_larger_part(uint64_t *addr, uint64_t *end, uint64_t low, uint64_t high) {
  if (*addr >= high || *end <= low)
    return;
  uint64_t before = low > *addr ? low - *addr : 0, behind = *end > high ? *end - high : 0;
  if (before >= behind)
    *end = *addr + before;
  else
    *addr = *end - behind;
}

/* Memory that does not move is taken in handles of these sizes in bytes, or in one that is
 * smaller if the limit leaves no more. What registers memory exports each handle as a file,
 * and NCCL takes at most 8,192 of them: of 20 MiB, as PyTorch has them, those are 160 GiB.
 * Above 512 MiB they are few enough. */
#define SP_HANDLE_LEAST (UINT64_C(20) << 20)
#define SP_HANDLE_MOST (UINT64_C(512) << 20)

/* sp_handle_size is the size of the handles for a piece of `bytes`: all of it, or, if that is
 * more than `most`, a size from a half of that on of which whole ones exceed the piece the
 * least. All handles of a piece have one size, as PyTorch shares memory between processes in
 * pieces of one size. `most` is a multiple of the granularity. */
static inline uint64_t sp_handle_size(uint64_t bytes, uint64_t most, uint64_t granularity) {
  uint64_t whole = sp_round_up(bytes, granularity), best = most;
  if (whole <= most)
    return whole;
  for (uint64_t size = most; size > most / 2; size -= granularity)
    if (sp_round_up(whole, size) < sp_round_up(whole, best))
      best = size;
  return best;
}

#endif
