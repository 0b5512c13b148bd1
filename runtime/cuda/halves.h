/* halves.h: blocks of which two fit into one twice as large.
 *
 * Programs hold the same numbers in two formats: a gradient in bfloat16 and in float32, say. Blocks come in multiples of
 * SP_ALIGNMENT. So two blocks of a half exceed one of the whole if the half is no such multiple: as for most lengths of a
 * text. Where a whole was, one half fits then, and nearly as much stays idle. If a half has been requested, its whole
 * takes what two halves do, which is one alignment more. */
#ifndef STPLAN_HALVES_H
#define STPLAN_HALVES_H

#include "sizes.h"

/* The wholes that are remembered, at an index made of their bytes. A length has about a dozen sizes, and the next one
 * may overwrite them: halves come right before or behind their wholes in every layer. */
enum { SP_WHOLES_BITS = 8, SP_WHOLES = 1 << SP_WHOLES_BITS };

typedef struct {
  uint64_t whole[SP_WHOLES]; /* requested bytes, 0 for none */
} sp_halves;

static inline uint64_t *sp_whole_at(sp_halves *h, uint64_t whole) {
  return &h->whole[whole * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SP_WHOLES_BITS)];
}

/* sp_halves_room is how many bytes a block for a request takes. It remembers the request as a half. `requested` is at
 * most 2^62. */
static inline uint64_t sp_halves_room(sp_halves *h, uint64_t requested) {
  uint64_t room = sp_aligned(requested), whole = 2 * requested;
  if (2 * room != sp_aligned(whole))
    *sp_whole_at(h, whole) = whole;
  return *sp_whole_at(h, requested) == requested ? 2 * sp_aligned(requested / 2) : room;
}

#endif
